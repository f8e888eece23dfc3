"""What makes an interpreter a standby: it imports, waits, and then becomes the rank's process.

Layer: agent, leaf; imported by no module of ours. The agent writes this file as `sitecustomize.py`
into a folder in front of a standby's PYTHONPATH, and starts the very command of the rank. So Python
itself goes on after the hand-over and runs the script as in a cold start: `__main__`, `sys.argv`,
`sys.path`, tracebacks and the end are its own. Nothing but a hand-over lets it get that far:
whatever fails here ends the process. Runs in the user's interpreter: standard library only.
"""

from __future__ import annotations

import os
import select
import sys

VARIABLE = "TRAINRUN_STANDBY"
"""`<descriptor> <module>[:<module>...] ...`: the channel to the agent, what is imported, and behind
it what that imports later by itself; or the word `probe`."""
NAME = b"trainrun-stdby"
"""As `contract.variables` has it: what `ps` calls a standby, so that nobody takes it for a rank."""
COMM = "/proc/self/comm"
FAILED = 3
"""Exit code of a standby that cannot be used."""


def stand_by() -> bool:
    """Return once this process is the rank's; False: there is no other sitecustomize."""
    told = os.environ.pop(VARIABLE)
    if told == "probe":  # this interpreter, with these options, would come here
        os.write(1, NAME)
        os._exit(0)
    channel, *wanted = told.split(" ")
    standby = int(channel)
    os.set_inheritable(standby, False)  # noqa: FBT003
    name = _renamed(NAME)
    _leave_no_path()
    other = _other_sitecustomize()
    before = dict(os.environ)
    _preload(wanted, standby)
    added = {k: v for k, v in os.environ.items() if before.get(k) != v}
    os.write(standby, b"ready")
    environment = _received(standby)
    # A cold start's imports would set these in the same way.
    _set_environment({**{k: v for k, v in added.items() if k not in environment}, **environment})
    _renamed(name)
    _forget_finders()
    os.write(standby, b"taken")
    os.close(standby)
    return other


def _renamed(name: bytes) -> bytes:
    """Give this process a name for `ps` and return the one before."""
    try:
        with open(COMM, "rb") as file:
            before = file.read().rstrip(b"\n")
        with open(COMM, "wb", buffering=0) as file:
            file.write(name)
    except OSError:  # no /proc
        return b""
    return before


def _leave_no_path() -> None:
    """As if this folder had never been in PYTHONPATH."""
    here = os.path.dirname(__file__)
    if here in sys.path:
        sys.path.remove(here)
    sys.path_importer_cache.pop(here, None)
    _, _, rest = os.environ.get("PYTHONPATH", "").partition(os.pathsep)
    if rest:
        os.environ["PYTHONPATH"] = rest
    else:
        os.environ.pop("PYTHONPATH", None)


def _other_sitecustomize() -> bool:
    """Run the one that a cold start would have run, if there is one."""
    ours = sys.modules.pop("sitecustomize")
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        return False
    return sys.modules["sitecustomize"] is not ours


def _preload(wanted: list[str], standby: int) -> None:
    """Import; what is printed meanwhile is shown to nobody. Filters of warnings and variables stay
    as a script has them that imports the first of each. Once this process is wanted as the rank's,
    nothing more is imported: the script does it, if it needs it."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    kept = [os.dup(descriptor) for descriptor in (1, 2)]
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
    try:
        for names in wanted:
            if _is_wanted(standby):
                break
            name, *later = names.split(":")
            __import__(name)
            filters, environment = _warning_filters(), dict(os.environ)
            for lazy in later:
                if _is_wanted(standby):
                    break
                try:
                    __import__(lazy)
                except Exception:  # noqa: BLE001 - another version: it is imported later, or never
                    continue
            _restore_warning_filters(filters)
            _set_environment(environment)
    finally:
        _flush()
        for descriptor, original in zip((1, 2), kept):
            os.dup2(original, descriptor)
            os.close(original)


def _is_wanted(standby: int) -> bool:
    """The environment of the rank has come."""
    return bool(select.select([standby], [], [], 0)[0])


def _flush() -> None:
    """What was printed and not yet written must not come out with the script's first line."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    if "ctypes" in sys.modules:
        sys.modules["ctypes"].CDLL(None).fflush(None)


def _warning_filters() -> list[object] | None:
    warnings = sys.modules.get("warnings")
    return list(warnings.filters) if warnings is not None else None


def _restore_warning_filters(filters: list[object] | None) -> None:
    warnings = sys.modules.get("warnings")
    if warnings is None or filters is None or list(warnings.filters) == filters:
        return
    warnings.filters[:] = filters
    mutated = getattr(warnings, "_filters_mutated", None)
    if mutated is not None:  # what was shown before goes by the old ones
        mutated()


def _received(standby: int) -> dict[str, str]:
    """Wait for the environment of the rank; nothing at all: it is not needed any more."""
    parts = []
    while True:
        part = os.read(standby, 1 << 16)
        if not part:
            break
        parts.append(part)
    whole = b"".join(parts)
    if not whole.endswith(b"\0\0"):
        os._exit(0)
    pairs = [entry.partition(b"=") for entry in whole[:-2].split(b"\0")]
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _set_environment(environment: dict[str, str]) -> None:
    for name in list(os.environ):
        if name not in environment:
            del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _forget_finders() -> None:
    """What was not there when a module was looked for may be there by now."""
    for finder in sys.path_importer_cache.values():
        forget = getattr(finder, "invalidate_caches", None)
        if forget is not None:
            forget()


if __name__ == "sitecustomize":
    try:
        _OTHER = stand_by()
    except BaseException:  # noqa: BLE001 - else the script would run, and the rank's process does
        # The last line says why, to the agent.
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        os._exit(FAILED)
    if not _OTHER:  # site takes it for absent
        raise ImportError("no sitecustomize", name="sitecustomize")
