"""The story of a run that goes on: its last chapter is still being written, in the status."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.cli.stories import a_folder, a_life, an_incident, at
from trainrun.checkpoint.agent_records import write_hang
from trainrun.checkpoint.records import AttemptRecord, HangRecord
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.contract import layout
from trainrun_operator.api.run.status import Condition, TrainRunStatus
from trainrun_operator.api.run.status_parts import EvidenceAsked, Progress
from trainrun_operator.api.run.story import Chapter
from trainrun_operator.cli.explaining.life import Life, life_of
from trainrun_operator.cli.explaining.run_report import headline, report_of
from trainrun_operator.cli.report.model import TextLine
from trainrun_operator.cli.report.page import page
from trainrun_operator.cli.report.terminal import lines
from trainrun_operator.cli.sources import ClusterSource, RunState, Source
from trainrun_operator.worlds.local.place import StatusFile, place_of

FIRST = Chapter(
    number=1,
    attempt=1,
    begun=at(0),
    workers=8,
    reports=True,
    spawned=at(0),
    first_step=at(1),
    stepped=at(3),
    reached=3,
    ended=at(4),
    end="Incident",
    incident=an_incident(rank=3),
    closed=at(4),
)
"""An attempt that failed after 4 s."""
SECOND = Chapter(
    number=2, attempt=2, begun=at(4), workers=8, reports=True, spawned=at(4), first_step=at(5)
)
"""The one after it, which trains."""


def a_live_run(
    root: Path, *stored: Chapter, chapter: Chapter, now: datetime, **fields: Any
) -> Life:
    """What is told `now` of a TrainRun with these chapters in its storage, and one in its status;
    it has made its newest step this moment."""
    a_folder(root, *stored)
    status = TrainRunStatus(
        phase="Running",
        attempt=chapter.attempt,
        chapter=chapter,
        progress=Progress(step=5_000, time=now),
    )
    status = replace(status, **fields)
    uri = root.as_uri()
    source = ClusterSource(
        name="llama",
        storage=uri,
        place=place_of(uri, "llama", environ={}),
        known=RunState(uid="u-1", status=status, leader=None),
        namespace="team",
        object_name="llama",
        per_worker=8,
    )
    return life_of(source, now=now)


def rows(life: Life) -> list[str]:
    return [
        line for line in lines(report_of(life)) if re.match(r"(attempt \d|preparing) +\|", line)
    ]


def test_the_bar_of_a_run_that_trains_for_an_hour_was_a_line_of_50_000_columns(
    tmp_path: Path,
) -> None:
    life = a_live_run(tmp_path, FIRST, chapter=SECOND, now=at(3604))
    assert rows(life) == ["attempt 1      |.", f"attempt 2      |{'=' * 56}"]
    told = list(lines(report_of(life)))
    assert max(len(line) for line in told if "file://" not in line) < 80
    scale = "               2026-11-03 09:00:00 UTC           2026-11-03 10:00:04 UTC"
    assert scale in told


def test_the_bar_of_a_live_run_begins_where_its_attempt_did(tmp_path: Path) -> None:
    failed = replace(FIRST, stepped=at(1799), ended=at(1800), closed=at(1800))
    trains = replace(SECOND, begun=at(1800), spawned=at(1800), first_step=at(1801))
    assert rows(a_live_run(tmp_path, failed, chapter=trains, now=at(3600))) == [
        f"attempt 1      |{'r' * 28}",
        f"attempt 2      |{' ' * 28}{'=' * 28}",
    ]


def test_the_page_of_a_live_run_ends_its_picture_now(tmp_path: Path) -> None:
    told = page(report_of(a_live_run(tmp_path, FIRST, chapter=SECOND, now=at(3604))))
    assert "<span>2026-11-03 09:00:00 UTC</span><span>2026-11-03 10:00:04 UTC</span>" in told
    bars = re.findall(r'<svg class="track".*?</svg>', told)
    assert [(left, round(left + width)) for left, width in map(ends, bars)] == [(0, 2), (1.1, 1000)]


def ends(bar: str) -> tuple[float, float]:
    """Where the parts of a bar begin, and their whole width, in thousandths."""
    parts = re.findall(r'x="([\d.]+)" width="([\d.]+)"', bar)
    return float(parts[0][0]) if parts else 0.0, sum(float(width) for _, width in parts)


def a_local_run(root: Path, *, locked: bool) -> Source:
    """What this machine knows of a run that trained for an hour and has not told its end."""
    a_folder(root, FIRST)
    uri = root.as_uri()
    place = place_of(uri, "llama", environ={})
    progress = Progress(step=5_000, time=at(3600))
    status = TrainRunStatus(phase="Running", attempt=2, chapter=SECOND, progress=progress)
    file = StatusFile(place.status)
    file.replace(replace(file.create({}), status=status))
    if locked:
        place.lock.write_text('{"pid": 1, "started": 1, "boot": "before", "host": "here"}')
    return Source(name="llama", storage=uri, place=place)


def test_of_a_local_run_whose_leader_was_killed_it_was_said_that_it_goes_on(
    tmp_path: Path,
) -> None:
    life = life_of(a_local_run(tmp_path, locked=True), now=at(90_000))
    assert headline(life)[0] == "Run llama was stopped after 60 min: 2 attempts, step 5000."
    assert (life.until, life.seconds["useful"]) == (at(3600), 3595.0)


def test_a_trial_which_the_process_of_its_sweep_leads_goes_on(tmp_path: Path) -> None:
    life = life_of(a_local_run(tmp_path, locked=False), now=at(3600))
    assert headline(life)[0] == "Run llama is still running after 60 min: 2 attempts, step 5000."


def test_claims_that_a_store_away_has_not_shown_were_said_to_be_damaged(tmp_path: Path) -> None:
    source = a_local_run(tmp_path, locked=False)
    run = RunStore(open_store(tmp_path.as_uri()), "llama")
    run.write_once(layout.attempt_key(1), AttemptRecord(attempt=1, uid="u"))
    story = tmp_path / "llama" / "story"
    shutil.rmtree(story)
    story.symlink_to(story)
    (remark,) = life_of(source, now=at(3600)).remarks
    assert remark.startswith("the storage cannot be read: ")


def test_of_a_run_that_hangs_it_was_said_that_it_goes_on_and_wants_a_compile_cache(
    tmp_path: Path,
) -> None:
    hung = Condition(
        type="Hung", status="True", reason="NoStep", message="no", last_transition_time=at(400)
    )
    a_folder(tmp_path, FIRST)
    told: dict[str, object] = {"rank": 0, "step": 12, "stacks": "File train.py, line 6 in load"}
    run = RunStore(open_store(tmp_path.as_uri()), "llama")
    write_hang(run, HangRecord(attempt=2, number=1, worker=0, ranks=(told,)))
    life = a_live_run(
        tmp_path,
        FIRST,
        chapter=replace(SECOND, first_step=at(54)),
        now=at(500),
        progress=Progress(step=12, time=at(60)),
        conditions=(hung,),
        evidence_asked=EvidenceAsked(attempt=2, number=1, time=at(390)),
    )
    assert headline(life)[0] == "Run llama hangs after 500 s: 2 attempts, step 12."
    assert (life.seconds["hang"], life.seconds.get("unknown")) == (440.0, None)
    report = "\n".join(lines(report_of(life)))
    assert "where the ranks were stuck:" in report
    assert "File train.py, line 6 in load" in report
    advised = report.partition("What to change:")[2]
    assert "look at the lines where the ranks are stuck; wrap what takes long" in advised
    assert "cache" not in advised
    assert report_of(life).data["chapters"][-1]["stacks"][0]["rank"] == 0  # type: ignore[index]


def test_times_that_do_not_fit_the_chapters_do_not_widen_the_picture() -> None:
    first, *rest = a_life()
    odd = replace(first, spent={"queue": 1e9})
    late = replace(rest[-1], begun=at(1e6), spent={"useful": 60.0})
    life = Life(name="llama", uri="file:///runs/llama", chapters=(odd, *rest[:-1], late))
    assert max(map(len, rows(life))) <= 16 + 56
    bars = re.findall(r'<svg class="track".*?</svg>', page(report_of(life)))
    assert len(bars) == 4
    assert all(left + width <= 1000.1 for left, width in map(ends, bars))


def test_the_newest_step_that_only_the_disks_have_stands_beside_the_checkpoints() -> None:
    status = TrainRunStatus(phase="Running", progress=Progress(step=60, time=at(6), staged=58))
    life = Life(name="llama", uri="file:///runs/llama", chapters=(SECOND,), status=status)
    section = report_of(life).sections[-1]
    assert section.title == "Checkpoints, 0 of 0 good"
    assert section.blocks == (TextLine("step 58 is on the workers' disks"),)
