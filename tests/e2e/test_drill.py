"""`trainrun drill --cluster`: a recovery rehearsed in a cluster, with the rights of its user."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.support.bed import Bed

pytestmark = pytest.mark.cluster

LONG = 900
"""Seconds: the time that a drill in a cluster takes at most by default."""


@contextmanager
def drill(bed: Bed, folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Of two workers that train for minutes; it is ended in any case."""
    document = bed.trainrun("llama", args=["--steps", 5000, "--save-every", 40], replicas=2, gpus=0)
    file = folder / "llama.yaml"
    file.write_text(yaml.safe_dump(document))
    command = [
        sys.executable,
        "-m",
        "trainrun_operator.cli",
        "drill",
        str(file),
        "--cluster",
        *words,
    ]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **bed.credentials, "KUBECONFIG": str(bed.cluster.kubeconfig)},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def names(bed: Bed, kind: str) -> list[str]:
    return [each["metadata"]["name"] for each in bed.json(kind)["items"]]


def stored(bed: Bed) -> list[str]:
    listed: dict[str, Any] = bed.s3.list_objects_v2(Bucket=bed.bucket)
    return [item["Key"] for item in listed.get("Contents", [])]


def nothing_is_left(bed: Bed) -> bool:
    return not names(bed, "trainruns") and not names(bed, "pods") and not stored(bed)


@pytest.mark.rare(
    "tests/cli/test_drill.py::test_a_sound_script_passes_and_nothing_of_the_run_is_touched"
)
def test_a_sound_script_is_fine_after_kills_and_a_notice_and_nothing_is_left(
    bed: Bed, tmp_path: Path
) -> None:
    with drill(bed, tmp_path, "--json") as process:
        out, said = process.communicate(timeout=LONG)
    assert process.returncode == 0, out + said
    told = json.loads(out)
    verdicts = {it["name"]: (it["outcome"], it["curves"]) for it in told["faults"]}
    fine = ("Fine", "Equal")
    assert verdicts == dict.fromkeys(
        ["KillAfterCheckpoint", "Notice", "KillBeforeCheckpoint"], fine
    )
    after, notice, before = told["faults"]
    assert after["resumedFrom"] == 80
    assert notice["resumedFrom"] not in (None, 40, 80), "it was saved for the notice"
    assert before["resumedFrom"] is None
    assert told["control"]["equal"]
    assert nothing_is_left(bed)


def test_a_drill_that_is_interrupted_leaves_nothing(bed: Bed, tmp_path: Path) -> None:
    with drill(bed, tmp_path) as process:
        eventually(lambda: stored(bed), timeout=120, what="it has stored something")
        (name,) = names(bed, "trainruns")
        assert name.startswith("llama-drill-")
        process.send_signal(signal.SIGTERM)
        out, said = process.communicate(timeout=LONG)
    assert (process.returncode, out) == (130, ""), said
    assert nothing_is_left(bed)
