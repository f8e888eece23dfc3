"""Start script of a standby interpreter: imports, waits, and then becomes the rank's process.

Layer: agent, leaf; none of our modules imports it. The agent writes this file as `sitecustomize.py`
into a folder at the front of a standby's PYTHONPATH, and starts the rank's own command. After the
hand-over Python continues and runs the script as in a cold start, with its own `__main__`,
`sys.argv`, `sys.path`, tracebacks and exit. Only a hand-over gets that far: any failure here ends
the process. Runs in the user's interpreter: standard library only.
"""

from __future__ import annotations

import os
import select
import sys

VARIABLE = "TRAINRUN_STANDBY"
"""`<descriptor> <module>[:<module>...] ...`: the channel to the agent, then each module to import
with the modules that it imports later by itself; or the word `probe`."""
NAME = b"trainrun-stdby"
"""Same as in `contract.variables`: the name of a standby in `ps`, to distinguish it from a rank."""
COMM = "/proc/self/comm"
FAILED = 3
"""Exit code of a standby that cannot be used."""


def stand_by() -> bool:
    """Return once this process is the rank's; False: there is no other sitecustomize."""
    instruction = os.environ.pop(VARIABLE)
    if instruction == "probe":  # this interpreter, with these options, reaches this code
        os.write(1, NAME)
        os._exit(0)
    channel, *wanted = instruction.split(" ")
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
    # Keep variables that the imports have set: a cold start's imports would set them, too.
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
    """Remove this folder from PYTHONPATH and sys.path."""
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
    """Run the user's sitecustomize, as a cold start would; returns whether there is one."""
    ours = sys.modules.pop("sitecustomize")
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        return False
    return sys.modules["sitecustomize"] is not ours


def _preload(wanted: list[str], standby: int) -> None:
    """Import the modules and discard their output. Warning filters and variables stay as the first
    module of each group left them. Stops importing once the process must become the rank's: the
    script imports the rest if it needs it."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    saved = [os.dup(descriptor) for descriptor in (1, 2)]
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
                except Exception:  # noqa: BLE001 - another version without this module
                    continue
            _restore_warning_filters(filters)
            _set_environment(environment)
    finally:
        _flush()
        for descriptor, original in zip((1, 2), saved):
            os.dup2(original, descriptor)
            os.close(original)


def _is_wanted(standby: int) -> bool:
    """Whether the rank's environment has arrived."""
    return bool(select.select([standby], [], [], 0)[0])


def _flush() -> None:
    """Flush discarded output, which would otherwise appear before the script's first line."""
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
    if mutated is not None:  # warnings caches results of the old filters
        mutated()


def _received(standby: int) -> dict[str, str]:
    """Wait for the rank's environment; exit if the channel closes without it."""
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
    """Invalidate import caches: modules may have been installed since."""
    for finder in sys.path_importer_cache.values():
        forget = getattr(finder, "invalidate_caches", None)
        if forget is not None:
            forget()


if __name__ == "sitecustomize":
    try:
        _OTHER = stand_by()
    except BaseException:  # noqa: BLE001 - otherwise the script would run in a second process
        # The agent reads the reason from the last line.
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        os._exit(FAILED)
    if not _OTHER:  # site treats it as absent
        raise ImportError("no sitecustomize", name="sitecustomize")
