"""How a sweep is shown: a table that fits, lines, JSON, a summary."""

from __future__ import annotations

import io
import json
import math
from typing import Any

from rich.console import Console

from tests.support.sweeps import a_search
from trainrun.sweep.view import TrialView
from trainrun_operator.api.sweep.status import (
    BestTrial,
    EndedTrial,
    TrainSweepStatus,
    TrialCounts,
)
from trainrun_operator.cli.sweeping.sweep_events import (
    SweepJson,
    SweepLines,
    SweepObserved,
    TrialEnded,
    TrialStarted,
)
from trainrun_operator.cli.sweeping.table import SweepTable, shown_rows
from trainrun_operator.cli.sweeping.trial_text import Row, outcome, parameters, summary
from trainrun_operator.cli.sweeping.views import table
from trainrun_operator.runtime.line_writers import BlockingWriter

OBJECTIVE = a_search().objective


def a_row(trial: int, state: str = "Succeeded", **changes: Any) -> Row:
    given = {"params": {"lr": 0.123456789}, "value": 0.5, "step": 10, "restarts": 0}
    return Row(trial=trial, state=state, **{**given, **changes})


def a_status(**changes: Any) -> TrainSweepStatus:
    given: dict[str, Any] = {
        "phase": "Running",
        "reason": "TrialsAtWork",
        "message": "2 trials at work",
        "trials": TrialCounts(open=2, succeeded=1, errored=1, text="2/100"),
        "best": BestTrial(trial=3, value="0.5", step=10, params={"lr": 0.123456789}),
        "active_seconds": 75,
    }
    return TrainSweepStatus(**{**given, **changes})


def test_of_many_trials_the_best_those_at_work_and_the_newest_are_shown() -> None:
    rows = tuple(a_row(n, "Running" if n in (40, 41) else "Succeeded") for n in range(100))
    shown = shown_rows(rows, best=3, most=6)
    assert [row.trial for row in shown] == [3, 40, 41, 97, 98, 99]
    assert len(shown_rows(rows[:3], best=None, most=6)) == 3


def test_the_table_fits_the_terminal_and_marks_the_best() -> None:
    console = Console(width=100, height=16, file=io.StringIO(), color_system=None)
    view = SweepTable(console, name="lr", objective=OBJECTIVE)
    rows = tuple(a_row(n, "Running" if n > 97 else "Succeeded") for n in range(100))
    view.remember(SweepObserved(status=a_status(), rows=rows))
    console.print(view.render())
    assert isinstance(console.file, io.StringIO)
    lines = [line.strip() for line in console.file.getvalue().splitlines()]
    assert len(lines) <= 16
    assert lines[0].startswith("lr  Running  2/100 ended")
    assert any(line.startswith("* 3  Succeeded   0.5    10") for line in lines), lines
    assert lines[-1].startswith("99  Running")


def test_in_a_narrow_terminal_the_parameters_are_cut_and_not_how_trials_fare() -> None:
    """State, value and step were one letter each beside long parameters."""
    console = Console(width=60, height=16, file=io.StringIO(), color_system=None)
    view = SweepTable(console, name="lr", objective=OBJECTIVE)
    params = {"lr": 0.1, "optimizer": "größe ✗", "schedule": "a" * 40, "epochs": 20}
    view.remember(SweepObserved(status=a_status(), rows=(a_row(3, params=params),)))

    console.print(view.render())

    assert isinstance(console.file, io.StringIO)
    head, line = (it.split() for it in console.file.getvalue().splitlines()[-2:])
    assert head[:5] == ["trial", "state", "loss", "step", "restarts"]
    assert line[:6] == ["*", "3", "Succeeded", "0.5", "10", "lr=0.1"]


def test_what_is_said_above_the_table_may_have_brackets() -> None:
    console = Console(width=100, file=io.StringIO(), color_system=None)
    SweepTable(console, name="lr", objective=OBJECTIVE).say("run.env[0] [/value] was changed")
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "trainrun: run.env[0] [/value] was changed\n"


def test_lines_tell_starts_and_ends_with_parameters_to_copy() -> None:
    out = io.StringIO()
    lines = SweepLines(BlockingWriter(out), objective=OBJECTIVE, color=False, verbose=False)
    params = {"lr": 0.123456789, "name": "sgd", "bias": True}
    lines.emit(TrialStarted(trial=3, params=params, again=False))
    ended = TrialView(3, params, state="Succeeded", value=0.5, step=10, restarts=2)
    lines.emit(TrialEnded(trial=ended, leads=True))
    first, second = (line.partition("s  ")[2] for line in out.getvalue().splitlines())
    assert first == "trial 3 Running: starts with lr=0.123456789 name=sgd bias=true"
    assert second == "trial 3 Succeeded: loss 0.5 at step 10; 2 restarts; the best so far"


def test_an_outcome_says_why() -> None:
    failed = TrialView(1, {}, state="Errored", reason="MaxFailures", message="rank 0\nmore")
    assert outcome(failed, OBJECTIVE) == "MaxFailures: rank 0"
    assert outcome(TrialView(1, {}, state="Skipped", reason="Said"), OBJECTIVE) == "Said"


def test_json_tells_a_trial_when_it_has_changed_and_writes_what_is_no_number_as_text() -> None:
    out = io.StringIO()
    lines = SweepJson(BlockingWriter(out))
    status = a_status()
    for value in (0.5, 0.5, math.nan):
        lines.emit(SweepObserved(status=status, rows=(a_row(0, value=value),)))
    lines.finish(status, exit_code=0)
    *rows, last = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [row["value"] for row in rows] == [0.5, "nan"]
    assert rows[0]["params"] == {"lr": 0.123456789}
    assert last["exitCode"] == 0
    assert last["status"]["activeSeconds"] == 75
    assert last["status"]["best"]["params"] == {"lr": 0.123456789}


def test_the_summary_names_the_best_what_errored_and_how_to_go_on() -> None:
    errored = EndedTrial(trial=1, state="Errored", reason="NoObjective", message="never\nsaid")
    status = a_status(phase="Suspended", last_ended=(errored,))
    lines = list(summary("lr", status, OBJECTIVE, continue_with="trainrun run s.yaml"))
    assert lines == [
        "TrainSweep lr: Suspended (TrialsAtWork): 2 trials at work",
        "  trials       2/100 ended: 1 succeeded, 1 errored, 2 open",
        "  time         75 s with trials at work",
        "  best         trial 3: loss 0.5 at step 10",
        "               lr=0.123456789",
        "  errored      trial 1: never",
        "  continue with: trainrun run s.yaml",
    ]


def test_trials_are_listed_in_columns_and_long_remarks_are_cut() -> None:
    rows = [a_row(0), a_row(10, "Errored", value=None, step=None, remark="x" * 500)]
    head, first, second = table(rows, OBJECTIVE)
    assert head.split() == ["trial", "state", "loss", "step", "restarts", "parameters"]
    assert first.split() == ["0", "Succeeded", "0.5", "10", "0", "lr=0.1235"]
    assert second.endswith("xxx...)")
    assert head.index("parameters") == first.index("lr=") == second.index("lr=")


def test_long_texts_are_cut_where_they_are_not_to_be_copied() -> None:
    assert parameters({"path": "x" * 30}) == f"path={'x' * 17}..."
    assert parameters({"path": "x" * 30}, exact=True) == f"path={'x' * 30}"
