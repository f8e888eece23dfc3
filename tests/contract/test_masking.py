"""What looks like a secret leaves no trace in a text; what does not, stays."""

from __future__ import annotations

import time

import pytest

from trainrun.contract import masking
from trainrun.contract.masking import hide_values, masked, masked_object

PW = "hunter2"
KEY = "0123456789abcdef0123456789abcdef01234567"
"""As W&B makes them."""
SHAPES = (
    *("hf_", "ghp_", "ghs_", "github_pat_", "glpat-", "sk-", "sk-ant-api03-", "xoxb-", "xapp-"),
    *("npm_", "pypi-", "nvapi-", "r8_", "gsk_", "wandb_v1_", "ya29."),
)


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
        f"password {PW}",
        f"the passphrase is {PW}.",
        f"API key {PW}{PW}",
        *(f"{shape}{PW}{PW}" for shape in SHAPES),
        f"https://hooks.slack.com/services/T0/B0/{PW}",
        f"https://discord.com/api/webhooks/12/{PW}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{PW}\n-----END RSA PRIVATE KEY-----",
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
        "wrong password for user me",
        "password authentication failed",
        "the API key is missing",
        "the token embeddings have 4096 rows",
        f"commit {KEY}",
        f"commit_hash: '{KEY}'",
        f"HEAD is now at {KEY}",
        f"pip install git+https://host/repo@{KEY}",
        f"/hub/models--gpt2/snapshots/{KEY}/config.json",
        f"sha256:{KEY}{KEY[:24]}",
        "step 1234567890 loss 0.12345678901234567890123456789012345678901234567890",
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
        "a",
        "0123456789abcdef",
        "commit ",
        "commit is ",
        "password ",
        "api key ",
        "AKIA" + "A" * 16 + " ",
        "-----BEGIN PRIVATE KEY-----",
    ],
)
def test_a_long_line_takes_no_longer_than_its_length_says(piece: str) -> None:
    begun = time.process_time()
    masked(piece * (100_000 // len(piece)))
    assert time.process_time() - begun < 3


def test_the_texts_of_an_object_are_masked_and_its_shape_stays() -> None:
    told = {"lastLines": [f"token={PW}", "step 3"], "rank": 3, "at": None, "deep": {"x": 0.5}}
    assert masked_object(told) == {**told, "lastLines": ["token=***", "step 3"]}


@pytest.mark.parametrize(
    "text", [KEY, f"key: {KEY}", f"wandb: Currently logged in, {KEY}", f"local-{KEY}", f"x={KEY};"]
)
def test_a_bare_key_of_wandb_is_not_shown(text: str) -> None:
    assert KEY not in masked(text)


def test_an_access_key_of_aws_and_the_secret_behind_it_are_not_shown() -> None:
    secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    assert masked(f"AKIAIOSFODNN7EXAMPLE {secret}") == "***"


def test_the_lines_of_a_private_key_and_tokens_without_a_dot_are_not_shown() -> None:
    assert masked("MIIEpAIBAAKCAQEA" * 4) == "***"
    assert masked(f"neptune eyJhcGlfYWRkcmVzcyI6{'Ab9' * 20}==") == "neptune ***"
    assert masked("Ab9/" * 21 + "Ab==") == "***"


@pytest.fixture
def nothing_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "_hidden", [])


@pytest.mark.case("script", "A script prints a key, a token or a password")
@pytest.mark.usefixtures("nothing_hidden")
@pytest.mark.parametrize(
    "name",
    [
        *("COMET_API_KEY", "MY_TOKEN", "SECRET", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "APIKEY"),
        *("KEY", "FTP_PASSWD", "THE_CREDENTIALS", "TOKEN_FOR_X", "secret_2"),
    ],
)
def test_the_value_of_a_secret_variable_is_shown_nowhere(name: str) -> None:
    hide_values({name: "correct horse", "OTHER": "battery"})
    assert masked("it is correct horse, battery") == "it is ***, battery"


@pytest.mark.usefixtures("nothing_hidden")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZERS_PARALLELISM", "falsehood"),
        ("KEYBOARD", "qwertz-de"),
        ("SSH_AUTH_SOCK", "/run/sock"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/etc/key.json"),
        ("TRAINRUN_TOKEN_FILE", "token-file"),
        ("TOKEN_LIMIT", "100000"),
        ("MY_TOKEN", "1000000"),
        ("MY_KEY", "0.123456"),
        ("MY_SECRET", "short"),
        ("WANDB_API_KEY", "default"),
        ("MONKEYS", "capuchin"),
    ],
)
def test_a_value_that_is_no_secret_stays(name: str, value: str) -> None:
    hide_values({name: value})
    assert masked(f"step 7 {value}") == f"step 7 {value}"


@pytest.mark.usefixtures("nothing_hidden")
def test_of_secrets_within_each_other_nothing_is_left_and_lines_are_hidden_alone() -> None:
    hide_values({"A_KEY": "abcdef", "B_KEY": "abcdefghij", "C_KEY": "line-one\nline-two\n}"})
    assert masked("abcdefghij abcdef line-two }") == "*** *** *** }"


def test_what_an_object_calls_a_secret_is_masked() -> None:
    told = {"wandb_api_key": "no shape at all", "apiKey": "nor here", "tokenizer": "gpt2-large"}
    assert masked_object(told) == {**told, "wandb_api_key": "***", "apiKey": "***"}
    assert masked_object({"token": 123456, "max_token": "4096000"}) == {
        "token": 123456,
        "max_token": "4096000",
    }
