"""What differs between the specs of runs, by option and variable."""

from __future__ import annotations

from trainrun_operator.cli.viewing.settings import differences, settings_of


def spec(*args: str, keep: int = 3, **env: str) -> dict[str, object]:
    container = {
        "name": "train",
        "command": ["python"],
        "args": [*args],
        "env": [{"name": name, "value": value} for name, value in env.items()],
    }
    template = {"spec": {"containers": [container]}}
    return {"checkpoint": {"keep": keep}, "workers": {"replicas": 2, "template": template}}


def differing(*specs: dict[str, object]) -> dict[str, tuple[str, ...]]:
    return differences([settings_of(each) for each in specs])


def test_an_option_is_one_setting_however_it_is_written() -> None:
    one = spec("train.py", "--lr=0.1", "--amp", "--depth", "2")
    other = spec("train.py", "--depth", "2", "--lr", "0.2")
    assert differing(one, other) == {
        "containers[train] --lr": ("0.1", "0.2"),
        "containers[train] --amp": ("set", ""),
    }
    assert differing(one, one) == {}


def test_an_option_that_is_repeated_differs_in_any_of_its_values() -> None:
    one, other = (spec("--set", f"lr={lr}", "--set", "bs=32") for lr in (0.1, 0.2))
    assert differing(one, other) == {
        "containers[train] --set": ("lr=0.1, bs=32", "lr=0.2, bs=32"),
    }


def test_the_options_in_a_script_of_a_shell_are_settings() -> None:
    one, other = spec("-c", "python 'my train.py' --lr 0.1"), spec("-c", "python x.py --lr 0.2")
    assert differing(one, other) == {
        "containers[train] word 2": ("my train.py", "x.py"),
        "containers[train] --lr": ("0.1", "0.2"),
    }


def test_of_a_variable_only_its_name_is_told() -> None:
    runs = spec(KEY="a1", SAME="x"), spec(KEY="b2", SAME="x"), spec(KEY="", SAME="x", keep=9)
    assert differing(*runs) == {
        "checkpoint.keep": ("3", "3", "9"),
        "containers[train] env KEY": ("set", "set otherwise", "set otherwise"),
    }


def test_the_value_of_a_secret_is_masked() -> None:
    runs = spec("--api-token", "abcdef123", "--tokenizer", "bpe"), spec("--api-token=xyz987")
    told = differing(*runs)
    assert told["containers[train] --tokenizer"] == ("bpe", "")
    assert "abcdef123" not in str(told)
    assert "xyz987" not in str(told)
