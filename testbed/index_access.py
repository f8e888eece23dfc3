"""How this machine reaches the package index, handed to an image build without leaving a trace.

Builds install packages. Where the index is a mirror, or speaks with a certificate of its own, the
host's pip knows; its settings go into the build as secrets, which no layer of the image keeps.
"""

from __future__ import annotations

import configparser
import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CA_IN_BUILD = "/build/ca.pem"
"""Where the Dockerfiles mount the certificates."""
_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "cert")
_SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


@contextlib.contextmanager
def secrets() -> Iterator[list[str]]:
    """The options `--secret ...` of a build, as docker and buildah both understand them."""
    settings = _pip_settings()
    certificates = Path(settings.get("cert") or _SYSTEM_CERTIFICATES)
    with tempfile.TemporaryDirectory(prefix="trainrun-build-") as name:
        folder = Path(name)
        found = []
        if certificates.is_file():
            settings["cert"] = CA_IN_BUILD
            (folder / "ca.pem").write_bytes(certificates.read_bytes())
            found.append("ca.pem")
        lines = [f"{key} = {value}\n" for key, value in settings.items()]
        (folder / "pip.conf").write_text("[global]\n" + "".join(lines))
        found.append("pip.conf")
        yield [word for file in found for word in ("--secret", f"id={file},src={folder / file}")]


def _pip_settings() -> dict[str, str]:
    """What pip's files and variables say about the index; variables win, as in pip."""
    parser = configparser.RawConfigParser()
    files = [
        Path("/etc/pip.conf"),
        Path.home() / ".pip" / "pip.conf",
        Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "pip" / "pip.conf",
    ]
    if named := os.environ.get("PIP_CONFIG_FILE"):
        files.append(Path(named))
    parser.read(files)
    found = dict(parser.items("global")) if parser.has_section("global") else {}
    for setting in _SETTINGS:
        value = os.environ.get(f"PIP_{setting.upper().replace('-', '_')}")
        if value:
            found[setting] = value
    # Who installs with uv alone has told uv alone.
    uv = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL")
    if uv and "index-url" not in found:
        found["index-url"] = uv
    # An option that stands in several lines of its file is one value with several words.
    return {key: " ".join(found[key].split()) for key in _SETTINGS if key in found}
