"""What the ranks of an attempt know and nobody else: it lies around nowhere."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

from tests.support.eventually import eventually
from tests.worlds.local.local_runs import LocalRuns
from trainrun_operator.runtime.agents import attempt_key


def encoded(secret: bytes) -> tuple[bytes, ...]:
    return secret, secret.hex().encode(), base64.b64encode(secret).rstrip(b"=")


def test_the_key_of_an_attempt_is_in_no_status_environment_log_or_store(runs: LocalRuns) -> None:
    runs.script, runs.spec = "keyed.py", {"failurePolicy": {"maxFailures": 2}}
    driver = runs.start(env={"TRAINRUN_LOG_LEVEL": "DEBUG"})
    told, shown = {}, b""
    for attempt in "12":
        names = [f"{attempt}-{rank}" for rank in range(2)]
        eventually(lambda: all((runs.journal / it).exists() for it in names), timeout=60)  # noqa: B023
        told[attempt] = {(runs.journal / it).read_text() for it in names}
        for pid in {*runs.our_processes(), driver.process.pid}:
            shown += (Path(f"/proc/{pid}/environ")).read_bytes()
            shown += (Path(f"/proc/{pid}/cmdline")).read_bytes()
        (runs.journal / f"seen-{attempt}").touch()
    ended = driver.end()
    assert ended.code == 0, ended.out[-3000:]

    path = runs.state / "secret"
    secret = path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    uid = json.loads((runs.state / "status.json").read_bytes())["uid"]
    keys = [attempt_key(secret, run_uid=uid, attempt=attempt) for attempt in (1, 2)]
    digests = [hashlib.sha256(bytes.fromhex(key)).hexdigest() for key in keys]
    assert told == {"1": {digests[0]}, "2": {digests[1]}}
    files = [it for it in runs.folder.rglob("*") if it.is_file() and it != path]
    assert {"000000002.json", "status.json", "out-0.err"} <= {it.name for it in files}
    shown += b"".join(it.read_bytes() for it in files)
    for hidden in (secret, *map(bytes.fromhex, keys)):
        assert not any(it in shown for it in encoded(hidden))
