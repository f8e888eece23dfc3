"""`trainrun init`: a script and a file that run as they are.

Layer: cli. The files are those of `examples/`, which the wheel brings along: what the tests run and
what a user begins with is one text. Invariant: no file that exists is changed.
"""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import click

from trainrun.errors import InvalidSpec

EXAMPLES = {
    "plain": "first",
    "torch": "ddp_digits",
    "huggingface": "transformers",
    "lightning": "lightning",
}
"""Names of the option `--for`, and folders of examples."""
NEEDS: dict[str, tuple[tuple[str, ...], str]] = {
    "plain": ((), ""),
    "torch": (("torch", "sklearn"), "'trainrun[cli,torch]' scikit-learn"),
    "huggingface": (("transformers", "accelerate"), "'trainrun[cli,transformers]'"),
    "lightning": (("lightning",), "'trainrun[cli,lightning]'"),
}
"""Modules that the script imports, and what installs them."""
FILE = "train.yaml"

_STORAGE = re.compile(r"(?<=    uri: )file:///tmp/\S+")


def write_first_run(kind: str, folder: Path) -> None:
    """Write train.py and train.yaml into the folder, and print how to run them. Raises InvalidSpec
    where one of them exists or cannot be written."""
    texts = texts_for(kind, storage=(folder.resolve() / "runs").as_uri())
    for name in texts:
        if (folder / name).exists():
            raise InvalidSpec(f"{folder / name} exists already; name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise InvalidSpec(f"{error.filename}: cannot be written: {error.strerror}") from error
    click.echo(f"written: {', '.join(str(folder / name) for name in texts)}")
    modules, packages = NEEDS[kind]
    if not all(map(find_spec, modules)):
        click.echo(f"pip install {packages}")
    command = shlex.join(["trainrun", "run", str(folder / FILE)])
    click.echo(f'{command}\n{command} --fault "kill rank=1 step=34"')


def texts_for(kind: str, *, storage: str) -> dict[str, str]:
    """The files by their names, for this storage."""
    example = EXAMPLES[kind]
    found = {}
    for name, written in (("train.py", "train.py"), ("trainrun.yaml", FILE)):
        text = (_examples() / example / name).read_text(encoding="utf-8")
        text = text.replace(f"examples/{example}/", "").replace("trainrun.yaml", FILE)
        found[written] = _STORAGE.sub(storage, text)
    return found


def _examples() -> Path:
    brought = Path(__file__).parents[1] / "examples"
    # An editable installation has the checkout instead.
    return brought if brought.is_dir() else Path(__file__).parents[3] / "examples"
