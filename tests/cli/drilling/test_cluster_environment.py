"""What a drill in a cluster asks for first, and what it rehearses there."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.cli.drills import a_file
from tests.support.kubeconfigs import written_kubeconfig
from trainrun.checkpoint.run_store import open_store
from trainrun.checkpoint.stores.store import ObjectStore
from trainrun_operator.cli.commands import trainrun
from trainrun_operator.cli.drilling import cluster_environment as ground_module
from trainrun_operator.cli.drilling.cluster_environment import IN_CLUSTER, ClusterEnvironment
from trainrun_operator.cli.drilling.runs import (
    OF_SCRIPT,
    OURS,
    DrillRun,
    fault_scenarios,
    scenarios,
)
from trainrun_operator.cli.preparation import load_file

CONTROL = DrillRun(
    ending="Stopped",
    world_size=2,
    seconds=3.0,
    committed=(10, 20, 30),
    savers=(0,),
    reported={1: {0: 31, 1: 31}},
    has_heartbeats=False,
)
UNTIL = 31


class Reviews:
    """Says what a user may do, and nothing else."""

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.asked: list[tuple[str, str]] = []
        """Method and path of each request."""
        reviews = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                reviews.asked.append(("POST", self.path.partition("?")[0]))
                sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                asked = sent["spec"]["resourceAttributes"]
                assert asked["namespace"] == "default"
                allowed = f"{asked['verb']} {asked['resource']}" not in reviews.refused
                self.send_response(201)
                self.end_headers()
                self.wfile.write(json.dumps({"status": {"allowed": allowed}}).encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def kubeconfig(self, path: Path) -> Path:
        return written_kubeconfig(path, f"http://127.0.0.1:{self.server.server_port}")


@pytest.fixture
def reviews(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reviews]:
    found = Reviews()
    monkeypatch.setenv("KUBECONFIG", str(found.kubeconfig(tmp_path / "kubeconfig")))
    yield found
    found.server.shutdown()
    found.server.server_close()


def call(file: Path, *words: str) -> Result:
    return CliRunner().invoke(trainrun, ["drill", str(file), "--cluster", *words])


def a_ground(folder: Path) -> ClusterEnvironment:
    return ClusterEnvironment(run=load_file(a_file(folder)), say=lambda _text: None)


def test_rights_that_are_missing_are_named_before_anything_is_made(
    reviews: Reviews, tmp_path: Path
) -> None:
    reviews.refused = {"create trainruns", "delete pods"}
    result = call(a_file(tmp_path))
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith(
        "error: a drill in namespace default needs rights that you do not have there: "
        "create trainruns, delete pods. Ask for them"
    )
    assert {path for _, path in reviews.asked} == {
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    }


def test_a_storage_that_cannot_be_read_from_here_is_told_before_anything_is_made(
    reviews: Reviews, tmp_path: Path
) -> None:
    result = call(a_file(tmp_path))  # its folder was never made on this machine
    assert result.exit_code == 1, result.output
    assert "A drill reads metrics and checkpoints in file://" in result.stderr
    assert "with your own credentials" in result.stderr
    assert len(reviews.asked) == 6


def test_one_client_of_the_storage_serves_all_runs(
    reviews: Reviews, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def counted(uri: str, **options: str | None) -> ObjectStore:
        opened.append(uri)
        return open_store(uri, **options)

    monkeypatch.setattr(ground_module, "open_store", counted)
    late = [tmp_path / "storage" / name / "late" for name in ("a", "b")]
    for file in late:
        file.parent.mkdir(parents=True)
        file.touch()
    environment = a_ground(tmp_path)
    environment._made += ["a", "b"]
    environment.check()
    environment.sweep()
    assert not any(file.exists() for file in late)
    assert opened == [(tmp_path / "storage").as_uri()]


def test_without_a_cluster_nothing_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    result = call(a_file(tmp_path))
    assert result.exit_code == 2, result.output
    assert "set KUBECONFIG" in result.stderr


def test_what_deleting_a_worker_cannot_show_is_not_rehearsed(tmp_path: Path) -> None:
    environment = a_ground(tmp_path)
    assert environment.names(everything=False) == IN_CLUSTER
    assert environment.names(everything=True) == (*OF_SCRIPT, *OURS)
    planned = (
        *scenarios(CONTROL, until=UNTIL, grace=30),
        *fault_scenarios(CONTROL, until=UNTIL),
    )
    told = {it.name: environment.possible(it, CONTROL, until=UNTIL) for it in planned}
    assert {name for name, it in told.items() if it.faults} == set(IN_CLUSTER)
    others = [it for name, it in told.items() if name not in IN_CLUSTER]
    assert len(others) == 7
    assert all("needs more than the right to delete pods" in it.why_not for it in others)


def test_faults_strike_as_soon_as_they_make_sense_since_steps_are_seen_late(tmp_path: Path) -> None:
    environment = a_ground(tmp_path)
    planned = scenarios(CONTROL, until=UNTIL, grace=30)
    steps = {
        it.name: it.faults[0].step
        for it in (environment.possible(scenario, CONTROL, until=UNTIL) for scenario in planned)
        if it.faults
    }
    assert steps == {"KillAfterCheckpoint": 21, "Notice": 21, "KillBeforeCheckpoint": 0}


def test_what_could_not_be_planned_stays_so(tmp_path: Path) -> None:
    environment, control = a_ground(tmp_path), replace(CONTROL, committed=())
    kill, *_ = scenarios(control, until=UNTIL, grace=30)
    assert environment.possible(kill, control, until=UNTIL) == kill
    assert "no checkpoint was committed before step 31" in kill.why_not
