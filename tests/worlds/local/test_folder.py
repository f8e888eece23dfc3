"""Scripts that nobody changes: their own folder survives the loss of the disk, by YAML alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.s3_server import S3Server
from tests.worlds.local.local_runs import Ended, LocalRuns

URI = "s3://bucket/runs"

FORMS: dict[str, dict[str, Any]] = {
    "place": {"resumeArgs": ["--resume", "{newest}/ckpt.bin"]},
    "rename": {"newest": "last.bin", "resumeArgs": ["--resume", "{newest}"]},
    "folders": {
        "newest": "checkpoint-*",
        "complete": ["*/state.json"],
        "resumeArgs": ["--resume", "{newest}"],
    },
    "files": {
        "newest": "*[0-9].bin",
        "complete": ["model*.bin", "opt*.bin"],
        "resumeArgs": ["--resume", "{file:model*.bin}"],
    },
}


def with_folder(runs: LocalRuns, form: str, **more: Any) -> None:
    runs.replicas, runs.script = 1, "own_saves.py"
    runs.arguments = (form,)
    runs.spec = {
        "checkpoint": {"folder": {"path": "out", "settle": "1s", **FORMS[form], **more}},
        "progress": {"output": "Auto"},
        "failurePolicy": {"maxFailures": 1},
    }


def test_workers_that_share_a_volume_resume_from_one_save(runs: LocalRuns) -> None:
    with_folder(runs, "folders", carry=False)
    runs.replicas, runs.spec["workers"] = 2, {"independentRanks": True}
    runs.env = {"LOSE": "process", "LOSE_AT": "4", "WAIT_FOR": "out/checkpoint-3/state.json"}
    ended = runs.run(json_lines=False)
    assert ended.code == 0, ended.out[-3000:] + ended.err[-2000:]
    assert begins(ended) == [0, 0, 4, 4]
    assert not [*(runs.storage / "tiny").glob("checkpoints/*")]


def test_workers_of_one_machine_need_a_folder_that_stays(runs: LocalRuns) -> None:
    with_folder(runs, "folders")
    runs.replicas = 2
    ended = runs.run(json_lines=False)
    assert ended.code != 0
    assert "all workers of this machine see one folder. Set spec.checkpoint.folder.carry: " in (
        ended.err
    )


def begins(ended: Ended) -> list[int]:
    lines = (line for line in ended.out.splitlines() if "begins at" in line)
    return [int(line.partition("begins at ")[2].split()[0]) for line in lines]


@pytest.mark.parametrize("form", FORMS)
def test_a_save_survives_the_loss_of_the_disk(runs: LocalRuns, own_s3: S3Server, form: str) -> None:
    with_folder(runs, form)
    runs.spec["storage"] = {"uri": URI, "endpointURL": own_s3.endpoint}
    stored = own_s3.data / "bucket" / "runs" / "tiny" / "checkpoints" / "*" / "manifest.json"
    runs.env = {"LOSE": "disk", "LOSE_AT": "4", "WAIT_FOR": str(stored)}
    credentials = own_s3.environment()
    del credentials["AWS_ENDPOINT_URL"]
    credentials["XDG_STATE_HOME"] = str(runs.folder / "state")
    ended = runs.run(json_lines=False, env=credentials)
    assert ended.code == 0, ended.out[-3000:] + ended.err[-2000:]
    assert begins(ended) in ([0, 1], [0, 2], [0, 3], [0, 4])
    log = (runs.folder / "out" / "log.txt").read_text().split()
    assert log[-1] == "7"
