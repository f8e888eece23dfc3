"""What looks like a secret leaves no trace in a text; what does not, stays."""

from __future__ import annotations

import time

import pytest

from trainrun.contract.masking import masked, masked_object

PW = "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        f"redis://:{PW}@host:6379/0",
        f"postgres://u:p@{PW}@h/db",
        f"postgres://u:{PW}@h/db",
        f"https://{PW}@host/repo.git",
        f"AccountName=me;AccountKey={PW}/+a==;EndpointSuffix=x",
        f"https://host/blob?sv=1&sig={PW}%2Bx&se=2",
        f"https://host/blob?sig={PW}",
        f"https://host/key?X-Amz-Credential={PW}&X-Amz-Signature={PW}",
        f"Authorization: Basic {PW}==",
        f"Authorization: Other {PW}",
        f"Authorization: {PW}",
        f"{{'Authorization': 'Token {PW}'}}",
        f'{{"Authorization": "Bearer {PW}"}}',
        f"token: Bearer {PW}",
        f"sent with bearer {PW}, refused",
        f"train.py --token {PW} --steps 5",
        f"train.py --password {PW}",
        f"train.py --api-key {PW}",
        f"train.py --wandb-api-key={PW}",
        f"train.py --password 'my {PW} word'",
        f"['train.py', '--token', '{PW}']",
        f"key AIzaSyA{PW}_abcdefghijklmnop-qrstuvw",
        f"hf_{PW}{PW}",
        f"eyJ{PW}{PW}.{PW}{PW}.{PW}",
        f"secret: 'my {PW} word'",
        f'secret: "my {PW} word"',
        f"secret: 'my {PW} wo",
        f"secret=b'my {PW}'",
        f"secret: 'it\\'s {PW}'",
        f"{{'AWS_SECRET_ACCESS_KEY': '{PW}'}}",
        f'{{\\"token\\": \\"{PW}\\"}}',
        f"password=a,b;{PW}",
        f"password=it's{PW}",
    ],
)
def test_a_secret_in_a_message_is_not_shown(text: str) -> None:
    assert PW not in masked(text)
    assert "***" in masked(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ValueError: bad batch of rank 3",
        "https://host:8080/path/@user?x=1",
        "docker://registry/image@sha256:abc",
        "train.py --tokenizer gpt2 --max-tokens 4096",
        'secrets "x" is forbidden',
        "the design = 5",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("token=abc123, done", "token=***, done"),
        ("s3://me:abc123@host/x", "s3://***@host/x"),
        ("--token abc --steps 5", "--token *** --steps 5"),
        ("{'password': 'a b', 'user': 'c'}", "{'password': ***, 'user': 'c'}"),
    ],
)
def test_what_stands_around_a_secret_stays(text: str, shown: str) -> None:
    assert masked(text) == shown
    assert masked(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        # as structlog's ConsoleRenderer, rich and tput print it
        (f"\x1b[36mtoken\x1b[0m=\x1b[35m{PW}\x1b[0m step=3", "token=*** step=3"),
        (f"\x1b[1;31mpassword\x1b[0m: \x1b[35m{PW}\x1b[0m", "password: ***"),
        (f"\x1b[32mhf_{PW}{PW}\x1b[0m", "***"),
        (f"\x1b[38;2;9;9;9msk-{PW}\x1b[39m{PW}", "***"),
        (f"token\x1b(B\x1b[m={PW}", "token=***"),
        (f"token\x1b[m\x0f={PW}", "token=***"),
        (f"\x1b]8;;https://me:{PW}@host\x1b\\repository\x1b]8;;\x1b\\", "repository"),
        (f"\x1b]0;token={PW}\x07step 3", "step 3"),
        ("\x1b[32mstep 3\x1b[0m", "step 3"),
    ],
)
def test_a_secret_in_a_colored_line_was_stored_and_shown(text: str, shown: str) -> None:
    assert masked(text) == shown


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [
        "eyJ",
        "eyJ-",
        "://",
        "://a:",
        "@",
        "token",
        "token=",
        "token=,",
        "token: '",
        "--token ",
        "--",
        "'",
        "\\",
        "authorization:",
        "authorization: a ",
        "sk-",
        " ",
        "bearer ",
        "sig=",
        "-token",
        "\x1b[",
        "\x1b[0",
        "\x1b]",
        "\x1b[mtoken=",
    ],
)
def test_a_long_line_takes_no_longer_than_its_length_says(piece: str) -> None:
    begun = time.process_time()
    masked(piece * (100_000 // len(piece)))
    assert time.process_time() - begun < 3


def test_the_texts_of_an_object_are_masked_and_its_shape_stays() -> None:
    told = {"lastLines": [f"token={PW}", "step 3"], "rank": 3, "at": None, "deep": {"x": 0.5}}
    assert masked_object(told) == {**told, "lastLines": ["token=***", "step 3"]}
