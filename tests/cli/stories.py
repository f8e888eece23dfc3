"""Runs whose story lies in a folder, and nothing else of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from trainrun.checkpoint.agent_records import write_story
from trainrun.checkpoint.records import StoryRecord
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.run.story import Chapter, Note, chapter_object
from trainrun_operator.core.run.times import divided

BEGIN = datetime(2026, 11, 3, 9, 0, tzinfo=UTC)

FACTS = {"image": "registry/llama:1", "template": "aaa", "replicas": "8", "maxFailures": "5"}


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def an_incident(**fields: Any) -> dict[str, Any]:
    told = {"cause": "AppError", "budget": "failures", "counted": True, "message": "bad batch"}
    return {**told, **fields}


def a_folder(root: Path, *chapters: Chapter, name: str = "llama", generation: int = 1) -> Path:
    """The folder of a run with these chapters, in this generation of it."""
    root.mkdir(parents=True, exist_ok=True)
    run = RunStore(open_store(root.as_uri()), name, generation)
    for chapter in chapters:
        assert chapter.closed is not None
        whole = replace(chapter, spent=divided(chapter, chapter.closed))
        record = StoryRecord(
            number=chapter.number, uid="0f9e-8d7c", run=name, chapter=chapter_object(whole)
        )
        assert write_story(run, record)
    return root / name


def a_life() -> tuple[Chapter, ...]:
    """Three attempts of 8 workers; node n7 has ended two, and the third has a new image."""
    started: dict[str, Any] = {"workers": 8, "world_size": 64, "reports": True, "facts": FACTS}
    return (
        Chapter(
            number=1,
            attempt=0,
            begun=at(0),
            waits={"Unschedulable": 180.0, "Gathering": 9.0},
            closed=at(189),
        ),
        Chapter(
            number=2,
            attempt=1,
            begun=at(189),
            **started,
            spawned=at(190),
            rendezvous_seconds=20,
            load_seconds=4,
            first_step=at(240),
            stepped=at(3940),
            reached=1851,
            stall_seconds=30,
            ended=at(3943),
            end="Incident",
            waits={"Attributing": 4.0, "Flushing": 6.0},
            notes=(
                Note(time=at(3943), reason="NodeLost", message="told with the incident"),
                Note(time=at(3944), reason="FlushGivenUp", message="step 1300"),
            ),
            dropped_notes=2,
            incident=an_incident(
                cause="NodeLost", node="n7", worker="llama-3-1", fingerprint="NodeLost@n7"
            ),
            survived=1200,
            closed=at(3953),
        ),
        Chapter(
            number=3,
            attempt=2,
            begun=at(3953),
            **started,
            resumed_from=CheckpointId(attempt=1, step=1200),
            spawned=at(3954),
            first_step=at(4000),
            stepped=at(6400),
            reached=2400,
            ended=at(6401),
            end="Incident",
            waits={"BackingOff": 12.0},
            incident=an_incident(
                node="n7",
                rank=2,
                worker="llama-0-1",
                detectSeconds=1.5,
                lastLines=["ValueError: bad <b>batch</b> password=hunter2"],
            ),
            survived=1800,
            closed=at(6413),
        ),
        Chapter(
            number=4,
            attempt=3,
            begun=at(6413),
            **{**started, "facts": {**FACTS, "image": "registry/llama:2", "template": "bbb"}},
            resumed_from=CheckpointId(attempt=2, step=1800),
            spawned=at(6414),
            first_step=at(6480),
            stepped=at(8880),
            reached=3000,
            ended=at(8881),
            end="Succeeded",
            verdict="Succeeded",
            survived=3000,
            closed=at(8881),
        ),
    )
