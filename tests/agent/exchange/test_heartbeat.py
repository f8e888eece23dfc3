"""The exchange with the operator, in good times and bad."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.agent.workers import start
from tests.runtime.states import a_state
from tests.support.eventually import eventually
from trainrun.agent.exchange import heartbeat
from trainrun.agent.exchange.http import HttpClient
from trainrun.contract import variables
from trainrun.contract.agent_config import AgentConfig, BadConfig, StorageConfig
from trainrun.contract.agent_state import AgentState
from trainrun.contract.answer import Answer, Exit, Hold, OpenStep, PeerSource
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.wire import LARGEST_HEARTBEAT

if TYPE_CHECKING:
    from tests.agent.workers import Workers
    from tests.support.operator_stand_in import OperatorStandIn


def test_the_first_heartbeat_says_who_it_is_and_shows_the_token(
    operator: OperatorStandIn, workers: Workers
) -> None:
    workers.start("pass", slot=2, token="secret", node="node-7", created_for=4)
    state = operator.until(lambda s: True, worker="run-2-1")
    assert (state.run, state.run_uid, state.slot, state.node) == ("run", "uid-1", 2, "node-7")
    assert (state.created_for, state.phase, state.attempt) == (4, "Idle", 0)
    assert operator.tokens == {"Bearer secret"}


def test_an_answer_that_was_seen_is_repeated_in_the_next_heartbeat(
    operator: OperatorStandIn, workers: Workers
) -> None:
    workers.start("pass")
    answer = Answer(order=Hold(attempt=1), poll=2.0)
    operator.until(lambda s: s.seen == answer.digest)


@pytest.mark.case("operator", "The operator is down")
@pytest.mark.parametrize("status", [503, 500, 409])
@pytest.mark.slow
def test_training_goes_on_while_the_operator_refuses_and_news_are_told_later(
    operator: OperatorStandIn, workers: Workers, status: int
) -> None:
    worker = workers.start(
        "import trainrun,time,os\n"
        "trainrun.report(step=1)\n"
        "while not os.path.exists('go'): time.sleep(.01)\n"
        "trainrun.report({'loss': 2}, step=2); print('two', flush=True)"
    )
    operator.order(start())
    operator.until(lambda s: s.steps == (1,))
    operator.status = status
    (workers.folder / "go").touch()
    worker.shows("two")
    before = operator.requests
    eventually(lambda: operator.requests > before, what="it keeps asking")
    operator.status = 200
    state = operator.until(lambda s: s.exits)
    assert state.steps == (2,)
    assert state.metrics == {"loss": 2}


def test_a_poll_ends_before_the_time_that_the_operator_gives_it(
    operator: OperatorStandIn, workers: Workers
) -> None:
    """At a third of the heartbeat timeout the operator begins to look at the agent's node."""
    workers.start("pass")
    eventually(lambda: len(operator.waits) > 4, what="it polls")
    assert 8.0 <= operator.waits[0] <= 9.5
    told = [wait for wait in operator.waits if wait < 8.0]
    assert len(told) > 2
    assert all(1.6 <= wait <= 1.9 for wait in told)
    assert len(set(told)) > 1, "else a hand-over brings all together"


@pytest.mark.slow
def test_steps_are_told_as_seldom_as_the_operator_asks_and_an_exit_at_once(
    operator: OperatorStandIn, workers: Workers
) -> None:
    workers.start(
        "import trainrun, time, os\n"
        "trainrun.report(step=1)\n"
        "while not os.path.exists('go'): time.sleep(.01)\n"
        "trainrun.report(step=2)\n"
        "time.sleep(2.5)  # the agent ticks each second\n"
        "trainrun.report(step=3)"
    )
    operator.also(order=start(), poll=60.0, progress=60.0)
    operator.until(lambda s: s.steps == (1,))
    (workers.folder / "go").touch()
    operator.until(lambda s: s.exits)
    told = [AgentState.from_json(body) for body in operator.bodies]
    assert {s.steps for s in told if not s.exits} == {(), (None,), (1,)}
    assert told[-1].steps == (3,)


OLD_LIBRARY = """
import json, os, socket
stream = socket.socket(socket.AF_UNIX)
stream.connect(os.environ["TRAINRUN_SOCKET"])
def tell(**message): stream.sendall(json.dumps(message).encode() + b"\\n")
tell(type="hello", rank=0, pid=os.getpid())
tell(type="report", step=1, metrics={"loss": 1.0, "samples": "x" * 5_000_000})
"""
"""As the library was before it bounded metrics."""


def test_a_metric_of_5_mb_fails_no_run_and_is_told(
    operator: OperatorStandIn, workers: Workers
) -> None:
    operator.takes = LARGEST_HEARTBEAT
    workers.start(OLD_LIBRARY)
    operator.order(start())
    state = operator.until(lambda s: s.exits)
    assert (state.exits[0].code, state.steps, state.metrics) == (0, (1,), {})
    assert [(p.type, p.reason) for p in state.problems] == [("HeartbeatTooLarge", "Shortened")]
    assert "left out: metrics." in state.problems[0].message


@pytest.mark.case("script", "A worker's state is larger than a heartbeat")
def test_a_heartbeat_that_is_refused_for_its_size_is_sent_again_with_less(
    operator: OperatorStandIn, workers: Workers
) -> None:
    """A proxy may take less than the operator."""
    operator.takes = 40_000
    workers.start(
        "import trainrun\ntrainrun.report({f'{i:03d}': 'x' * 400 for i in range(150)}, step=1)"
    )
    operator.order(start())
    state = operator.until(lambda s: s.exits)
    assert (state.exits[0].code, state.steps, state.metrics) == (0, (1,), {})
    assert "left out: metrics." in state.problems[0].message


def test_an_operator_that_comes_later_is_found(operator: OperatorStandIn, workers: Workers) -> None:
    worker = workers.start("pass", operator_url="http://127.0.0.1:9")
    worker.shows("the operator cannot be reached")
    assert worker.process.poll() is None


@pytest.mark.slow
def test_the_same_answer_again_changes_nothing(operator: OperatorStandIn, workers: Workers) -> None:
    worker = workers.start("print('hello')")
    operator.order(start())
    operator.until(lambda s: s.exits)
    seen = operator.requests
    operator.order(start())
    eventually(lambda: operator.requests > seen + 1)
    assert worker.output.count("hello") == 1
    assert worker.output.count("order:") <= 2  # the first Hold, the Start


def test_an_offered_port_stays_the_same_while_it_is_asked_for_and_is_new_for_the_next_attempt(
    operator: OperatorStandIn, workers: Workers
) -> None:
    workers.start("pass")
    operator.order(Hold(attempt=1, offer=True))
    first = operator.until(lambda s: s.offer).offer
    operator.also(steps=(OpenStep(step=1),))
    again = operator.until(lambda s: s.seen == operator.digest(s.worker)).offer
    assert first == again
    operator.order(Hold(attempt=2, offer=True))
    second = operator.until(lambda s: s.offer and s.offer.attempt == 2).offer
    assert second is not None
    assert second.address == "127.0.0.1"


def test_an_exit_order_ends_the_agent_with_its_code_and_stops_the_processes(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start("import time; time.sleep(600)")
    operator.order(start())
    operator.until(lambda s: s.phase == "Running")
    operator.order(Exit(code=7))
    assert worker.code() == 7
    last = operator.state()
    assert last is not None
    assert [end.ordered for end in last.exits] == [True]
    assert not (workers.storage / "run/finished.json").exists()


@pytest.mark.slow
def test_a_missing_configuration_is_a_clear_error() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trainrun.agent"],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name != variables.AGENT_CONFIG},
    )
    assert done.returncode == 2
    assert "TRAINRUN_AGENT_CONFIG is not set" in done.stderr


def test_what_a_pod_knows_only_when_it_runs_overrides_the_configuration() -> None:
    written = AgentConfig(
        run="run", run_uid="uid-1", slot=0, worker="run-0-1", operator_url="", directory="/d",
        cache="/c", storage=StorageConfig(uri="file:///s", run_name="run"), node="old",
    )  # fmt: skip
    environ = {
        variables.AGENT_CONFIG: written.to_json(),
        "TRAINRUN_POD_IP": "10.0.0.7",
        "TRAINRUN_NODE_NAME": "node-7",
    }
    read = AgentConfig.read(environ, ["--", "python", "train.py", "--", "-x"])
    assert read == replace(
        written, address="10.0.0.7", node="node-7", command=("python", "train.py", "--", "-x")
    )
    assert AgentConfig.read({variables.AGENT_CONFIG: written.to_json()}, []) == written


def test_an_agent_knows_the_parameters_of_its_trial_from_its_pod_or_its_configuration() -> None:
    trial = {"TRAINRUN_TRIAL": "3", "TRAINRUN_PARAMS": '{"lr": 0.1}'}
    written = AgentConfig(
        run="run", run_uid="uid-1", slot=0, worker="run-0-1", operator_url="", directory="/d",
        cache="/c", storage=StorageConfig(uri="file:///s", run_name="run"),
    )  # fmt: skip
    pod = {variables.AGENT_CONFIG: written.to_json()}
    assert AgentConfig.read({**pod, **trial}, []).params == '{"lr": 0.1}'
    local = {variables.AGENT_CONFIG: replace(written, env=trial).to_json()}
    assert AgentConfig.read(local, []).params == '{"lr": 0.1}'
    # Parameters that a user hands to a run are no trial's: they may be edited.
    assert AgentConfig.read({**pod, "TRAINRUN_PARAMS": "{}"}, []).params == ""


def test_arguments_that_are_no_command_are_a_clear_error() -> None:
    environ = {variables.AGENT_CONFIG: "{}"}
    with pytest.raises(BadConfig, match="TRAINRUN_AGENT_CONFIG cannot be read: AgentConfig: field"):
        AgentConfig.read(environ, ["--", "python"])
    written = AgentConfig(
        run="run", run_uid="uid-1", slot=0, worker="run-0-1", operator_url="", directory="/d",
        cache="/c", storage=StorageConfig(uri="file:///s", run_name="run"),
    )  # fmt: skip
    with pytest.raises(BadConfig, match=r"unexpected argument '-x'; write the training command"):
        AgentConfig.read({variables.AGENT_CONFIG: written.to_json()}, ["-x"])


def test_the_secret_of_a_source_is_carried_but_never_shown() -> None:
    order = start(resume=CheckpointId(attempt=1, step=5))
    order = replace(order, source=PeerSource(address="10.0.0.7:40000", secret="s3cret"))
    answer = Answer(order=order)
    assert Answer.from_json(answer.to_json()) == answer
    assert "s3cret" not in str(answer)


def test_an_answer_that_says_more_than_an_agent_knows_is_carried_out(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start("pass")
    operator.text = json.dumps(
        {
            "version": 2,
            "order": {"kind": "Exit", "code": 1, "farewell": "see you"},
            "warm": {"spares": [1, 2]},
        }
    )
    assert worker.code() == 1


async def told_at_the_end(
    operator: OperatorStandIn, monkeypatch: pytest.MonkeyPatch, *places: str, answers: int
) -> list[str]:
    """Why a worker ends that tries these places in turn, when so many more answers have come."""
    monkeypatch.setattr(heartbeat, "REFUSED_SECONDS", 0.2)
    for pause in ("UNWANTED_PAUSE", "FIRST_PAUSE", "LONGEST_PAUSE"):
        monkeypatch.setattr(heartbeat, pause, 0.05)
    ways, told = itertools.cycle(places), list[str]()
    beats = heartbeat.Heartbeat(
        connect=lambda _: HttpClient(next(ways)),
        state=a_state,
        apply=lambda _: False,
        replaced=told.append,
    )
    beats.start()
    before = operator.requests
    while operator.requests < before + answers:
        await asyncio.sleep(0.05)
    await beats.stop()
    return told


@pytest.mark.case("strangers", "A TrainRun is deleted with --cascade=orphan")
@pytest.mark.parametrize(("status", "ends"), [(403, True), (401, False)])
async def test_an_agent_that_is_none_of_the_operators_workers_for_minutes_ends_and_says_so(
    status: int, ends: bool, operator: OperatorStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has removed its seal, or has deleted the TrainRun with --cascade=orphan."""
    operator.status = status
    told = await told_at_the_end(operator, monkeypatch, operator.url, answers=12)
    assert bool(told) == ends


async def test_an_outage_is_not_part_of_the_minutes_for_which_an_agent_is_refused(
    operator: OperatorStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three refusals ended a worker, and between them no operator was there for five minutes."""
    operator.status = 403
    places = (operator.url, "http://127.0.0.1:1")
    assert await told_at_the_end(operator, monkeypatch, *places, answers=8) == []


async def test_an_agent_that_is_soon_taken_for_lost_does_not_pause_for_long() -> None:
    """Pauses of five seconds cost a worker with a timeout of ten: the next leader had begun between
    two tries, and did not hear it."""
    tries = 0

    def connect(_way: str) -> HttpClient:
        nonlocal tries
        tries += 1
        return HttpClient("http://127.0.0.1:1")

    beats = heartbeat.Heartbeat(
        connect=connect, state=a_state, apply=lambda _: False, heartbeat_timeout=0.3
    )
    beats.start()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(20):
            while tries < 20:
                await asyncio.sleep(0.05)
    await beats.stop()
    assert tries >= 20, "of pauses of up to five seconds there is room for six or so"
