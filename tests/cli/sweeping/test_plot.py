"""`trainrun sweep plot`: a sweep as one page, whatever its log holds."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.sweeping.local_sweeps import Sweeps
from tests.cli.sweeping.written_logs import ask
from tests.support.sweeps import report, told
from trainrun.checkpoint import RunStore, open_store
from trainrun.sweep.fold import fold
from trainrun.sweep.records import Ask, End, Record, Reports, SweepSession, written
from trainrun_operator.api.loading import load
from trainrun_operator.api.sweep.resource import TRAINSWEEP
from trainrun_operator.cli.sweeping.plotting.page import page
from trainrun_operator.cli.sweeping.plotting.scales import Numbers, Options, scale_of_values
from trainrun_operator.cli.sweeping.reading import ReadSweep
from trainrun_operator.core.sweep.config import immutable_part

SPACE: list[dict[str, Any]] = [
    {"name": "lr", "float": {"low": 1e-4, "high": 1.0, "log": True}},
    {"name": "kind", "choice": ["sgd", "a<b", True]},
    {"name": "momentum", "float": {"low": 0, "high": 1}, "when": [{"name": "kind", "in": ["sgd"]}]},
]


def asked(trial: int, **params: Any) -> Ask:
    return Ask(trial, {"lr": 0.01, "kind": "a<b", **params})


def curve(trial: int, *values: float) -> Reports:
    return Reports(tuple(report(trial, step, it) for step, it in enumerate(values, start=1)))


FOLDER = RunStore(open_store("file:///s"), "lr")


@pytest.fixture
def session(sweeps: Sweeps) -> SweepSession:
    sweeps.spec = {"space": SPACE}
    spec = load(sweeps.file().read_text(), TRAINSWEEP, source="").spec
    return SweepSession(uid="me", spec=immutable_part(spec))


def drawn(session: SweepSession, *records: Record) -> str:
    return page(ReadSweep(folder=FOLDER, described=None, view=fold((session, *records))))


def pictures(html: str) -> list[ET.Element]:
    return [ET.fromstring(it) for it in re.findall(r'<svg class="picture".*?</svg>', html, re.S)]


def marks(picture: ET.Element) -> list[str]:
    return [it.attrib["href"] for it in picture.iter("use")]


SOME: tuple[Record, ...] = (
    *(asked(n, lr=10.0**-n) for n in range(4)),
    asked(4, kind="sgd", momentum=0.5),
    *(curve(n, 1.0, 0.5 + n) for n in range(3)),
    told(0, value="0.5", step=2),
    told(1, "Stopped", reason="StoppedEarly", value="1.5", step=2),
    told(2, "Errored", reason="MaxFailures", message="rank 0 <died>"),
    told(3, "Diverged", reason="NotANumber", value="nan"),
)


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
    assert "<script" not in html
    assert not re.findall(r'(src|href)="(?!#)', html), "everything stands in the page"
    assert "5 trials: 1 succeeded, 1 stopped, 1 diverged, 1 errored, 1 open" in html
    assert "the smallest loss" in html
    assert "Trial 0 (succeeded): loss 0.5 at step 2" in html


def test_a_page_that_cannot_be_written_and_a_folder_without_a_log_are_refused(
    sweeps: Sweeps, tmp_path: Path
) -> None:
    refused = ask("plot", sweeps.write(), "-o", tmp_path / "nowhere" / "page.html")
    assert refused.exit_code == 2
    assert refused.output.startswith("error: --output ")
    assert refused.output.endswith("page.html: cannot be written: No such file or directory\n")
    assert ask("plot", tmp_path).exit_code == 2


def test_every_trial_has_a_mark_of_its_state_and_a_title_that_tells_of_it(
    session: SweepSession,
) -> None:
    history, curves, parallel, *slices = pictures(drawn(session, *SOME))
    assert sorted(marks(history)) == ["#Diverged", "#Errored", "#Stopped", "#best"]
    assert sorted(marks(curves)) == ["#Errored", "#Stopped", "#best"]
    lines = list(parallel.iter("path"))
    assert lines[-1].attrib["class"] == "trial best", "above all others"
    assert len(lines) == 5
    titles = [it.text or "" for it in history.iter("title")]
    assert "trial 2 Errored: MaxFailures: rank 0 <died>\nlr=0.01 kind=a<b" in titles
    assert [len(marks(it)) for it in slices] == [5, 5, 1], "momentum is in one trial alone"


def test_axes_have_names_and_round_numbers_or_the_options(session: SweepSession) -> None:
    *_, lr, kind, _ = pictures(drawn(session, *SOME))
    assert {"0.0001", "0.001", "0.01", "0.1", "1", "lr", "loss"} <= {it.text for it in lr.iter()}
    assert {"sgd", "a<b", "true", "kind"} <= {it.text for it in kind.iter()}


@pytest.mark.parametrize(
    "records",
    [
        (),
        (asked(0),),
        (asked(0), curve(0, 0.5)),
        (asked(0), told(0, value="0.5", step=1)),
        (asked(0), told(0, "Errored", reason="NoObjective")),
        (asked(0), curve(0, math.nan, math.inf), told(0, value="inf", step=2)),
        (
            *(asked(n) for n in range(6)),
            *(curve(n, it) for n, it in enumerate((-1.7e308, 1.7e308, 5e-324, 0.0, -0.0, 1.0))),
        ),
    ],
    ids=["no trial", "open", "reported", "one", "no value", "not finite", "extreme"],
)
def test_whatever_a_log_holds_places_are_numbers(
    session: SweepSession, records: tuple[Record, ...]
) -> None:
    for picture in pictures(drawn(session, *records)):
        for it in picture.iter():
            places = " ".join(it.attrib.get(name, "") for name in ("x", "y", "y1", "x1", "d"))
            assert not re.search("nan|inf", places), ET.tostring(it)


def test_a_value_that_is_far_from_all_others_does_not_crush_them(session: SweepSession) -> None:
    values = [0.1, 0.2, 0.3, 0.4, 1e9]
    ended = [told(n, value=written(it), step=1) for n, it in enumerate(values)]
    html = drawn(session, *(asked(n) for n in range(5)), *ended)
    assert "The worst values of 1 trial lie far beyond the axis, and are drawn at its end." in html
    axis = scale_of_values(values, best=0.1, goal="minimize")
    assert axis == Numbers(0.1, 0.4)
    assert axis.at(1e9) == 1.0
    upward = scale_of_values([-it for it in values], best=-0.1, goal="maximize")
    assert upward == Numbers(-0.4, -0.1)
    assert scale_of_values([1.0, 2.0, 3.0], best=0.1, goal="minimize") == Numbers(0.1, 3.0)


def test_a_thousand_trials_make_a_page_of_bounded_size_that_says_what_it_leaves_out(
    session: SweepSession,
) -> None:
    records = [it for n in range(1000) for it in (asked(n), curve(n, *(float(n),) * 9))]
    ended = (told(n, value=written(float(n)), step=9) for n in range(1000))
    html = drawn(session, *records, *ended)
    assert len(html) < 1_500_000
    assert "100 of 1,000 trials are drawn, evenly chosen by their numbers" in html
    history, curves, *_ = pictures(html)
    assert len(marks(history)) == 1000
    assert len(marks(curves)) == 100
    assert "#best" in marks(curves)


def test_the_page_says_that_a_sweep_is_over_and_why(session: SweepSession) -> None:
    assert "Not over yet" in drawn(session, asked(0))
    end = End("Failed", reason="TooManyErrors", message="3 trials errored")
    html = drawn(session, asked(0), end)
    assert '<header class="bad">' in html
    assert "Failed: 3 trials errored" in html


@pytest.mark.parametrize(
    ("scale", "ticks"),
    [
        (Numbers(0.0, 1.0), "0 0.2 0.4 0.6 0.8 1"),
        (Numbers(-0.3, 0.25), "-0.2 0 0.2"),
        (Numbers(1, 3, whole=True), "1 2 3"),
        (Numbers(0, 2_000_000, whole=True), "0 500,000 1,000,000 1,500,000 2,000,000"),
        (Numbers(1e-5, 0.1, log=True), "1e-05 0.0001 0.001 0.01 0.1"),
        (Numbers(8, 128, log=True), "10 20 50 100"),
        (Numbers(3, 4, log=True), "3 4"),
        (Numbers(7.0, 7.0), "7"),
        (Options(tuple(range(12))), "0 2 4 6 8 10"),
    ],
)
def test_numbers_beside_an_axis_are_few_and_round(scale: Numbers | Options, ticks: str) -> None:
    found = scale.ticks(6)
    assert " ".join(text for _, text in found) == ticks
    shares = [share for share, _ in found]
    assert shares == sorted(shares)
    assert all(0 <= it <= 1 for it in shares)


def test_true_and_1_have_places_of_their_own() -> None:
    options = Options((1, True))
    assert (options.at(1), options.at(True)) == (0.25, 0.75)
    assert options.at("1") is None


def test_a_trial_that_began_again_is_drawn_with_what_it_reported_first(
    session: SweepSession,
) -> None:
    again = replace(report(0, 1, 9.0), attempt=2, resumed=1, seq=1, step=2)
    html = drawn(session, asked(0), curve(0, 3.0, 2.0, 1.0), Reports((again,)))
    (line,) = (it for it in pictures(html)[0].iter("path"))
    assert line.attrib["d"].count("L") == 3
