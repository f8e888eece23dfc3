"""The page as the chart starts it: its own process, a real API server, a real store."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.cli.stories import a_folder, a_life
from tests.cli.sweeping.local_sweeps import Sweeps
from tests.cli.viewing.tenants import a_tenant
from tests.cli.viewing.test_sweep_on_the_page import errored
from tests.support.s3_server import free_port
from trainrun.checkpoint.run_store import open_store
from trainrun_operator.cli import cluster_page

if TYPE_CHECKING:
    from tests.support.s3_server import S3Server
    from tests.support.trainruns import TrainRuns
    from trainrun_operator.kube.api import KubeApi


async def test_the_process_of_the_chart_shows_past_runs_of_a_store_by_the_keys_of_its_secret(
    api: KubeApi, trainruns: TrainRuns, own_s3: S3Server, tmp_path: Path
) -> None:
    ours, theirs = await a_tenant(api), await a_tenant(api)
    keys = own_s3.environment()
    secret = tmp_path / "secret"
    secret.mkdir()
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    for name in names:
        (secret / name).write_text(f"{keys[name]}\n")
    folder = a_folder(tmp_path / "runs", *a_life())
    store = open_store(
        "s3://bucket/runs",
        endpoint_url=own_s3.endpoint,
        keys={name: keys[name] for name in names},
    )
    for path in folder.rglob("*.json"):
        for name in ("llama", "team/runs/falcon"):
            store.put(f"{name}/{path.relative_to(folder)}", path.read_bytes())
    sweeps = Sweeps(tmp_path)
    sweeps.write(*errored(0, "no room"))
    a_folder(sweeps.storage / "lr" / "trials", *a_life(), name="00000")
    for path in filter(Path.is_file, sweeps.storage.rglob("*")):
        store.put(str(path.relative_to(sweeps.storage)), path.read_bytes())
    port = free_port()
    settings = {
        "port": port,
        "stores": [
            {
                "uri": "s3://bucket/runs",
                "namespace": ours.namespace,
                "keys": str(secret),
                "endpointURL": own_s3.endpoint,
            }
        ],
    }
    bare = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    command = [sys.executable, "-m", "trainrun_operator.cli.cluster_page"]
    page = subprocess.Popen(command, env={**bare, "TRAINRUN_PAGE": json.dumps(settings)})
    try:
        text = await shown(f"http://127.0.0.1:{port}/", ours.token, ">llama</a>")
        assert f"<small>storage, {ours.namespace}</small>" in text
        await shown(f"http://127.0.0.1:{port}/", ours.token, ">falcon</a>")
        sweep = "id=stored:s3://bucket/runs/lr"
        await shown(f"http://127.0.0.1:{port}/sweep?{sweep}", ours.token, "NodeLost")
        trial = f"run?{sweep}/trials/00000"
        await shown(f"http://127.0.0.1:{port}/{trial}", ours.token, "3 attempts, step 3000")
        text = await shown(f"http://127.0.0.1:{port}/", theirs.token, "There are none yet.")
        assert "llama" not in text
        assert "falcon" not in text
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/healthz") as got:
                assert (got.status, await got.text()) == (200, "ok\n")
        page.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(page.wait, 60) == 0
    finally:
        page.kill()
        page.wait()


async def shown(url: str, token: str, words: str) -> str:
    """The page, once it has these words."""
    headers = {"Authorization": f"Bearer {token}"}
    text = ""
    try:
        async with asyncio.timeout(60), aiohttp.ClientSession(headers=headers) as session:
            while words not in text:
                with suppress(aiohttp.ClientError):  # it starts
                    async with session.get(url) as answer:
                        text = await answer.text()
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{url} does not show {words}: {text}") from None
    return text


def test_settings_that_cannot_be_read_end_the_process_in_words(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINRUN_PAGE", '{"prot": 1}')
    assert cluster_page.main() == 1
    assert "the variable TRAINRUN_PAGE is wrong; the chart sets it: " in capfd.readouterr().err
