"""Makes the folder that is carried into images which do not have the agent.

    python worker_image/inject/build.py TARGET [ARCHIVE]

Layer: outside of all packages; runs in an environment where `trainrun` is installed (editable or
not) and copies from there:

    TARGET/run.py         what a worker's container starts
    TARGET/site/          trainrun, for the agent alone
    TARGET/libraries/     boto3 and what it needs, for the agent alone
    TARGET/lib/trainrun   the package that scripts import: all that the training sees of it
    ARCHIVE               the same as a zip file, which the operator serves to workers

Invariants: pure Python, so that one folder fits each image and Python >= 3.10; relocatable, since
it holds no absolute path; readable by every user. Of botocore's descriptions of services (25 MB)
only those stay that lead to an object store and to credentials for it.
"""

from __future__ import annotations

import compileall
import importlib.metadata
import importlib.util
import py_compile
import shutil
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePath

MODULES = {
    "trainrun": "trainrun",
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

LEFT_OUT = ("__pycache__", "*.pyi", "examples", "examples-1.json")


def build(target: Path) -> None:
    """Make the folder `target`, which must not be there or be empty."""
    target.mkdir(parents=True, exist_ok=True)
    if any(target.iterdir()):
        raise SystemExit(f"{target} is not empty")
    libraries = target / "libraries"
    for module, distribution in MODULES.items():
        folder = target / "site" if module == "trainrun" else libraries
        folder.mkdir(exist_ok=True)
        _copy_module(module, folder)
        _copy_metadata(distribution, folder)
    _prune(libraries / "boto3" / "data", keep=())
    _prune(libraries / "botocore" / "data", keep=SERVICES)
    shutil.copy(Path(__file__).with_name("run.py"), target / "run.py")
    (target / "lib").mkdir()
    (target / "lib" / "trainrun").symlink_to(PurePath("..", "site", "trainrun"))
    # Unchecked, since copying changes the times of files. Another Python makes its own, where it
    # may write them.
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    if not compileall.compile_dir(target, quiet=1, invalidation_mode=unchecked):
        raise SystemExit(f"{target}: not everything could be compiled")
    _make_readable(target)


def _copy_module(name: str, site: Path) -> None:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise SystemExit(f"the module {name} is not installed in {sys.prefix}")
    origin = Path(spec.origin)
    if origin.name == "__init__.py":
        shutil.copytree(origin.parent, site / name, ignore=shutil.ignore_patterns(*LEFT_OUT))
    else:
        shutil.copy(origin, site / origin.name)


def _copy_metadata(distribution: str, site: Path) -> None:
    """Licences and versions go with what they belong to."""
    for file in importlib.metadata.files(distribution) or ():
        # The rest speaks of the environment that it was copied from.
        kept = file.name == "METADATA" or file.name.startswith(("LICENSE", "NOTICE"))
        if file.parts[0].endswith(".dist-info") and kept:
            copy = site / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(file.locate()), copy)


def _prune(data: Path, *, keep: Iterable[str]) -> None:
    for folder in [path for path in data.iterdir() if path.is_dir() and path.name not in keep]:
        shutil.rmtree(folder)


def _make_readable(target: Path) -> None:
    for path in [target, *target.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)


def pack(folder: Path, archive: Path) -> None:
    """The folder as a zip file, without the link in it: who unpacks it makes that again."""
    with zipfile.ZipFile(
        archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9, strict_timestamps=False
    ) as packed:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and folder / "lib" not in path.parents:
                packed.write(path, path.relative_to(folder))
    archive.chmod(0o644)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit("usage: python build.py TARGET [ARCHIVE]")
    build(Path(sys.argv[1]))
    if len(sys.argv) == 3:
        pack(Path(sys.argv[1]), Path(sys.argv[2]))
