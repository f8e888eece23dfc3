"""Builds the archive that brings the agent into images without it.

    python worker_image/inject/build.py ARCHIVE

Layer: outside of all packages; runs in an environment where `trainrun` is installed (editable or
not) and copies from there:

    run.py       runs in a worker's first process
    trainrun/    the agent, imported from the archive
    lib/         the package that scripts import: `trainrun` without the agent
    libraries/   boto3 and its dependencies, only for the agent

Invariants: pure Python, so that one archive fits every image and Python >= 3.10; relocatable, since
nothing in it depends on its path; compiled modules serve Pythons of the version that runs this,
others compile for themselves. Of botocore's service descriptions (25 MB) it keeps only those for
object stores and their credentials, without their documentation.
"""

from __future__ import annotations

import compileall
import gzip
import importlib.metadata
import importlib.util
import json
import py_compile
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

LIBRARIES = {
    "boto3": "boto3",
    "botocore": "botocore",
    "s3transfer": "s3transfer",
    "jmespath": "jmespath",
    "dateutil": "python-dateutil",
    "six": "six",
    "urllib3": "urllib3",
}
"""Modules and the distributions that they belong to."""

SERVICES = ("s3", "sts", "sso", "sso-oidc")
"""The store, and the services that give clusters and users credentials for it."""

TIME_ZONES = "dateutil-zoneinfo.tar.gz"
"""Time zones for systems without any; not needed, since botocore uses UTC."""

UNUSED = (
    *("dynamodb", "ec2", "emscripten"),
    *("crt.py", "easter.py", "processpool.py", "pyopenssl.py", "rebuild.py", "rrule.py"),
    *("socks.py", "stub.py", "win.py"),
)
"""Unused parts of the libraries: for other services, browsers, other transfers, calendars, proxies
of a protocol that boto3 does not speak, tests, Windows."""
NOT_IMPORTED = {
    "botocore": ("crt/auth.py",),
    "dateutil": ("tzwin.py", "utils.py", "zoneinfo"),
    "urllib3": ("http2/connection.py",),
}
"""Likewise, by path: for compiled libraries that are not here, for Windows and the time zones."""
LEFT_OUT = ("__pycache__", "*.pyi", "examples", "examples-1.json", TIME_ZONES, *UNUSED)
AGENTS_OWN = ("agent", "checkpoint", "sweep", "_samplers")
"""Parts of `trainrun` that no script imports: those of the agent and of a sweep's clerk."""
SCRIPTS_OWN = (
    *("torch", "transformers.py", "lightning.py", "accelerate.py", "mlflow.py", "tasks"),
    *("_process/checkpoint_handle.py", "_process/pending_saves.py", "_process/reporting.py"),
    *("_process/restoring.py", "_process/sections.py"),
    *("sweep", "checkpoint/sweep_log.py", "_samplers", "checkpoint/inspection.py"),
)
"""Parts that the agent does not import: for scripts, a sweep's clerk, or the command line. Paths:
a module of the agent may have the name of one of them."""


def build(archive: Path) -> None:
    """Write the archive; replaces an existing one."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(Path(__file__).with_name("run.py"), folder)
        _copy_module("trainrun", folder, without=SCRIPTS_OWN)
        _copy_metadata("trainrun", folder)
        _copy_module("trainrun", folder / "lib", without=AGENTS_OWN)
        _libraries(folder / "libraries")
        _compile(folder)
        _pack(folder, archive)
    archive.chmod(0o644)


def _libraries(folder: Path) -> None:
    for module, distribution in LIBRARIES.items():
        _copy_module(module, folder, without=NOT_IMPORTED.get(module, ()))
        _copy_metadata(distribution, folder)
    _prune(folder / "boto3" / "data", keep=())
    _prune(folder / "botocore" / "data", keep=SERVICES)
    for file in (folder / "botocore" / "data").rglob("service-2.json.gz"):
        service = _undocumented(json.loads(gzip.decompress(file.read_bytes())))
        service["documentation"] = "TrainRun has removed the documentation."
        file.write_bytes(gzip.compress(json.dumps(service).encode(), mtime=0))


def _undocumented(part: Any) -> Any:
    """A part of a service's description without the texts of manuals; botocore reads some keys."""
    if isinstance(part, dict):
        texts = {k: "" for k, v in part.items() if k == "documentation" and isinstance(v, str)}
        return {key: _undocumented(value) for key, value in part.items()} | texts
    return [_undocumented(item) for item in part] if isinstance(part, list) else part


def _copy_module(name: str, folder: Path, *, without: Iterable[str] = ()) -> None:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise SystemExit(f"the module {name} is not installed in {sys.prefix}")
    origin = Path(spec.origin)
    folder.mkdir(exist_ok=True)
    if origin.name == "__init__.py":
        parts = {origin.parent / part for part in without}
        if missing := sorted(str(part) for part in parts if not part.exists()):
            raise SystemExit(f"{name} no longer has {', '.join(missing)}: correct {__file__}")
        by_name = shutil.ignore_patterns(*LEFT_OUT)

        def left_out(place: str, names: list[str]) -> set[str]:
            return by_name(place, names) | {n for n in names if Path(place, n) in parts}

        shutil.copytree(origin.parent, folder / name, ignore=left_out)
    else:
        shutil.copy(origin, folder / origin.name)


def _copy_metadata(distribution: str, folder: Path) -> None:
    """Copy licences and versions along with a distribution."""
    for file in importlib.metadata.files(distribution) or ():
        # The rest describes the environment that it was copied from.
        wanted = file.name == "METADATA" or file.name.startswith(("LICENSE", "NOTICE"))
        if file.parts[0].endswith(".dist-info") and wanted:
            copy = folder / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(file.locate()), copy)


def _prune(data: Path, *, keep: Iterable[str]) -> None:
    for folder in [path for path in data.iterdir() if path.is_dir() and path.name not in keep]:
        shutil.rmtree(folder)


def _compile(folder: Path) -> None:
    for part in sorted(path for path in folder.iterdir() if path.is_dir()):
        if not compileall.compile_dir(
            part,
            quiet=1,
            # Python looks for compiled modules in archives next to their sources.
            legacy=part.name == "trainrun",
            # Unchecked, since copying changes file times.
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            stripdir=str(folder),
        ):
            raise SystemExit(f"{part}: some modules could not be compiled")


def _pack(folder: Path, archive: Path) -> None:
    with zipfile.ZipFile(
        archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9, strict_timestamps=False
    ) as packed:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                packed.write(path, path.relative_to(folder))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python build.py ARCHIVE")
    build(Path(sys.argv[1]))
