"""An agent reads steps from the output of real processes, and nothing in it can stop the agent."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.agent.workers import start
from trainrun.agent.output.matcher import TRIES
from trainrun.checkpoint.metrics_log import read_metrics
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.contract.answer import Exit, Hold, OutputPattern, ResolveRequest, RunSettings

if TYPE_CHECKING:
    from tests.agent.workers import Workers
    from tests.support.operator_stand_in import OperatorStandIn
    from trainrun.contract.agent_state import AgentState
    from trainrun.contract.evidence import OutputProgress

AUTO = RunSettings(output_forms=True)
NANOGPT = """
import time
for step in range({steps}):
    print(f"iter {{step}}: loss {{4 - step / 100:.4f}}, time 195.41ms, mfu 1.2%", flush=True)
{then}
"""
STAYS = "time.sleep(600)"


def patterns(*found: str) -> RunSettings:
    return RunSettings(output_patterns=tuple(OutputPattern(pattern=p) for p in found))


def output(state: AgentState) -> OutputProgress:
    assert state.output is not None
    return state.output


def test_steps_metrics_and_form_are_told_and_nothing_counts_as_reported(
    operator: OperatorStandIn, workers: Workers
) -> None:
    workers.start(NANOGPT.format(steps=50, then=STAYS), settings=AUTO)
    operator.order(start())
    state = operator.until(lambda s: s.output and s.output.step == 49)
    shown = output(state)
    assert (shown.rank, shown.form, shown.first) == (0, "nanoGPT", 0)
    assert shown.line == "iter 0: loss 4.0000, time 195.41ms, mfu 1.2%"
    assert shown.metrics == {"loss": 3.51}
    assert (state.steps, state.metrics, state.first_step) == ((None,), {}, None)
    assert shown.began is not None
    assert shown.owes is not None


def test_the_last_steps_of_a_script_that_dies_are_told_and_stored_for_curves(
    operator: OperatorStandIn, workers: Workers
) -> None:
    then = "raise SystemExit('gone')"
    worker = workers.start(NANOGPT.format(steps=300, then=then), settings=AUTO)
    operator.order(Hold(attempt=1, offer=True, resolve=ResolveRequest(attempt=1)))
    operator.until(lambda s: s.resolution)
    operator.order(start())
    state = operator.until(lambda s: s.exits and s.output and s.output.step == 299)
    assert output(state).owes is None
    operator.order(Exit(code=0))
    assert worker.code() == 0
    run = RunStore(open_store(worker.config.storage), "run")
    stored = [(record["step"], record["metrics"]) for record in read_metrics(run)]
    assert stored == [(step, {"loss": round(4 - step / 100, 4)}) for step in range(300)]


def test_nothing_is_read_unless_it_is_asked_for(
    operator: OperatorStandIn, workers: Workers
) -> None:
    workers.start(NANOGPT.format(steps=3, then=""))
    operator.order(start())
    assert operator.until(lambda s: s.exits).output is None


def test_a_flood_of_output_is_dropped_in_part_and_heartbeats_go_on(
    operator: OperatorStandIn, workers: Workers
) -> None:
    flood = """
import os, time
line = b"epoch x: something that no form knows, again and again and again and again\\n" * 800
until = time.monotonic() + 3
while time.monotonic() < until:
    os.write(1, line)
print("iter 7: loss 1.0\\niter 8: loss 0.5", flush=True)
time.sleep(600)
"""
    worker = workers.start(flood, settings=AUTO)
    operator.order(start())
    operator.until(lambda s: s.phase == "Running")
    seen = operator.until(lambda s: s.output and s.output.step == 8)
    assert output(seen).form == "nanoGPT"
    operator.order(Hold(attempt=2))
    operator.until(lambda s: s.phase == "Idle")
    assert len(worker.output) > 1e6
    worker.shows("lines of output came too fast to be read for steps")


def test_a_hostile_pattern_is_given_up_after_three_lines_and_the_others_still_count(
    operator: OperatorStandIn, workers: Workers
) -> None:
    script = f"""
import time
for _ in range({TRIES + 1}):
    print("a" * 4000, flush=True)
print("now 5 of it", flush=True)
time.sleep(600)
"""
    hostile = r"(?P<step>(a+)+)b"
    workers.start(script, settings=patterns(hostile, r"now (?P<step>\d+)"))
    operator.order(start())
    state = operator.until(lambda s: s.problems and s.output)
    [problem] = state.problems
    assert (problem.type, problem.reason) == ("OutputUnread", "PatternTooSlow")
    assert problem.message == (
        "pattern 1 of spec.progress.patterns took more than a second for a line three times and is "
        "left out until the next attempt. Write it without repetitions of repetitions, such as "
        "(a+)+"
    )
    assert (output(state).form, output(state).step) == ("pattern 2", 5)


def test_a_reader_that_dies_is_started_again_and_at_last_given_up(
    operator: OperatorStandIn, workers: Workers
) -> None:
    endless = """
import itertools, time
for step in itertools.count():
    print(f"iter {step}: loss 1.0", flush=True)
    time.sleep(0.02)
"""
    worker = workers.start(endless, settings=AUTO)
    operator.order(start())
    step, killed = -1, 0
    while killed < 4:
        state = operator.until(lambda s: s.output and (s.output.step or 0) > step)
        step = output(state).step or 0
        [reader] = readers_of(worker.process.pid)
        os.kill(reader, signal.SIGKILL)
        killed += 1
    [problem] = operator.until(lambda s: s.problems).problems
    assert (problem.type, problem.reason) == ("OutputUnread", "ReaderEnded")
    assert state.phase == "Running"


def readers_of(agent: int) -> list[int]:
    """The children of an agent that read output."""
    with open(f"/proc/{agent}/task/{agent}/children") as file:
        children = [int(pid) for pid in file.read().split()]
    return [
        pid for pid in children if b"output.matcher" in open(f"/proc/{pid}/cmdline", "rb").read()
    ]


@pytest.mark.parametrize(("rank", "slot"), [(0, 0), (1, 1)])
def test_the_first_and_the_last_rank_are_read_for_known_forms(
    operator: OperatorStandIn, workers: Workers, rank: int, slot: int
) -> None:
    workers.start(NANOGPT.format(steps=3, then=STAYS), settings=AUTO, slot=slot, workers=2)
    operator.order(start(workers=2))
    assert output(operator.until(lambda s: s.output and s.output.step == 2)).rank == rank


def test_a_pattern_is_read_from_its_rank_only(operator: OperatorStandIn, workers: Workers) -> None:
    script = "import os, time; print('at', os.environ['RANK'] + '7', flush=True); time.sleep(600)"
    rule = OutputPattern(pattern=r"at (?P<step>\d+)", rank=1)
    settings = RunSettings(output_patterns=(rule,))
    workers.start(script, settings=settings, processes_per_worker=3)
    operator.order(start(per_worker=3))
    shown = output(operator.until(lambda s: s.output))
    assert (shown.rank, shown.step) == (1, 17)


def test_a_bar_without_a_line_end_is_read_after_a_moment(
    operator: OperatorStandIn, workers: Workers
) -> None:
    bar = "\\r 32%|###2      | 19/60 [00:05<00:12,  3.29it/s, loss=nan]"
    workers.start(
        f"import time; print('{bar}', end='', flush=True); time.sleep(600)", settings=AUTO
    )
    operator.order(start())
    shown = output(operator.until(lambda s: s.output))
    assert (shown.step, shown.total, shown.metrics) == (19, 60, {"loss": {"float": "NaN"}})
