"""A file's text replaced at once.

Layer: cli.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from trainrun.errors import InvalidSpec
from trainrun_operator.cli.preparation import read_file


def replace_text(file: Path, text: str, *, before: str) -> None:
    """Write `text` in the place of `before`: whoever reads sees one or the other, whole.

    A link stays one. Raises InvalidSpec where the file holds something else by now, or cannot be
    written.
    """
    path = file.resolve()
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", newline="", encoding="utf-8") as new:
                new.write(text)
                new.flush()
                os.fsync(new.fileno())
                os.fchmod(new.fileno(), mode)
            if read_file(path) != before:
                raise InvalidSpec(f"{file}: was changed by somebody else meanwhile: try again")
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidSpec(f"{file}: cannot be written: {error.strerror}") from error
