"""How image builds reach the package index."""

from __future__ import annotations

import configparser
import os
from pathlib import Path

import pytest

from testbed.index_access import CA_IN_BUILD, secrets


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, and an environment that says nothing of an index."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return tmp_path


def handed_over() -> tuple[configparser.SectionProxy, dict[str, bytes]]:
    """pip's settings in the build, and every secret."""
    with secrets() as options:
        assert options[::2] == ["--secret"] * (len(options) // 2)
        found = {}
        for option in options[1::2]:
            identity, _, source = option.partition(",")
            found[identity.removeprefix("id=")] = Path(source.removeprefix("src=")).read_bytes()
    parser = configparser.ConfigParser()
    parser.read_string(found["pip.conf"].decode())
    return parser["global"], found


def test_what_pip_knows_of_the_index_is_handed_to_the_build(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".config" / "pip").mkdir(parents=True)
    (home / ".config" / "pip" / "pip.conf").write_text(
        "[global]\nindex-url = https://index.example.com/simple\nprogress-bar = off\n"
    )
    monkeypatch.setenv("PIP_TIMEOUT", "7")

    settings, _ = handed_over()

    assert settings["index-url"] == "https://index.example.com/simple"
    assert settings["timeout"] == "7"
    assert "progress-bar" not in settings


def test_variables_win_over_files(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = home / "named.conf"
    named.write_text("[global]\nindex-url = https://file.example.com/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(named))
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable.example.com/simple")

    assert handed_over()[0]["index-url"] == "https://variable.example.com/simple"


def test_an_index_that_only_uv_knows_is_used_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_INDEX_URL", "https://index.example.com/simple")

    assert handed_over()[0]["index-url"] == "https://index.example.com/simple"


def test_certificates_of_the_host_are_handed_over_as_a_file(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "own.pem").write_text("a certificate")
    monkeypatch.setenv("PIP_CERT", str(home / "own.pem"))

    settings, found = handed_over()

    assert settings["cert"] == CA_IN_BUILD
    assert found["ca.pem"] == b"a certificate"


def test_nothing_is_left_of_the_secrets() -> None:
    with secrets() as options:
        places = [Path(option.partition("src=")[2]) for option in options[1::2]]
        assert all(place.is_file() for place in places)

    assert not any(place.parent.exists() for place in places)
