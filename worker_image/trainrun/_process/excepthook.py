"""Tells the agent which exception ends the process, before Python prints it.

The agent keeps a process's last lines anyway; the exception itself lets the culprit be told from
ranks that only lost their peer.
"""

from __future__ import annotations

import os
import sys

from trainrun.contract import variables

TYPE_CHECKING = False  # as type checkers know it, without importing `typing`
if TYPE_CHECKING:
    from types import TracebackType

KEPT_TRACEBACK = 4096
"""Characters of the traceback's end that are sent."""

KEPT_TEXT = 1000
"""Characters of the exception's text that are sent."""

_STANDARD_LIBRARY = os.__file__.rpartition("/")[0] + "/"
_OURS = __file__.rpartition("/_process/")[0] + "/"
"""This library need not lie among installed packages: an agent may bring it (`inject`)."""

WAIT = 2.0
"""Seconds that a process which ends waits for the message to go out."""


def install() -> None:
    """Chain our hook before the present one, where there is an agent to tell."""
    if os.environ.get(variables.SOCKET):
        previous = sys.excepthook

        def hook(
            kind: type[BaseException], error: BaseException, traceback: TracebackType | None
        ) -> None:
            _report(kind, error, traceback)
            previous(kind, error, traceback)

        sys.excepthook = hook


def describe(kind: type[BaseException], error: BaseException) -> str:
    """Return `ValueError: text`, with the module of an exception that is not built in."""
    name = name_of(kind)
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the exception
        text = "<its text cannot be read>"
    return f"{name}: {text}"[:KEPT_TEXT] if text else name


def name_of(kind: type) -> str:
    """`ValueError`, `torch.OutOfMemoryError`: with the module of a class that is not built in."""
    if kind.__module__ in ("builtins", "__main__"):
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def kinds_of(kind: type[BaseException]) -> tuple[str, ...]:
    """Names of the class and of its bases, the class first; not `object`."""
    return tuple(name_of(base) for base in kind.__mro__ if base is not object)


def place_of(traceback: TracebackType | None) -> str:
    """`loss.py:88`: the innermost line of the script's folder, else of what is no library as far as
    its path tells, else of all."""
    main = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    # Of `python -m` the script's folder is what is searched first.
    folders = tuple(f"{folder}/" for folder in (main.rpartition("/")[0], *sys.path[:1]))
    near = own = innermost = ""
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        innermost = f"{file.rpartition('/')[2]}:{traceback.tb_lineno}"
        library = file.startswith((_STANDARD_LIBRARY, _OURS, "<frozen"))
        if not library and "-packages" not in file:
            own = innermost
            near = own if file.startswith(folders) else near
        traceback = traceback.tb_next
    return near or own or innermost


def _report(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    # Imported when needed: keeps `import trainrun` fast.
    import traceback as traceback_  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    from trainrun._process import session  # noqa: PLC0415
    from trainrun._process.staging import remedy_of  # noqa: PLC0415
    from trainrun.contract import messages  # noqa: PLC0415

    try:
        connection = session.connection_of(error)
        if connection is not None:
            text = describe(kind, error)
            remedy = remedy_of(error, Path(os.environ[variables.STAGING]))
            lines = "".join(traceback_.format_exception(kind, error, traceback))
            raised = messages.Raised(
                error=f"{text}; {remedy}" if remedy else text,
                traceback=lines[-KEPT_TRACEBACK:],
                kinds=kinds_of(kind)[: messages.MOST_KINDS],
                at=place_of(traceback),
            )
            connection.send_surely(messages.line_of(raised), wait=WAIT)
    except Exception:  # noqa: BLE001 - the user's exception matters, whatever becomes of ours
        return
