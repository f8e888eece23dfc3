"""A watch whose API server lost power: no answer, no end of the connection, nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# In a network namespace of its own, whose only link is taken down.
SCRIPT = """
    import asyncio, contextlib, json, os, pathlib, subprocess, sys, time
    from tests.kube.fake_api import FakeApi
    from tests.kube.waiting import until
    from trainrun_operator.kube.api import KubeApi
    from trainrun_operator.kube.errors import Unavailable

    async def main():
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        fake = FakeApi()
        await fake.start()
        os.environ["KUBECONFIG"] = str(fake.kubeconfig(pathlib.Path(sys.argv[1])))
        api = await KubeApi.connect()

        async def watch():
            async with contextlib.aclosing(api.stream("/things", params={})) as events:
                await anext(events)

        watching = asyncio.create_task(watch())
        await until(lambda: fake.watching)
        subprocess.run(["ip", "link", "set", "lo", "down"], check=True)
        started = time.monotonic()
        try:
            await watching
        except Unavailable as error:
            print(json.dumps([time.monotonic() - started, str(error)]), flush=True)
        os._exit(0)  # what is left waits for the network

    asyncio.run(main())
"""


@pytest.mark.slow
def test_a_watch_notices_within_half_a_minute_that_the_network_is_gone(tmp_path: Path) -> None:
    own_network = ["unshare", "--net", "--"]
    if subprocess.run([*own_network, "true"], capture_output=True).returncode != 0:
        pytest.skip("no right to make a network namespace")
    script = tmp_path / "watch.py"
    script.write_text(textwrap.dedent(SCRIPT))

    done = subprocess.run(
        [*own_network, sys.executable, script, tmp_path / "kubeconfig"],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )

    assert done.returncode == 0, done.stderr
    seconds, message = json.loads(done.stdout)
    assert 10 < seconds < 40
    assert message.startswith("watch /things: ")
