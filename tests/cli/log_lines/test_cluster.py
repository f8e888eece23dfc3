"""Lines of worker pods, through the API of a cluster: a stand-in that serves a run and its logs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner, Result

from tests.support.eventually import eventually
from tests.support.kubeconfigs import written_kubeconfig
from trainrun.checkpoint.logs import LogLine, RankLog, WorkerLog, write_log
from trainrun.checkpoint.records import AttemptRecord
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.contract import layout
from trainrun_operator.api.run.status import Condition, TrainRunStatus, json_object
from trainrun_operator.cli.commands import trainrun

START = "[agent] INFO starting attempt {}"
ENDED = "[agent] INFO rank {} exited with code 0"


@dataclass
class Pod:
    slot: int
    phase: str = "Running"
    lines: list[tuple[str, str]] = field(default_factory=list)
    cut: bool = False
    """Break the connection that follows it, once."""
    asked: list[dict[str, list[str]]] = field(default_factory=list)

    hours: int | None = None
    """Of the zone of its node's clock, from UTC; None: `Z`."""

    def prints(self, *texts: str, at: int | None = None, nanoseconds: int = 500_000_000) -> None:
        for text in texts:
            second = len(self.lines) if at is None else at
            zone = "Z" if self.hours is None else f"{self.hours:+03d}:00"
            local = f"2026-11-03T{9 + (self.hours or 0):02d}:00:{second:02d}.{nanoseconds:09d}"
            self.lines.append((f"{local}{zone}", text))


class Cluster:
    """Namespace `team`, TrainRun `llama`."""

    def __init__(self, storage: Path) -> None:
        self.pods: dict[str, Pod] = {}
        self.status: dict[str, Any] = json_object(TrainRunStatus(phase="Running", attempt=1))
        self.storage = storage.as_uri()
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                cluster.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def ends(self) -> None:
        now = datetime(2026, 11, 3, 10, tzinfo=UTC)
        done = Condition(
            type="Complete", status="True", reason="Succeeded", last_transition_time=now
        )
        status = TrainRunStatus(phase="Succeeded", attempt=1, conditions=(done,))
        for pod in self.pods.values():
            pod.phase = "Succeeded"
        self.status = json_object(status)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        words = parts.path.strip("/").split("/")
        name = words[5] if len(words) > 5 else ""
        if "trainruns" in words:
            self.say(request, self.run())
        elif words[4:] == ["pods"]:
            assert parse_qs(parts.query)["labelSelector"] == ["trainrun.dev/run-uid=u-1"]
            items = [self.raw(each) for each in self.pods]
            self.say(request, {"metadata": {"resourceVersion": "1"}, "items": items})
        elif name not in self.pods:
            self.say(request, {"kind": "Status", "message": "not found", "code": 404}, code=404)
        elif words[-1] == "log":
            self.log(request, self.pods[name], parse_qs(parts.query))
        else:
            self.say(request, self.raw(name))

    def say(self, request: BaseHTTPRequestHandler, body: object, code: int = 200) -> None:
        request.send_response(code)
        request.end_headers()
        request.wfile.write(json.dumps(body).encode())

    def log(self, request: BaseHTTPRequestHandler, pod: Pod, params: dict[str, list[str]]) -> None:
        assert params["container"] == ["train"]
        pod.asked.append(params)
        since = datetime.fromisoformat(params["sinceTime"][0]) if "sinceTime" in params else None
        begin = 0
        if "tailLines" in params:
            begin = max(0, len(pod.lines) - int(params["tailLines"][0]))
        request.send_response(200)
        request.end_headers()
        while True:
            # Asked first: what it printed before it ended is served, as a kubelet does.
            ends = "follow" not in params or pod.phase != "Running" or pod.cut
            for stamp, text in pod.lines[begin:]:
                begin += 1
                if since is None or datetime.fromisoformat(stamp) >= since:
                    request.wfile.write(f"{stamp} {text}\n".encode())
            request.wfile.flush()
            if ends:
                pod.cut = False
                return
            time.sleep(0.01)

    def run(self) -> dict[str, Any]:
        worker = {"name": "train", "image": "x", "command": ["python", "train.py"]}
        spec = {
            "workers": {"replicas": 2, "template": {"spec": {"containers": [worker]}}},
            "storage": {"uri": self.storage},
        }
        return {
            "apiVersion": "trainrun.dev/v1alpha1",
            "kind": "TrainRun",
            "metadata": {"name": "llama", "namespace": "team", "uid": "u-1", "generation": 1},
            "spec": spec,
            "status": self.status,
        }

    def raw(self, name: str) -> dict[str, Any]:
        pod = self.pods[name]
        return {
            "metadata": {
                "name": name,
                "labels": {"trainrun.dev/slot": str(pod.slot)},
                "annotations": {"kubectl.kubernetes.io/default-container": "train"},
            },
            "status": {"phase": pod.phase},
        }

    def kubeconfig(self, path: Path) -> Path:
        return written_kubeconfig(path, f"http://127.0.0.1:{self.server.server_port}")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    (tmp_path / "runs").mkdir()
    cluster = Cluster(tmp_path / "runs")
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "kubeconfig")))
    monkeypatch.setattr("trainrun_operator.worlds.kubernetes.pod_logs.LOOK", 0.02)
    yield cluster
    cluster.server.shutdown()
    cluster.server.server_close()


def call(*words: str) -> Result:
    return CliRunner().invoke(trainrun, ["logs", "-n", "team", "llama", *words])


class Following:
    """`trainrun logs -f` in a thread; the test plays the cluster."""

    def __init__(self, *words: str) -> None:
        self.result: Result | None = None
        self._thread = threading.Thread(target=self._run, args=(words,), daemon=True)
        self._thread.start()

    def _run(self, words: tuple[str, ...]) -> None:
        self.result = call("-f", *words)

    def end(self) -> list[str]:
        self._thread.join(30)
        assert self.result is not None
        assert self.result.exit_code == 0, self.result.output
        return [line for line in self.result.output.splitlines() if line.startswith("[")]


def test_the_lines_of_pods_are_shown_by_attempt_and_time(cluster: Cluster) -> None:
    first = cluster.pods["llama-0-1"] = Pod(slot=0)
    first.prints("[agent] INFO order: Start", START.format(1), "[rank 0] a", "[rank 0] d")
    second = cluster.pods["llama-1-1"] = Pod(slot=1)
    second.prints(START.format(1), "[rank 1] b", "[rank 1] c token=hunter2", at=3)
    result = call()
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        "[attempt 1 rank 0] a",
        "[attempt 1 rank 0] d",
        "[attempt 1 rank 1] b",
        "[attempt 1 rank 1] c token=***",
    ]
    assert call("--rank", "1", "--tail", "1").output == "[attempt 1 rank 1] c token=***\n"
    assert len(first.asked) == 1, "whose ranks are not asked for is not read"


def test_a_log_that_lacks_its_beginning_is_of_the_present_attempt(cluster: Cluster) -> None:
    cluster.status = json_object(TrainRunStatus(phase="Running", attempt=7))
    cluster.pods["llama-0-1"] = Pod(slot=0)
    cluster.pods["llama-0-1"].prints("[rank 0] x")
    assert call().output == "[attempt 7 rank 0] x\n"


def test_lines_before_a_restart_were_shown_twice_and_last_of_all(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.status = json_object(TrainRunStatus(phase="Running", attempt=2))
    run = RunStore(open_store(cluster.storage), "llama")
    lines = tuple(LogLine(at=float(n), text=f"one {n}") for n in range(3))
    ranks = (RankLog(rank=0, lines=lines),)
    assert write_log(run, WorkerLog(attempt=1, slot=0, workers=2, ranks=ranks))
    run.write_once(layout.attempt_key(1), AttemptRecord(attempt=1, uid="u-1"))
    pods = [Pod(slot=0), Pod(slot=1)]
    for rank, pod in enumerate(pods):
        cluster.pods[f"llama-{rank}-1"] = pod
        pod.prints(START.format(1), *(f"[rank {rank}] one {n}" for n in range(3)))
        pod.prints(ENDED.format(rank), START.format(2), f"[rank {rank}] two")
    monkeypatch.setattr("trainrun_operator.cli.log_lines.cluster.MOST_LINES", 5)
    assert call().output.splitlines() == [
        "[attempt 1 rank 0] one 0",
        "[attempt 1 rank 0] one 1",
        "[attempt 1 rank 0] one 2",
        "[attempt 1 rank 1] one 1",  # which its agent has not stored yet
        "[attempt 1 rank 1] one 2",
        "[attempt 2 rank 0] two",
        "[attempt 2 rank 1] two",
    ]


@pytest.mark.slow
def test_the_end_of_what_is_there_was_all_called_the_present_attempt(cluster: Cluster) -> None:
    cluster.status = json_object(TrainRunStatus(phase="Running", attempt=2))
    pod = cluster.pods["llama-0-1"] = Pod(slot=0)
    pod.prints(START.format(1), "[rank 0] a", "[rank 0] b", START.format(2), "[rank 0] c")
    following = Following("--tail", "3")
    eventually(lambda: len(pod.asked) > 1, timeout=20, what="it is followed")
    assert (pod.asked[0]["tailLines"], pod.asked[1].get("tailLines")) == (["3"], None)
    pod.prints("[rank 0] d", ENDED.format(0))
    cluster.ends()
    assert following.end() == [
        "[attempt 1 rank 0] b",
        "[attempt 2 rank 0] c",
        "[attempt 2 rank 0] d",
    ]


@pytest.mark.slow
def test_followed_from_before_there_is_a_pod_through_breaks_and_restarts(cluster: Cluster) -> None:
    following = Following()
    one, two = Pod(slot=0), Pod(slot=1)
    one.prints(START.format(1), "[rank 0] one", "[rank 0] same second", at=1)
    cluster.pods["llama-0-1"] = one
    two.prints(START.format(1), "[rank 1] one")
    cluster.pods["llama-1-1"] = two
    eventually(lambda: one.asked and two.asked, timeout=20, what="both are followed")
    one.cut = True
    eventually(lambda: len(one.asked) > 1, timeout=20, what="it is read again")
    one.prints("[rank 0] still the same second", at=1)
    assert one.asked[1]["sinceTime"] == ["2026-11-03T09:00:01Z"]
    two.phase = "Failed"  # with its node: its agent has said nothing
    del cluster.pods["llama-1-1"]
    one.prints(ENDED.format(0), START.format(2), "[rank 0] two")
    three = Pod(slot=1)
    three.prints(START.format(2), "[rank 1] two", ENDED.format(1))
    cluster.pods["llama-1-2"] = three
    eventually(lambda: three.asked, timeout=20, what="the new one is followed")
    one.prints(ENDED.format(0))
    cluster.ends()
    lines = following.end()
    assert [line for line in lines if "rank 0]" in line] == [
        "[attempt 1 rank 0] one",
        "[attempt 1 rank 0] same second",
        "[attempt 1 rank 0] still the same second",
        "[attempt 2 rank 0] two",
    ]
    assert sorted(line for line in lines if "rank 0]" not in line) == [
        "[attempt 1 llama-1-1] -- the output of rank 1 ends here: the worker was lost, and lines "
        "that it had not sent are missing --",
        "[attempt 1 rank 1] one",
        "[attempt 2 rank 1] two",
    ]


@pytest.mark.slow
def test_lines_after_a_break_were_lost_where_the_clock_of_a_node_is_not_on_utc(
    cluster: Cluster,
) -> None:
    pod = cluster.pods["llama-0-1"] = Pod(slot=0, hours=8)
    pod.prints(START.format(1), "[rank 0] one", "[rank 0] two")
    following = Following()
    eventually(lambda: pod.asked, timeout=20, what="it is followed")
    pod.cut = True
    eventually(lambda: len(pod.asked) > 1, timeout=20, what="it is read again")
    assert pod.asked[1]["sinceTime"] == ["2026-11-03T09:00:02Z"]
    pod.prints("[rank 0] three", at=2, nanoseconds=500_000_001)
    pod.hours = 7  # its clock was set back for the winter
    pod.prints("[rank 0] four", at=3)
    pod.cut = True
    eventually(lambda: len(pod.asked) > 2, timeout=20, what="it is read a third time")
    pod.prints("[rank 0] five", ENDED.format(0), at=4)
    cluster.ends()
    assert following.end() == [
        f"[attempt 1 rank 0] {text}" for text in ("one", "two", "three", "four", "five")
    ]


@pytest.mark.slow
def test_a_word_of_the_kubelet_in_place_of_a_log_does_not_end_the_following(
    cluster: Cluster,
) -> None:
    pod = cluster.pods["llama-0-1"] = Pod(slot=0, cut=True)
    pod.lines.append(("unable", "to retrieve container logs"))
    following = Following()
    eventually(lambda: len(pod.asked) > 1, timeout=20, what="it is read again")
    assert "sinceTime" not in pod.asked[1]
    pod.prints(START.format(1), "[rank 0] one", ENDED.format(0))
    cluster.ends()
    assert following.end() == ["[attempt 1 rank 0] one"]


def test_the_end_of_what_is_there_is_of_the_present_attempt(cluster: Cluster) -> None:
    pod = cluster.pods["llama-0-1"] = Pod(slot=0)
    pod.prints(START.format(1), "[rank 0] one", "[rank 0] two")
    following = Following("--tail", "1")
    eventually(lambda: pod.asked, timeout=20, what="it is followed")
    pod.prints(ENDED.format(0))
    cluster.ends()
    assert following.end() == ["[attempt 1 rank 0] two"]


@pytest.mark.slow
def test_with_a_tail_of_nothing_only_what_comes_is_shown_and_of_the_present_attempt(
    cluster: Cluster,
) -> None:
    pod = cluster.pods["llama-0-1"] = Pod(slot=0)
    pod.prints(START.format(1), "[rank 0] one")
    following = Following("--tail", "0")
    eventually(lambda: len(pod.asked) > 1, timeout=20, what="it is followed")
    pod.prints("[rank 0] two", ENDED.format(0))
    cluster.ends()
    assert following.end() == ["[attempt 1 rank 0] two"]
