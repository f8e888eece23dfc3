"""`trainrun sweep plot`: a sweep as one page, whatever its log holds."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from os import environ
from pathlib import Path
from typing import Any

import pytest

from tests.cli.sweeping.local_sweeps import Sweeps
from tests.cli.sweeping.written_logs import ask
from tests.support.sweeps import report, told
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.sweep.records import Ask, End, Record, Reports, SweepSession, written
from trainrun.sweep.view import fold
from trainrun_operator.api.loading import load
from trainrun_operator.api.sweep.spec import TRAINSWEEP
from trainrun_operator.cli.sweeping.plot_page import page
from trainrun_operator.cli.sweeping.stored_sweep import ReadSweep
from trainrun_operator.core.sweep.config import immutable_part

SPACE: list[dict[str, Any]] = [
    {"name": "lr", "float": {"low": 1e-4, "high": 1.0, "log": True}},
    {"name": "kind", "choice": ["sgd", "</script>", "password=hunter2", True, 1]},
    {"name": "momentum", "float": {"low": 0, "high": 1}, "when": [{"name": "kind", "in": ["sgd"]}]},
]
HISTORY, CURVES, IMPORTANCES, SLICE, CONTOUR, PARALLEL = HEADS = (
    "Optimization history",
    "Intermediate values",
    "Parameter importances",
    "Slice",
    "Contour",
    "Parallel coordinates",
)
FOLDER = RunStore(open_store("file:///s"), "lr")


def asked(trial: int, **params: Any) -> Ask:
    return Ask(trial, {"lr": 0.01, "kind": "</script>", **params})


def curve(trial: int, *values: float) -> Reports:
    return Reports(tuple(report(trial, step, it) for step, it in enumerate(values, start=1)))


def ended(trial: int, value: float) -> Record:
    return told(trial, value=written(value), step=1)


@pytest.fixture
def session(sweeps: Sweeps) -> SweepSession:
    sweeps.spec = {"space": SPACE}
    spec = load(sweeps.file().read_text(), TRAINSWEEP, source="").spec
    return SweepSession(uid="me", spec=immutable_part(spec))


def drawn(session: SweepSession, *records: Record) -> str:
    """The page without plotly's script."""
    html = page(ReadSweep(folder=FOLDER, described=None, view=fold((session, *records))))
    script, _, rest = html.partition("</script></head>")
    assert len(script) > 1_000_000
    assert script.count("<script>") == 1, "once"
    return rest


def sections(html: str) -> dict[str, str]:
    found = re.findall(r"<section><h2>(.*?)</h2>(.*?)</section>", html, re.S)
    assert tuple(head for head, _ in found) == HEADS
    return dict(found)


def pictures(html: str) -> dict[str, list[dict[str, Any]]]:
    """The traces of each picture that is there."""
    found = {}
    for head, section in sections(html).items():
        if "Plotly.newPlot" in section:
            found[head], _ = json.JSONDecoder().raw_decode(section, section.index('[{"'))
        else:
            assert '<p class="dim">Not drawn: ' in section
    return found


SOME: tuple[Record, ...] = (
    *(asked(n, lr=10.0**-n) for n in range(4)),
    asked(4, kind="sgd", momentum=0.5),
    asked(5, kind="password=hunter2"),
    *(curve(n, 1.0, 0.5 + n) for n in range(3)),
    told(0, value="0.5", step=2),
    told(1, "Stopped", reason="StoppedEarly", value="1.5", step=2),
    told(2, "Errored", reason="MaxFailures", message="rank 0 <died>"),
    told(3, "Diverged", reason="NotANumber", value="nan"),
    told(5, value="7", step=2),
)


@pytest.mark.slow
def test_the_page_is_written_under_the_name_of_the_sweep_and_asks_for_nothing_else(
    sweeps: Sweeps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeps.spec = {"space": SPACE}
    file = sweeps.write(*SOME)
    monkeypatch.chdir(tmp_path)
    for where in (file, sweeps.storage / "lr"):  # the second time it is written anew
        done = ask("plot", where)
        assert (done.exit_code, done.output) == (0, "lr.html\n")
    html = (tmp_path / "lr.html").read_text()
    assert "content=\"default-src 'none'; script-src" in html, "nothing can be fetched"
    assert not re.findall(r"<(?:script|link|img)[^>]* (?:src|href)=", html)
    assert "6 trials, 2 succeeded, 1 errored, 1 diverged, 1 stopped, 1 open" in html
    assert "the smallest loss" in html
    assert "Best: trial 0 (succeeded), loss 0.5 at step 2." in html


def test_a_page_that_cannot_be_written_and_a_folder_without_a_log_are_refused(
    sweeps: Sweeps, tmp_path: Path
) -> None:
    refused = ask("plot", sweeps.write(), "-o", tmp_path / "nowhere" / "page.html")
    assert refused.exit_code == 2
    assert refused.output.startswith("error: --output ")
    assert refused.output.endswith("page.html: cannot be written: No such file or directory\n")
    assert ask("plot", tmp_path).exit_code == 2


@pytest.mark.slow
def test_without_plotly_it_is_refused_with_what_to_install(sweeps: Sweeps, tmp_path: Path) -> None:
    (tmp_path / "plotly.py").write_text("raise ImportError('not here')")
    command = [sys.executable, "-m", "trainrun_operator.cli", "sweep", "plot"]
    done = subprocess.run(
        [*command, str(sweeps.write())],
        env={**environ, "PYTHONPATH": f"{tmp_path}:{environ.get('PYTHONPATH', '')}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "error: sweep plot needs Optuna and plotly, which cannot be imported (not here): "
        'pip install "trainrun[plot]"\n'
    )
    assert not (tmp_path / "lr.html").exists()


def test_stopped_trials_count_and_those_without_a_number_do_not(session: SweepSession) -> None:
    html = drawn(session, *SOME)
    found = pictures(html)
    assert set(found) == set(HEADS)
    assert len(found[CURVES]) == 2, "a trial that has errored is in none"
    assert found[HISTORY][0]["x"] == [0, 1, 5]
    assert "Leaves out 3 trials without a value or still open." in sections(html)[HISTORY]


def test_no_text_of_a_sweep_is_a_script_or_a_secret(session: SweepSession) -> None:
    html = drawn(session, *SOME)
    assert "hunter2" not in html
    assert html.count("</script>") == len(HEADS)


@pytest.mark.parametrize(
    ("records", "there"),
    [
        ((), ()),
        ((asked(0),), ()),
        ((asked(0), curve(0, 0.5)), (CURVES,)),
        ((asked(0), ended(0, 0.5)), (HISTORY, SLICE, PARALLEL)),
        ((asked(0), told(0, "Errored", reason="NoObjective")), ()),
        ((asked(0), curve(0, math.nan, math.inf), ended(0, math.inf)), ()),
        (
            (asked(0), asked(1, lr=0.1), ended(0, 0.5), ended(1, 0.5)),
            (HISTORY, SLICE, PARALLEL),
        ),
        (
            (asked(0), asked(1, lr=0.1), ended(0, 0.5), ended(1, 0.7)),
            (HISTORY, IMPORTANCES, SLICE, PARALLEL),
        ),
    ],
    ids=["no trial", "open", "reported", "one", "no value", "not finite", "equal", "one varies"],
)
def test_what_a_picture_cannot_show_it_says_in_its_place(
    session: SweepSession, records: tuple[Record, ...], there: tuple[str, ...]
) -> None:
    assert tuple(pictures(drawn(session, *records))) == there


def test_numbers_that_a_library_cannot_draw_leave_out_that_picture_alone(
    session: SweepSession,
) -> None:
    values = (-1.7e308, 1.7e308, 5e-324, 0.0, -0.0, 1.0)
    trials = [
        (asked(n, lr=0.1 + n / 10), curve(n, it), ended(n, it)) for n, it in enumerate(values)
    ]
    found = pictures(drawn(session, *(record for trial in trials for record in trial)))
    assert {HISTORY, CURVES, SLICE} <= set(found)


@pytest.mark.slow
def test_many_trials_make_a_page_of_bounded_size_that_says_what_it_leaves_out(
    session: SweepSession,
) -> None:
    numbers = range(400)
    begun = (asked(n, lr=10 ** -(n / 100)) for n in numbers)
    curves = (curve(n, *(400.0 - n,) * 3) for n in numbers)
    html = drawn(session, *begun, *curves, *(ended(n, 400.0 - n) for n in numbers))
    assert len(html) < 500_000
    found = pictures(html)
    assert len(found[HISTORY][0]["x"]) == 400
    assert {"Trial0", "Trial399"} < {it["name"] for it in found[CURVES]}, "the best one is there"
    notes = sections(html)
    assert "Shows 100 trials of 400, evenly chosen by their numbers" in notes[CURVES]
    assert "Shows 300 trials of 400" in notes[PARALLEL]


@pytest.mark.slow
def test_contours_are_of_the_most_important_parameters(sweeps: Sweeps) -> None:
    names = [f"p{n}" for n in range(6)]
    sweeps.spec = {"space": [{"name": it, "float": {"low": 0, "high": 1}} for it in names]}
    sweeps.command = ("python", "trial.py")
    spec = load(sweeps.file().read_text(), TRAINSWEEP, source="").spec
    session = SweepSession(uid="me", spec=immutable_part(spec))
    # Each parameter goes another way through its range; the last one alone makes the value.
    trials = [
        Ask(n, {it: (n * (2 * at + 1) % 37) / 37 for at, it in enumerate(names)}) for n in range(37)
    ]
    ends = [ended(it.trial, float(it.params["p5"])) for it in trials]
    html = sections(drawn(session, *trials, *ends))[CONTOUR]
    assert "The 4 most important parameters." in html
    assert '"text":"p5"' in html


def test_the_page_says_that_a_sweep_is_over_and_why(session: SweepSession) -> None:
    assert "Its log has no end yet." in drawn(session, asked(0))
    end = End("Failed", reason="TooManyErrors", message="3 trials errored")
    assert "Failed: 3 trials errored" in drawn(session, asked(0), end)
