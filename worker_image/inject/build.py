"""Makes the archive that is carried into images which do not have the agent.

    python worker_image/inject/build.py ARCHIVE

Layer: outside of all packages; runs in an environment where `trainrun` is installed (editable or
not) and copies from there:

    run.py          what a worker's first process becomes
    late.py         spares it some modules of the standard library
    trainrun/       the agent, which is loaded from the archive as it lies there
    compiled-*      its modules, and what `dataclasses` makes of its classes, as code
    library.*       lib/trainrun/, the package that scripts import: all that the training sees of it
    libraries.zip   boto3 and what it needs, for the agent alone

Invariants: pure Python, so that one archive fits each image and Python >= 3.10; relocatable, since
nothing in it depends on where it lies; what is compiled serves Pythons like the one that runs this,
others compile for themselves. Of botocore's descriptions of services (25 MB) only those stay that
lead to an object store and to credentials for it, without their texts. The libraries are a zip file
of their own, because every worker's start reads the names of all that is in the archive.
"""

from __future__ import annotations

import compileall
import dataclasses
import gzip
import importlib
import importlib.metadata
import importlib.util
import json
import marshal
import py_compile
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Container, Iterable
from pathlib import Path
from types import CodeType

from run import COMPILED, LIBRARY, key_of

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
"""The store, and how clusters and people get credentials for it."""

AS_IT_IS = (".marshal", ".pyc", ".zip")
"""Suffixes of what is not compressed: to send it costs less than to unpack it at each start."""

LEFT_OUT = ("__pycache__", "*.pyi", "examples", "examples-1.json")
AGENTS_OWN = ("agent", "checkpoint")
"""Parts of `trainrun` that no script imports."""


def build(archive: Path) -> None:
    """Write the archive, over one that may be there."""
    with tempfile.TemporaryDirectory() as folder:
        whole, libraries = Path(folder, "agent"), Path(folder, "libraries")
        _agent(whole)
        _libraries(libraries)
        _pack(libraries, whole / "libraries.zip")
        _pack(whole, archive, as_it_is=AS_IT_IS)
    archive.chmod(0o644)


def _agent(target: Path) -> None:
    target.mkdir()
    shutil.copy(Path(__file__).with_name("run.py"), target)
    shutil.copy(Path(__file__).with_name("late.py"), target)
    # Beside their sources, where what loads modules from archives looks for compiled ones.
    _compile(target, legacy=True)
    _copy_module("trainrun", target)
    _copy_metadata("trainrun", target)
    (target / COMPILED).write_bytes(marshal.dumps((_modules(target), _methods())))
    (target / LIBRARY).write_bytes(marshal.dumps(_library()))


def _modules(folder: Path) -> dict[str, tuple[str, bytes]]:
    """The agent's modules by name: path in the archive, marshalled code."""
    found = {}
    for path in sorted(folder.glob("trainrun/**/*.py")):
        file = path.relative_to(folder)
        parts = file.parent.parts if path.name == "__init__.py" else file.with_suffix("").parts
        code = compile(path.read_bytes(), str(file), "exec", dont_inherit=True)
        found[".".join(parts)] = (str(file), marshal.dumps(code))
    return found


def _methods() -> dict[bytes, CodeType]:
    """All that `dataclasses` writes while the agent is loaded, by the key of its source."""
    found = {}

    def run(source: str, *names: object) -> None:
        code = compile(source, "<dataclass>", "exec", dont_inherit=True)
        found[key_of(source)] = code
        exec(code, *names)

    dataclasses.exec = run
    importlib.import_module("trainrun.agent.main")
    del dataclasses.exec
    return found


def _library() -> dict[str, bytes]:
    """The files of `lib/`."""
    with tempfile.TemporaryDirectory() as folder:
        _copy_module("trainrun", Path(folder, "lib"), without=AGENTS_OWN)
        _compile(Path(folder, "lib"))
        files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def _libraries(target: Path) -> None:
    for module, distribution in LIBRARIES.items():
        _copy_module(module, target)
        _copy_metadata(distribution, target)
    _prune(target / "boto3" / "data", keep=())
    _prune(target / "botocore" / "data", keep=SERVICES)
    _shorten(target / "botocore" / "data")
    _compile(target)


def _copy_module(name: str, folder: Path, *, without: Iterable[str] = ()) -> None:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise SystemExit(f"the module {name} is not installed in {sys.prefix}")
    origin = Path(spec.origin)
    folder.mkdir(exist_ok=True)
    if origin.name == "__init__.py":
        left_out = shutil.ignore_patterns(*LEFT_OUT, *without)
        shutil.copytree(origin.parent, folder / name, ignore=left_out)
    else:
        shutil.copy(origin, folder / origin.name)


def _copy_metadata(distribution: str, folder: Path) -> None:
    """Licences and versions go with what they belong to."""
    for file in importlib.metadata.files(distribution) or ():
        # The rest speaks of the environment that it was copied from.
        kept = file.name == "METADATA" or file.name.startswith(("LICENSE", "NOTICE"))
        if file.parts[0].endswith(".dist-info") and kept:
            copy = folder / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(file.locate()), copy)


def _prune(data: Path, *, keep: Iterable[str]) -> None:
    for folder in [path for path in data.iterdir() if path.is_dir() and path.name not in keep]:
        shutil.rmtree(folder)


def _shorten(data: Path) -> None:
    """Leave out what no request needs: to read it is half of what a client's making takes."""
    prefixes = set()
    for path in data.rglob("service-2.json.gz"):
        model = json.loads(gzip.decompress(path.read_bytes()), object_hook=_without_text)
        prefixes.add(model["metadata"]["endpointPrefix"])
        path.write_bytes(gzip.compress(json.dumps(model).encode(), mtime=0))
    path = data / "endpoints.json"
    endpoints = json.loads(path.read_text())
    for partition in endpoints["partitions"]:
        services = partition["services"]
        partition["services"] = {name: services[name] for name in prefixes & services.keys()}
    path.write_text(json.dumps(endpoints))


def _without_text(described: dict[str, object]) -> dict[str, object]:
    # A member of a shape may be called "documentation" as well; that is not text.
    if isinstance(described.get("documentation"), str):
        described["documentation"] = ""  # botocore wants it to be there
    return described


def _compile(folder: Path, *, legacy: bool = False) -> None:
    """For Pythons like the one that runs this; others compile for themselves."""
    # Unchecked, since copying changes the times of files.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    if not compileall.compile_dir(
        folder, quiet=1, legacy=legacy, invalidation_mode=mode, stripdir=str(folder)
    ):
        raise SystemExit(f"{folder}: not everything could be compiled")


def _pack(folder: Path, archive: Path, *, as_it_is: Container[str] = ()) -> None:
    with zipfile.ZipFile(
        archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9, strict_timestamps=False
    ) as packed:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                stored = zipfile.ZIP_STORED if path.suffix in as_it_is else None
                packed.write(path, path.relative_to(folder), compress_type=stored)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python build.py ARCHIVE")
    build(Path(sys.argv[1]))
