"""`trainrun explain`: the story of a run from its folder alone, and what it advises."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.cli.stories import a_folder, a_life, an_incident, at
from trainrun.checkpoint.agent_records import write_hang
from trainrun.checkpoint.logs import LogLine, RankLog, WorkerLog, write_log
from trainrun.checkpoint.metrics_log import MetricsLog
from trainrun.checkpoint.records import AttemptRecord, HangRecord
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.contract import layout
from trainrun_operator.api.run.status import Condition, TrainRunStatus
from trainrun_operator.api.run.story import Chapter
from trainrun_operator.cli.commands import trainrun
from trainrun_operator.cli.explaining.advice import advice
from trainrun_operator.cli.explaining.life import Life
from trainrun_operator.cli.explaining.run_report import report_of
from trainrun_operator.cli.tasks.program import TaskHistory


def call(*words: str) -> Result:
    return CliRunner().invoke(trainrun, ["explain", *words])


def test_a_folder_alone_tells_what_happened_what_it_cost_and_what_to_change(tmp_path: Path) -> None:
    result = call(str(a_folder(tmp_path / "runs", *a_life())))
    assert result.exit_code == 0, result.output
    plain = " ".join(result.output.split())
    for told in (
        "Run llama succeeded after 148 min: 3 attempts, step 3000.",
        "Goodput 67.3 %: 100 min of 148 min went into steps that count.",
        "attempt 2, from step 1200 of attempt 1, 8 workers",
        "10:05:43 NodeLost of worker llama-3-1, node n7: bad batch",
        "charged: as a failure to maxFailures",
        "cost: 651 steps to be done again",
        "waited 4.0 s (Attributing: for workers that had not reported yet, or for the state of a",
        "fingerprint: NodeLost@n7",
        "image was changed from registry/llama:1 to registry/llama:2",
        "node n7 caused 2 of 2",
        "and 2 more events",
    ):
        assert told in plain, f"{told!r} is missing in:\n{result.output}"
    assert "told with the incident" not in plain
    advice = re.search(
        r"saving every \d+ min cost \d+ % rework; every \d+ s \(\d+ steps\) costs [\d.]+ %, "
        r"at [\d.]+ s a save, and a failure loses [\d.]+ s of work: with a failure every .* of "
        r"training that gains [\d.]+ % goodput",
        plain,
    )
    assert advice is not None, result.output
    assert "Young 1974" in plain


def test_a_recovery_is_told_by_its_stages_and_a_single_lost_step_as_one(tmp_path: Path) -> None:
    took = {"detect": 0.005, "import": 6.1, "firstStep": 1.7}
    life = [
        replace(it, reached=1201, incident=an_incident(stages=took)) if it.attempt == 1 else it
        for it in a_life()
    ]
    output = call(str(a_folder(tmp_path / "runs", *life))).output
    assert "stages: detect 5 ms, import 6.1 s, first step 1.7 s" in output
    assert "cost: 1 step to be done again" in output


def test_what_saves_cost_and_where_a_start_had_its_checkpoint_is_told(tmp_path: Path) -> None:
    saved = {"saves": 120, "save_seconds": 0.031, "stall_seconds": 4.0}
    via = {2: "Disks", 3: "Buddies"}
    life = [replace(it, resumed_via=via.get(it.attempt), **saved) for it in a_life()]
    folder = str(a_folder(tmp_path / "runs", *life))
    output = " ".join(call(folder).output.split())
    for line in (
        "saves: 120 checkpoints, each made its step 31 ms longer, report() waited 4.0 s for room",
        "attempt 2, from step 1200 of attempt 1 on the workers' disks, 8 workers",
        "attempt 3, from step 1800 of attempt 2 with lost parts that buddies had copied, 8 workers",
    ):
        assert line in output, output
    _, first, second, _ = json.loads(call(folder, "--json").output)["chapters"]
    assert (first["saves"], first["saveSeconds"], second["resumedVia"]) == (120, 0.031, "Disks")


def test_the_card_of_an_incident_showed_raw_python(tmp_path: Path) -> None:
    told = an_incident(
        exception=["ValueError", "Exception"],
        raisedAt="train.py:5",
        opened={"step": 40, "attempt": 1},
        stages={"detect": 0.083},
        collateral=True,
        worker="llama-0-1",
        node="llama-0-1",
    )
    life = [replace(it, incident=told) if it.attempt == 1 else it for it in a_life()]
    output = call(str(a_folder(tmp_path / "runs", *life))).output
    for line in (
        "AppError of worker llama-0-1: bad batch",
        "exception: ValueError, Exception",
        "raised at: train.py:5",
        "died while opening: step 40 of attempt 1",
        "stages: detect 83 ms",
        "collateral: yes",
    ):
        assert line in output, output


def test_no_line_is_wider_than_80_columns_and_without_a_terminal_there_is_no_color(
    tmp_path: Path,
) -> None:
    output = call(str(a_folder(tmp_path / "runs", *a_life()))).output
    # An address is not broken: it is to be copied.
    lines = [line for line in output.splitlines() if "file://" not in line]
    assert max(map(len, lines)) < 80
    assert "\x1b" not in output


def test_as_json_the_buckets_sum_to_the_time_of_the_run(tmp_path: Path) -> None:
    told = json.loads(call(str(a_folder(tmp_path / "runs", *a_life())), "--json").output)
    assert sum(told["seconds"].values()) == pytest.approx(8881)
    assert told["goodput"] == pytest.approx(told["seconds"]["useful"] / 8881)
    assert [c["lostSteps"] for c in told["chapters"]] == [0, 651, 600, 0]
    assert [a["kind"] for a in told["advice"]][:2] == ["CheckpointInterval", "Node"]
    assert told["phase"] is None


class Page(HTMLParser):
    """Fails for what a page must not have."""

    void = ("meta", "br", "!doctype")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not {name for name, _ in attrs} & {"src", "onclick", "onload"}, tag
        assert all(name != "href" or (value or "").startswith("#") for name, value in attrs)
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_nothing_and_holds_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "story.html"
    result = call(str(a_folder(tmp_path / "runs", *a_life())), "--html", str(file))
    assert result.exit_code == 0, result.output
    text = file.read_text()
    page = Page()
    page.feed(text)
    assert page.open == []
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert "http" not in text.replace("http-equiv", "")
    assert "hunter2" not in text
    assert "&lt;b&gt;batch" in text
    assert "prefers-color-scheme:dark" in text
    assert 'name="viewport"' in text


def test_a_rank_that_is_markup_is_shown_as_text_on_the_page(tmp_path: Path) -> None:
    evil = "<meta http-equiv=refresh content='0;url=//evil'>"
    told = an_incident(**dict.fromkeys(("rank", "worker", "node", "cause", "budget", evil), evil))
    first, second, *rest = a_life()
    life = (first, replace(second, incident={**told, "lastLines": [evil]}), *rest)
    file = tmp_path / "story.html"
    result = call(str(a_folder(tmp_path / "runs", *life)), "--html", str(file))
    assert result.exit_code == 0, result.output
    text = file.read_text()
    assert "<meta http-equiv=refresh" not in text
    assert "<em>rank &lt;meta http-equiv=refresh" in text


def test_a_page_tells_of_one_run_and_says_where_it_cannot_be_written(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "runs", *a_life())
    result = call(str(folder), "--html", str(tmp_path / "no" / "story.html"))
    assert result.exit_code == 2
    assert "cannot be written: No such file or directory" in result.output


def test_after_a_clock_that_jumped_a_run_that_succeeded_had_no_recorded_end(
    tmp_path: Path,
) -> None:
    days = timedelta(days=3)
    first, second, *rest = a_life()
    assert second.closed is not None
    ahead = replace(second, closed=second.closed + days, ended=second.closed + days)
    output = " ".join(call(str(a_folder(tmp_path / "runs", first, ahead, *rest))).output.split())
    assert "Run llama succeeded after" in output
    assert "! the clock was set back by 4320 min before attempt 2" in output
    set_ahead = replace(first, begun=first.begun + days, closed=first.begun + days)
    output = call(str(a_folder(tmp_path / "others", set_ahead, second, *rest))).output
    assert "Run llama succeeded after" in output


def test_a_gap_in_the_story_is_named(tmp_path: Path) -> None:
    first, _, _, last = a_life()
    output = call(str(a_folder(tmp_path / "runs", first, last))).output
    assert "chapters 2 to 3 of the story (between attempts 0 and 3)" in " ".join(output.split())


def test_attempts_of_a_version_without_a_story_are_told_by_their_claims(tmp_path: Path) -> None:
    run = RunStore(open_store(tmp_path.as_uri()), "old")
    run.write_once(layout.attempt_key(2), AttemptRecord(attempt=2, uid="u", ended="AppError: x"))
    output = call(f"{tmp_path.as_uri()}/old").output
    assert "Run old has no recorded end" in output
    assert "attempt 2, no checkpoint handed to it" in output
    assert "from scratch" not in output
    assert "the attempt before ended: AppError: x" in output


def test_a_claim_that_cannot_be_read_costs_what_the_attempt_began_from_and_nothing_else(
    tmp_path: Path,
) -> None:
    """Its attempt was passed over in silence."""
    run = RunStore(open_store(tmp_path.as_uri()), "old")
    for attempt in (1, 2):
        run.write_once(layout.attempt_key(attempt), AttemptRecord(attempt=attempt, uid="u"))
    run.store.put(run.key(layout.attempt_key(2)), b"{}")
    output = " ".join(call(f"{tmp_path.as_uri()}/old").output.split())
    assert "attempt 1, no checkpoint handed to it" in output
    assert (
        "! attempt 2: it is not known what it started from, because attempts/000002.json is damaged"
        in output
    )


def test_of_a_program_of_tasks_no_claim_says_that_an_attempt_lacked_a_checkpoint() -> None:
    life = Life(
        name="evals",
        uri="file:///runs/evals",
        chapters=(),
        attempts=(AttemptRecord(attempt=2, uid="u"),),
        tasks=TaskHistory(),
    )
    told = " ".join(str(block) for it in report_of(life).sections for block in it.blocks)
    assert "attempt 2, after the tasks that were done" in told


def test_a_chapter_of_another_version_costs_only_itself(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "runs", *a_life())
    record = json.loads((folder / "story" / "000002-0f9e8d7c.json").read_text())
    assert record["number"] == 2
    from trainrun.checkpoint.agent_records import write_story
    from trainrun.checkpoint.records import StoryRecord

    run = RunStore(open_store((tmp_path / "runs").as_uri()), "llama")
    write_story(run, StoryRecord(number=9, uid="other", run="llama", chapter={"number": "nine"}))
    output = " ".join(call(str(folder)).output.split())
    assert "chapter 9 of the story was written by another version" in output
    assert "3 attempts" in output


def test_a_run_without_incidents_gets_no_advice(tmp_path: Path) -> None:
    *_, last = a_life()
    calm = replace(last, number=1, attempt=1, resumed_from=None)
    output = call(str(a_folder(tmp_path / "runs", calm))).output
    assert "What to change: nothing that these numbers show." in output


def test_of_a_script_that_reports_nothing_it_was_said_that_it_begins_from_nothing(
    tmp_path: Path,
) -> None:
    killed = an_incident(rank=0, exitCode=137, message="rank 0 was killed by SIGKILL")
    silent = Chapter(
        number=1, attempt=2, begun=at(0), workers=1, ended=at(9), incident=killed, closed=at(9)
    )
    told = " ".join(call(str(a_folder(tmp_path / "runs", silent))).output.split())
    assert "from scratch" not in told.replace("a restart begins from scratch", "")
    assert "attempt 2, no checkpoint handed to it, 1 worker" in told
    assert "- no step was ever reported: unless the script resumes from its own folder" in told
    assert "- AppError ended 1 attempt: its own output does not show who sent SIGKILL" in told


def test_a_run_that_reports_steps_and_never_saved_is_told_how(tmp_path: Path) -> None:
    second = next(it for it in a_life() if it.attempt == 1)
    lost = replace(second, survived=None)
    told = " ".join(call(str(a_folder(tmp_path / "runs", lost))).output.split())
    assert "attempt 1, from scratch, 8 workers" in told
    assert (
        "- no checkpoint was ever committed: unless the script resumes from its own folder" in told
    )


def test_a_script_that_asks_too_seldom_is_advised_while_it_trains() -> None:
    told = Condition(
        type="SaveTooLate",
        status="True",
        reason="AsksTooSeldom",
        message="a notice of 30 s would lose 210 steps",
        last_transition_time=at(0),
    )
    life = Life(name="llama", uri="file:///runs", chapters=())
    assert advice(life) == ()
    (given,) = advice(replace(life, status=TrainRunStatus(conditions=(told,))))
    assert (given.kind, given.text) == ("SaveTooLate", "a notice of 30 s would lose 210 steps")


def test_a_script_that_reports_no_steps_has_no_goodput(tmp_path: Path) -> None:
    silent = Chapter(
        number=1,
        attempt=1,
        begun=at(0),
        workers=2,
        spawned=at(1),
        ended=at(500),
        end="Incident",
        incident=an_incident(budget="none"),
        closed=at(501),
        verdict="MaxFailuresExceeded",
    )
    output = " ".join(call(str(a_folder(tmp_path / "runs", silent))).output.split())
    assert "Goodput is not known: the script reports no steps. The run took 501 s." in output
    assert "Run llama failed (MaxFailuresExceeded)" in output
    assert "charged: to no budget" in output


def test_nothing_is_said_where_there_is_nothing(tmp_path: Path) -> None:
    result = call(f"{tmp_path.as_uri()}/other")
    assert result.exit_code == 2
    assert "the storage has nothing of it" in result.output


def test_a_name_is_looked_for_in_the_cluster_of_the_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    result = call("team/llama")
    assert result.exit_code == 2
    assert f"no cluster: {tmp_path / 'none'} does not exist; " in result.output
    missing = call("llama.yaml")
    assert "no cluster" not in missing.output


def test_a_name_with_a_storage_is_the_run_of_that_name_in_it(tmp_path: Path) -> None:
    a_folder(tmp_path / "runs", *a_life())
    result = call("llama", "--storage", (tmp_path / "runs").as_uri())
    assert result.exit_code == 0, result.output
    assert "Run llama succeeded after 148 min" in result.output


def with_extras(folder: Path) -> Path:
    """Metrics of two attempts, and the last lines of the one that failed."""
    run = RunStore(open_store(folder.parent.as_uri()), folder.name)
    for attempt in (1, 2):
        steps = range(attempt, attempt + 5)
        metrics = {"loss": 0.5, "<b>evil": 1}
        MetricsLog(attempt).write(
            run, ({"step": step, "rank": 0, "metrics": metrics} for step in steps)
        )
    for slot in (0, 1):
        lines = tuple(LogLine(at=n, text=f"{n} of {slot} <i> password=hunter2") for n in range(70))
        ranks = (RankLog(rank=slot, lines=lines, dropped=5),)
        write_log(run, WorkerLog(attempt=1, slot=slot, workers=2, ranks=ranks))
        write_log(run, WorkerLog(attempt=3, slot=slot, workers=2, ranks=ranks))
    return folder


def test_the_page_shows_curves_and_the_last_lines_of_what_failed(tmp_path: Path) -> None:
    first, second, *rest = a_life()
    failed = replace(second, incident=an_incident(rank=1, lastLines=["x"]))
    file = tmp_path / "story.html"
    folder = with_extras(a_folder(tmp_path / "runs", first, failed, *rest))
    result = call(str(folder), "--html", str(file))
    assert result.exit_code == 0, result.output
    text = file.read_text()
    page = Page()
    page.feed(text)
    assert page.open == []
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert text.count('<svg viewBox="0 0 1000 200"') == 2
    assert 'style="' not in text
    assert "<figcaption>loss</figcaption>" in text
    assert "<figcaption>&lt;b&gt;evil</figcaption>" in text
    assert '<rect class="c1" width="1" height="1"/></svg>attempt 2' in text
    targets = set(re.findall(r'href="#([^"]+)"', text))
    assert targets == {"chapter-1-0", "chapter-2-1", "chapter-3-2", "chapter-4-3"}
    assert targets <= set(re.findall(r'<section id="([^"]+)"', text))
    assert "<b>0.5</b>" in text
    assert "hunter2" not in text
    summaries = re.findall(r"<summary>(rank[^<]*)</summary>", text)
    assert summaries == [f"rank {rank}: 60 lines, 15 earlier ones left out" for rank in (1, 0)]
    assert "10 of 1 &lt;i&gt; password=***\n11 of 1" in text
    assert "\n9 of 1" not in text
    assert text.count("Last lines of its processes") == 1, "of the attempt that failed alone"


def test_metrics_in_a_hundred_thousand_lists_cost_only_themselves(tmp_path: Path) -> None:
    folder = with_extras(a_folder(tmp_path / "runs", *a_life()))
    piece = folder / "metrics" / "000001-00001.jsonl"
    piece.write_bytes(b"[" * 100_000 + b"\n" + piece.read_bytes())
    file = tmp_path / "story.html"
    result = call(str(folder), "--html", str(file))
    assert result.exit_code == 0, result.output
    assert file.read_text().count("<figure>") == 2


def test_a_page_without_metrics_and_lines_has_neither(tmp_path: Path) -> None:
    file = tmp_path / "story.html"
    call(str(a_folder(tmp_path / "runs", *a_life())), "--html", str(file))
    text = file.read_text()
    assert "<figure>" not in text
    assert "<details" not in text


def test_where_the_ranks_of_a_hang_stood_is_shown_in_text_json_and_on_the_page(
    tmp_path: Path,
) -> None:
    *life, last = a_life()
    hang = an_incident(cause="Hung", hang="OneRankAway", evidence="hangs/000002-1/")
    life = [replace(c, incident=hang) if c.incident and c.attempt == 2 else c for c in life]
    folder = a_folder(tmp_path / "runs", *life, last)
    run = RunStore(open_store((tmp_path / "runs").as_uri()), "llama")
    stack = "Current thread 0x1 (most recent call first):\n  File <data.py>, line 41 in __next__"
    told: dict[str, object] = {"rank": 3, "step": 7, "state": "S", "cpu": 0.0, "stacks": stack}
    told |= {"readBy": "faulthandler", "kernel": "read of /data/x"}
    told |= {"flightRecorder": {"file": "/tmp/nccl_trace_rank_3", "base64": "AAAA"}}
    write_hang(run, HangRecord(attempt=2, number=1, worker=1, ranks=(told,)))
    gone: dict[str, object] = {"rank": 0, "remark": "no evidence within 7 s"}
    write_hang(run, HangRecord(attempt=2, number=1, worker=0, ranks=(gone,)))
    output = call(str(folder)).output
    assert "stacks in: hangs/000002-1/" in output
    head = "rank 3: step 7, state S, 0.0 cores, read of /data/x, by faulthandler, flight recorder:"
    assert f"{head} /tmp/nccl_trace_rank_3" in output
    assert "  File <data.py>, line 41 in __next__" in output
    assert output.index("rank 0: no step, no evidence within 7 s") < output.index(head)
    chapters = json.loads(call(str(folder), "--json").output)["chapters"]
    (stacks,) = [chapter["stacks"] for chapter in chapters if chapter["stacks"]]
    assert [(rank["rank"], rank["worker"]) for rank in stacks] == [(0, 0), (3, 1)]
    assert stacks[1]["flightRecorder"] == "/tmp/nccl_trace_rank_3"
    assert call(str(folder), "--html", str(tmp_path / "page.html")).exit_code == 0
    page = (tmp_path / "page.html").read_text()
    assert "where the ranks were stuck:</p><pre>rank 0" in page
    assert "File &lt;data.py&gt;, line 41 in __next__" in page


def test_a_hang_of_which_nothing_was_stored_says_so(tmp_path: Path) -> None:
    hang = an_incident(cause="Hung", evidence="hangs/000002-1/")
    life = [replace(c, incident=hang) if c.incident else c for c in a_life()]
    output = call(str(a_folder(tmp_path / "runs", *life))).output
    assert "hangs/000002-1/: no stacks were stored" in " ".join(output.split())
