"""An agent reads steps from the output of real processes, and nothing in it can stop the agent."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import pytest

from tests.agent.workers import start
from trainrun.agent.output.matcher import TRIES
from trainrun.agent.output.reading import STARTS, OutputReading, reading_of
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


def patterns(*found: str, forms: bool = False) -> RunSettings:
    rules = tuple(OutputPattern(pattern=p) for p in found)
    return RunSettings(output_forms=forms, output_patterns=rules)


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
    run = RunStore(open_store(f"file://{workers.storage}"), "run")
    stored = [(record["step"], record["metrics"]) for record in read_metrics(run)]
    assert stored == [(step, {"loss": round(4 - step / 100, 4)}) for step in range(300)]


def test_nothing_is_read_unless_it_is_asked_for(
    operator: OperatorStandIn, workers: Workers
) -> None:
    workers.start(NANOGPT.format(steps=3, then=""))
    operator.order(start())
    assert operator.until(lambda s: s.exits).output is None


@pytest.fixture
async def reading() -> AsyncIterator[OutputReading]:
    """Reads rank 0, in known forms and by a hostile pattern."""
    found = reading_of(
        patterns(r"(?P<step>(a+)+)b", r"now (?P<step>\d+)", forms=True), (0,), 1,
        record=lambda _step, _metrics: None, news=lambda: None,
    )  # fmt: skip
    found.limit = 0.05
    found.start(time.monotonic())
    yield found
    found.close()


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def step_of(reading: OutputReading) -> int | None:
    progress = reading.progress(time.monotonic())
    return None if progress is None else progress.step


async def test_a_hostile_pattern_is_given_up_after_three_lines_and_the_others_still_count(
    reading: OutputReading,
) -> None:
    tap = reading.tap(0)
    assert tap is not None
    tap((b"a" * 4000 + b"\n") * (TRIES + 50) + b"now 5 of it\n")
    await until(lambda: step_of(reading) == 5)
    assert reading.problem is not None
    assert (reading.problem.type, reading.problem.reason) == ("OutputUnread", "PatternTooSlow")
    assert reading.problem.message == (
        "pattern 1 of spec.progress.patterns took more than a second for a line three times and is "
        "left out until the next attempt. Write it without repetitions of repetitions, such as "
        "(a+)+"
    )


async def test_a_flood_is_dropped_in_part_and_counted_and_never_waited_for(
    reading: OutputReading,
) -> None:
    tap, piece = reading.tap(0), b"something that no form knows, again and again\n" * 1400
    assert tap is not None
    begun, size = time.process_time(), 0
    while size < 100e6:  # a second of 100 MB/s
        tap(piece)
        size += len(piece)
        await asyncio.sleep(0)
    assert time.process_time() - begun < 1.0
    assert 0 < reading.dropped < size / 46
    while step_of(reading) != 7:
        tap(b"iter 7: loss 1.0\n")
        await asyncio.sleep(0.02)


async def test_a_process_that_dies_is_started_again_and_at_last_given_up(
    reading: OutputReading,
) -> None:
    tap = reading.tap(0)
    assert tap is not None
    for step in range(STARTS):
        while step_of(reading) != step:
            tap(f"\niter {step}: loss 1.0\n".encode())
            await asyncio.sleep(0.01)
        killed = reading.pid
        os.kill(killed, signal.SIGKILL)
        while reading.pid == killed:
            await asyncio.sleep(0.01)
    assert reading.problem is not None
    assert (reading.problem.type, reading.problem.reason) == ("OutputUnread", "ReaderEnded")
    assert reading.problem.message == (
        "the process that reads steps from output ended 4 times; steps are not read until the next "
        "attempt. Look for a pattern that takes long, or for a lack of memory"
    )
    tap(b"iter 99: loss 1.0\n")
    assert step_of(reading) == STARTS - 1


def test_known_forms_are_looked_for_on_the_first_and_the_last_rank() -> None:
    def read_by(*ranks: int) -> list[int]:
        found = reading_of(AUTO, ranks, 8, record=lambda _step, _metrics: None, news=lambda: None)
        return list(found.patterns)

    assert (read_by(0, 1, 2, 3), read_by(4, 5, 6, 7), read_by(2, 3)) == ([0], [7], [])


def test_a_pattern_is_read_from_its_rank_only(operator: OperatorStandIn, workers: Workers) -> None:
    script = "import os, time; print('at', os.environ['RANK'] + '7', flush=True); time.sleep(600)"
    rule = OutputPattern(pattern=r"at (?P<step>\d+)", rank=1)
    settings = RunSettings(output_patterns=(rule,))
    workers.start(script, settings=settings, processes_per_worker=3)
    operator.order(start(per_worker=3))
    shown = output(operator.until(lambda s: s.output))
    assert (shown.rank, shown.step) == (1, 17)


async def test_a_bar_without_a_line_end_is_read_after_a_moment(reading: OutputReading) -> None:
    tap = reading.tap(0)
    assert tap is not None
    tap("\r 32%|███▏      | 19/60 [00:05<00:12,  3.29it/s, loss=nan]".encode())
    await until(lambda: reading.progress(0.0))
    shown = reading.progress(0.0)
    assert shown is not None
    assert (shown.step, shown.total, shown.metrics) == (19, 60, {"loss": {"float": "NaN"}})
