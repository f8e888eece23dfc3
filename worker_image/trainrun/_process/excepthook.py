"""Reports the exception that ends the process to the agent, before Python prints it.

The agent keeps a process's last lines anyway; the exception itself distinguishes the culprit from
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
"""Maximum characters sent of the traceback, from its end."""

KEPT_TEXT = 1000
"""Maximum characters sent of the exception's text."""

_STANDARD_LIBRARY = os.__file__.rpartition("/")[0] + "/"
_OURS = __file__.rpartition("/_process/")[0] + "/"
"""This library need not be an installed package: an agent may provide it (`inject`)."""

WAIT = 2.0
"""Seconds that an exiting process waits for the message to go out."""


def install() -> None:
    """Chain our hook before the current one, if there is an agent."""
    if os.environ.get(variables.SOCKET):
        previous = sys.excepthook

        def hook(
            kind: type[BaseException], error: BaseException, traceback: TracebackType | None
        ) -> None:
            _report(kind, error, traceback)
            previous(kind, error, traceback)

        sys.excepthook = hook


def describe(kind: type[BaseException], error: BaseException) -> str:
    """Return `ValueError: text`, with the module unless the exception is built in."""
    name = name_of(kind)
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the exception
        text = "<unprintable text>"
    return f"{name}: {text}"[:KEPT_TEXT] if text else name


def name_of(kind: type) -> str:
    """`ValueError`, `torch.OutOfMemoryError`: with the module unless the class is built in."""
    if kind.__module__ in ("builtins", "__main__"):
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def kinds_of(kind: type[BaseException]) -> tuple[str, ...]:
    """Names of the class and its base classes, the class first; without `object`."""
    return tuple(name_of(base) for base in kind.__mro__ if base is not object)


def place_of(traceback: TracebackType | None) -> str:
    """`loss.py:88`: the innermost line in the script's folder, else in a file whose path is not a
    library's, else in any file."""
    main = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    # For `python -m`, the script's folder is the first entry of sys.path.
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
    # Imported here to keep `import trainrun` fast.
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
    except Exception:  # noqa: BLE001 - an error here must not hide the user's exception
        return
