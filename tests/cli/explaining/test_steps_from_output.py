"""What people and programs see of a script whose steps are read from its output."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner

from tests.cli.stories import BEGIN, a_folder, an_incident, at
from tests.cli.test_what_people_see import passed
from trainrun_operator.api.run.output import OutputSteps
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.api.run.story import Chapter
from trainrun_operator.cli import formatting
from trainrun_operator.cli.commands import trainrun
from trainrun_operator.cli.lines import JsonLines
from trainrun_operator.runtime.line_writers import BlockingWriter

SOURCE = 'form nanoGPT, line "iter 0: loss 4.2" of rank 0'
SHOWN = OutputSteps(
    text="120/500",
    step=120,
    total_steps=500,
    metrics={"loss": 0.25},
    form="nanoGPT",
    line="iter 0: loss 4.2",
    time=BEGIN,
)
FIRST = Chapter(
    number=1,
    attempt=1,
    begun=at(0),
    workers=1,
    reports=True,
    read_from=SOURCE,
    spawned=at(1),
    first_step=at(11),
    began_with=0,
    stepped=at(111),
    reached=101,
    ended=at(112),
    end="Incident",
    incident=an_incident(rank=0, message="rank 0 exited with code 1"),
    closed=at(120),
)
SECOND = replace(
    FIRST,
    number=2,
    attempt=2,
    begun=at(120),
    spawned=at(121),
    first_step=at(131),
    began_with=81,
    repeated=20,
    stepped=at(231),
    reached=181,
    ended=at(231),
    end="Succeeded",
    incident={},
    verdict="Succeeded",
    closed=at(231),
)


def test_explain_says_from_which_line_the_steps_were_read_and_how_many_were_done_again(
    tmp_path: Path,
) -> None:
    folder = str(a_folder(tmp_path / "runs", FIRST, SECOND))
    told = " ".join(CliRunner().invoke(trainrun, ["explain", folder]).output.split())
    assert "succeeded after 231 s: 2 attempts, step 181" in told
    assert told.count(f"steps are read from output, {SOURCE}") == 2
    assert "attempt 2, no checkpoint handed to it, 1 worker" in told
    assert "its output begins at step 81: 20 steps done again" in told
    assert "no steps lost" not in told
    # 100 s of the first attempt count, and 80 of the 100 steps of the second.
    assert "Goodput 77" in told


def test_status_shows_the_step_as_from_output() -> None:
    status = TrainRunStatus(attempt=1, phase="Running", output=SHOWN)
    assert formatting.step_of(status) == "120/500 from output"
    assert formatting.metrics_of(status) == "loss=0.25"


def test_lines_for_programs_keep_output_apart_from_reports() -> None:
    stream = io.StringIO()
    status = TrainRunStatus(attempt=1, phase="Running", output=SHOWN)
    JsonLines(BlockingWriter(stream)).emit(passed(status=status))
    state = json.loads(stream.getvalue())
    assert (state["step"], state["metrics"], state["posted"]) == (None, {}, None)
    assert state["output"] == {
        "step": 120,
        "totalSteps": 500,
        "metrics": {"loss": 0.25},
        "source": SOURCE,
    }
