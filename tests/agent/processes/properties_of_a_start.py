"""A script whose second attempt writes down all that a start could change for it.

Run by the tests of warm starts, as `python properties_of_a_start.py` and with `-m`. With `THEN` it
does so in every attempt, those of torch included, and goes on as the script which that names.
"""

from __future__ import annotations

import sys

AT_FIRST = {
    "modules": sorted(sys.modules),
    "path": list(sys.path),
    "argv": list(sys.argv),
    "orig_argv": list(sys.orig_argv),
    "importers": sorted(sys.path_importer_cache),
    "meta_path": [getattr(it, "__name__", type(it).__name__) for it in sys.meta_path],
    "excepthook": sys.excepthook is sys.__excepthook__,
    "displayhook": sys.displayhook is sys.__displayhook__,
    "main": [__name__, __file__, __package__, getattr(__spec__, "name", None)],
    "main_module": sys.modules["__main__"].__dict__ is globals(),
    "frames": sys._getframe().f_back is None,
    "recursion": sys.getrecursionlimit(),
    "switching": sys.getswitchinterval(),
    "trace": [sys.gettrace() is None, sys.getprofile() is None],
}

import atexit  # noqa: E402
import faulthandler  # noqa: E402
import gc  # noqa: E402
import inspect  # noqa: E402
import json  # noqa: E402
import locale  # noqa: E402
import multiprocessing  # noqa: E402
import os  # noqa: E402
import resource  # noqa: E402
import runpy  # noqa: E402
import signal  # noqa: E402
import subprocess  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
import traceback  # noqa: E402
import warnings  # noqa: E402
from pathlib import Path  # noqa: E402


def stream(name: str) -> list[object]:
    it = getattr(sys, name)
    return [
        it.encoding, it.errors, it.line_buffering, it.write_through, it.mode, it.name,
        it.fileno(), it.isatty(), it.seekable(), type(it.buffer).__name__,
    ]  # fmt: skip


def descriptors() -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for entry in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{entry}").partition(":")[0]
        except OSError:  # that of the listing itself
            continue
        found[entry] = [target, os.get_inheritable(int(entry))]
    return found


def handlers() -> dict[str, str]:
    return {number.name: str(signal.getsignal(number)) for number in signal.Signals}


def raised() -> str:
    try:
        raise ValueError("told")
    except ValueError:
        return traceback.format_exc()


def of_child(queue: object) -> None:
    queue.put([sys.argv, sys.path, __name__, os.environ["RANK"], sorted(os.environ)])  # type: ignore[attr-defined]


def child(method: str) -> object:
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=of_child, args=(queue,))
    process.start()
    try:
        return queue.get(timeout=60)
    finally:
        process.join()


def status() -> dict[str, str]:
    wanted = ("Name", "Umask", "Threads", "SigBlk", "SigIgn", "SigCgt", "NoNewPrivs", "NSsid")
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    return {name: fields[name] for name in wanted if name in fields and name != "NSsid"}


def properties() -> dict[str, object]:
    python = [sys.executable, "-c", "import sys, json; print(json.dumps(sys.path))"]
    return {
        **AT_FIRST,
        "sitecustomize": str(sys.modules.get("sitecustomize")),
        "warnings": [str(item) for item in warnings.filters],
        "flags": str(sys.flags),
        "xoptions": sys._xoptions,
        "executable": [sys.executable, sys.prefix, sys.base_prefix],
        "encodings": [sys.getfilesystemencoding(), sys.getdefaultencoding()],
        "locale": [locale.setlocale(locale.LC_ALL), locale.getpreferredencoding()],
        "hash": hash("text"),
        "environ": dict(os.environ),
        "environ of children": sorted(subprocess.check_output(["env"], text=True).splitlines()),
        "path of children": json.loads(subprocess.check_output(python)),
        "streams": [stream(name) for name in ("stdin", "stdout", "stderr")],
        "stdin": sys.stdin.read(),
        "descriptors": AT_START,
        "handlers": handlers(),
        "status": status(),
        "place": [os.getcwd(), os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
        "priority": [os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)],
        "oom": Path("/proc/self/oom_score_adj").read_text(),
        "command line": Path("/proc/self/cmdline").read_text(),
        "limits": [resource.getrlimit(number) for number in range(16)],
        "threads": [thread.name for thread in threading.enumerate()],
        "gc": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()],
        "faulthandler": faulthandler.is_enabled(),
        "source": inspect.getsource(raised),
        "module of a function": inspect.getmodule(raised) is sys.modules["__main__"],
        "traceback": raised(),
        "spawn": child("spawn"),
        "forkserver": child("forkserver"),
        "fork": child("fork"),
        "method": multiprocessing.get_start_method(),
        "process": multiprocessing.current_process().name,
    }


def write(found: dict[str, object], file: Path) -> None:
    file.with_suffix(".new").write_text(json.dumps(found))
    file.with_suffix(".new").rename(file)


if __name__ == "__main__" and "THEN" in os.environ:
    # A preload leaves what importing torch leaves: filters of warnings, variables.
    import torch  # noqa: F401
    from properties_of_torch import properties_of_torch

    AT_START = descriptors()
    told = {"start": properties(), "torch": properties_of_torch()}
    place = f"{os.environ['TRAINRUN_ATTEMPT']}-{os.environ['RANK']}.json"
    write(told, Path(os.environ["FOUND"], place))
    runpy.run_path(os.environ["THEN"], run_name="__main__")
elif __name__ == "__main__":
    if os.environ["TRAINRUN_ATTEMPT"] == "1":
        import trainrun

        trainrun.report(step=1)
        time.sleep(600)
    AT_START = descriptors()
    atexit.register(print, "at the end")
    write(properties(), Path(os.environ["PROPERTIES"]))
    print("written", flush=True)
    print("and to stderr", file=sys.stderr)
    how = os.environ.get("END", "")
    if how == "raise":
        raise RuntimeError("the end")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGSEGV)
    sys.exit(7)
