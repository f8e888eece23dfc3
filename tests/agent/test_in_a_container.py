"""The agent as process 1 of a container: any user, read-only root, no HOME, no /tmp, own /dev."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.agent.workers import Worker, Workers, start
from tests.support.agent_archive import agent_of, build_archive
from trainrun.contract.answer import Exit, Hold, ResolveRequest
from trainrun.contract.checkpoint_id import CheckpointId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.operator_stand_in import OperatorStandIn

ROOT = Path(__file__).parents[2]
USER = 54321
"""In no password file."""

ENTER = """
set -e
mount --make-rprivate /
mount --bind "$0" "$0"
cd "$0"
mount -t proc proc /proc
mkdir dev
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero random urandom; do
    touch dev/$device
    mount --bind /dev/$device dev/$device
done
touch dev/termination-log
chmod 666 dev/termination-log
touch termination-log
mount --bind termination-log dev/termination-log
mount --rbind dev /dev
mount -o remount,bind,ro /
cd /
exec setpriv --reuid=54321 --regid=54321 --clear-groups "$@"
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that every user may enter, unlike those of pytest."""
    made = Path(tempfile.mkdtemp(prefix="trainrun-container-", dir="/var/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def workers(folder: Path, operator: OperatorStandIn) -> Iterator[Workers]:
    started = Workers(folder, operator)
    yield started
    started.close()


def open_python() -> str:
    """A Python that every user may start; the one of the tests often lies in somebody's home."""
    oldest = "import sys, ssl; sys.exit(sys.version_info < (3, 10))"
    for python in (os.path.realpath(sys.executable), shutil.which("python3", path="/usr/bin")):
        become = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        # By a shell, because what setpriv itself starts is still looked up as root.
        command = [*become, "sh", "-c", 'exec "$0" "$@"', python or "", "-I", "-c", oldest]
        if subprocess.run(command, capture_output=True).returncode == 0:
            return str(python)
    pytest.skip("no Python >= 3.10 on this machine that other users may start")


class Container:
    """A worker in namespaces of its own."""

    def __init__(self, workers: Workers, script: str, **more: object) -> None:
        if os.geteuid() != 0 or not (shutil.which("unshare") and shutil.which("setpriv")):
            pytest.skip("only root may make namespaces")
        folder = workers.folder
        for name in ("node-0", "cache", "storage", "volume"):
            (folder / name).mkdir()
            os.chown(folder / name, USER, USER)
        archive = build_archive(folder / "volume" / "agent.zip")
        self.message = folder / "termination-log"
        self.message.touch()
        self.message.chmod(0o666)
        enter = ["unshare", "--fork", "--pid", "--mount", "--kill-child", "sh", "-c", ENTER]
        python = open_python()
        run = [*agent_of(archive, python), "--", python, "-c", script]
        self.worker: Worker = workers.start(
            "",
            command=(),
            agent=[*enter, str(folder), *run],
            env={"HOME": None, "PYTHONPATH": None, "TMPDIR": None},
            **more,
        )

    @property
    def agent(self) -> int:
        """The agent's pid as seen from outside."""
        pid = self.worker.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


LIFE = """
import os, subprocess, sys, time, trainrun
assert os.getppid() == 1 and os.getuid() == 54321 and "HOME" not in os.environ
try:
    open("/var/tmp/written", "w")
except OSError:
    print("the root is read-only")
subprocess.run(["sh", "-c", "sleep 0.1 & exec true"])  # its sleep is left to process 1
time.sleep(0.5)
pids = [name for name in os.listdir("/proc") if name.isdigit()]
states = [open(f"/proc/{pid}/stat").read().split()[2] for pid in pids]
print("zombies:", states.count("Z"))
directory = trainrun.staging_directory()
(directory / "model.bin").write_bytes(b"abc")
trainrun.report(step=1, checkpoint=directory)
subprocess.Popen(["sleep", "600"], start_new_session=True)
"""


@pytest.mark.slow
def test_a_whole_life_needs_no_home_no_tmp_and_no_writable_root(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = Container(workers, LIFE).worker
    operator.order(Hold(attempt=1, offer=True, resolve=ResolveRequest(attempt=1)))
    found = operator.until(lambda s: s.resolution).resolution
    assert found is not None
    assert found.outcome == "Resolved", found.message
    operator.order(start())
    state = operator.until(lambda s: s.exits and s.committed)
    assert state.exits[0].code == 0, worker.output
    worker.shows("the root is read-only")
    worker.shows("zombies: 0")
    operator.order(start(2, resume=CheckpointId(attempt=1, step=1)))
    operator.until(lambda s: s.attempt == 2 and s.exits)
    operator.order(Exit(succeeded=True))
    assert worker.code() == 0


@pytest.mark.slow
def test_sigterm_is_a_notice_to_process_1_as_well(
    operator: OperatorStandIn, workers: Workers
) -> None:
    container = Container(workers, "import time; time.sleep(600)", grace_seconds=4)
    operator.order(start())
    operator.until(lambda s: s.phase == "Running")
    os.kill(container.agent, signal.SIGTERM)
    state = operator.until(lambda s: s.notice)
    assert state.notice is not None
    assert 3 < (state.notice.remaining or 0) <= 4
    assert container.worker.code(timeout=8) == 143
    assert container.message.read_text() == "received SIGTERM"


@pytest.mark.slow
def test_the_termination_message_quotes_the_culprit(
    operator: OperatorStandIn, workers: Workers
) -> None:
    container = Container(workers, "print('loading'); raise ValueError('no such layer')")
    operator.order(start())
    operator.until(lambda s: s.exits)
    operator.order(Exit(code=1))
    assert container.worker.code() == 1
    lines = container.message.read_text().splitlines()
    assert lines[0] == (
        "rank 0 exited with code 1: ValueError: no such layer (ordered to exit with code 1)"
    )
    assert lines[1] == "loading"
    assert lines[-1] == "ValueError: no such layer"
