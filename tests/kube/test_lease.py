"""Who leads."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.kube.patching import patch
from tests.kube.waiting import until
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.lease import (
    DURATION,
    RENEW_TIMEOUT,
    Lease,
    LeaseLost,
    boot_time,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kube.api_server import ApiServer
    from tests.kube.fake_api import FakeApi

MODULE = "trainrun_operator.kube.lease"


def path(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/leader"


class Clock:
    """Seconds that pass faster when the test says so."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return boot_time() + self.ahead


def contender(api: KubeApi, namespace: str, identity: str, **more: Any) -> Lease:
    return Lease(api=api, namespace=namespace, name="leader", identity=identity, **more)


async def holder(api: KubeApi, namespace: str) -> str | None:
    spec: dict[str, Any] = (await api.get(path(namespace)))["spec"]
    return spec.get("holderIdentity")


async def test_the_first_one_leads_and_tells_for_how_long(api: KubeApi, namespace: str) -> None:
    lease = contender(api, namespace, "first")
    assert not lease.is_valid()

    await lease.acquire()

    assert lease.is_valid()
    spec = (await api.get(path(namespace)))["spec"]
    assert spec["holderIdentity"] == "first"
    assert spec["leaseDurationSeconds"] == 10
    assert spec["leaseTransitions"] == 0


async def test_another_one_waits_while_it_is_renewed_and_follows_at_once_when_it_is_released(
    api: KubeApi, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}.RENEW_EVERY", 0.05)
    monkeypatch.setattr(f"{MODULE}.RETRY", 0.1)
    first, second = (contender(api, namespace, name) for name in ("first", "second"))
    await first.acquire()
    keeping = asyncio.create_task(first.keep())
    waiting = asyncio.create_task(second.acquire())
    await asyncio.sleep(0.5)
    assert not waiting.done()

    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await first.release()

    async with asyncio.timeout(5):
        await waiting
    assert not first.is_valid()
    assert second.is_valid()
    assert (await api.get(path(namespace)))["spec"]["leaseTransitions"] == 1


async def test_a_dead_leader_is_followed_after_its_duration(
    api: KubeApi, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}.RETRY", 0.05)
    clock = Clock()
    await contender(api, namespace, "dead").acquire()
    second = contender(api, namespace, "second", clock=clock)
    waiting = asyncio.create_task(second.acquire())

    await asyncio.sleep(0.3)
    clock.ahead = DURATION - 1
    await asyncio.sleep(0.2)
    assert not waiting.done()
    clock.ahead = DURATION
    async with asyncio.timeout(10):
        await waiting
    assert second.is_valid()


async def test_of_many_contenders_one_wins(
    api: KubeApi, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}.RETRY", 0.05)
    leases = [contender(api, namespace, f"c{number}") for number in range(8)]
    tasks = [asyncio.create_task(lease.acquire()) for lease in leases]

    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(0.5)

    assert sum(task.done() for task in tasks) == 1
    assert sum(lease.is_valid() for lease in leases) == 1
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_two_processes_of_the_same_name_do_not_both_lead(
    api: KubeApi, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}.RETRY", 0.05)
    await contender(api, namespace, "same").acquire()
    waiting = asyncio.create_task(contender(api, namespace, "same").acquire())

    await asyncio.sleep(0.5)

    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_leader_that_cannot_renew_knows_it_before_anybody_else_may_lead(
    api: KubeApi, namespace: str, apiserver: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}.RENEW_EVERY", 0.05)
    monkeypatch.setattr(f"{MODULE}.RETRY", 0.05)
    lease = contender(api, namespace, "first")
    await lease.acquire()
    apiserver.pause()
    started = time.monotonic()
    try:
        with pytest.raises(LeaseLost, match="first could not renew its Lease for 6 s"):
            await lease.keep()
    finally:
        apiserver.resume()

    assert time.monotonic() - started < DURATION
    assert not lease.is_valid()


@pytest.mark.case("operator", "The API server is down")
async def test_an_api_server_that_is_away_for_a_moment_costs_no_leadership(
    api: KubeApi, namespace: str, apiserver: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}.RENEW_EVERY", 0.05)
    lease = contender(api, namespace, "first")
    await lease.acquire()
    keeping = asyncio.create_task(lease.keep())
    apiserver.pause()
    await asyncio.sleep(2)
    apiserver.resume()
    before = (await api.get(path(namespace)))["spec"]["renewTime"]

    async def renewed() -> None:
        while (await api.get(path(namespace)))["spec"]["renewTime"] == before:
            await asyncio.sleep(0.05)

    async with asyncio.timeout(10):
        await renewed()
    assert lease.is_valid()
    assert not keeping.done()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


async def test_a_lease_that_was_invalid_once_stays_lost(api: KubeApi, namespace: str) -> None:
    clock = Clock()
    lease = contender(api, namespace, "first", clock=clock)
    await lease.acquire()

    clock.ahead = RENEW_TIMEOUT
    assert not lease.is_valid()
    clock.ahead = 0
    assert not lease.is_valid()
    with pytest.raises(LeaseLost, match="could not renew"):
        await lease.keep()


async def test_a_leader_whose_lease_somebody_took_says_who(
    api: KubeApi, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}.RENEW_EVERY", 0.05)
    lease = contender(api, namespace, "first")
    await lease.acquire()
    await patch(api, path(namespace), {"spec": {"holderIdentity": "thief"}})

    with pytest.raises(LeaseLost, match="first lost its Lease: thief holds it now"):
        await lease.keep()


async def test_a_label_that_somebody_adds_to_the_lease_costs_no_leadership(
    api: KubeApi, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}.RENEW_EVERY", 0.05)
    lease = contender(api, namespace, "first")
    await lease.acquire()
    labelled = await patch(api, path(namespace), {"metadata": {"labels": {"a": "b"}}})
    keeping = asyncio.create_task(lease.keep())

    async def renewed() -> None:
        while (await api.get(path(namespace)))["spec"] == labelled["spec"]:
            await asyncio.sleep(0.02)

    async with asyncio.timeout(10):
        await renewed()
    assert (await api.get(path(namespace)))["metadata"]["labels"] == {"a": "b"}
    assert not keeping.done()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


async def test_releasing_what_is_lost_leaves_the_next_leader_alone(
    api: KubeApi, namespace: str
) -> None:
    lease = contender(api, namespace, "first")
    await lease.acquire()
    taken = {"spec": {"holderIdentity": "second", "acquireTime": "2026-01-01T00:00:00.000000Z"}}
    await patch(api, path(namespace), taken)

    await lease.release()

    assert await holder(api, namespace) == "second"


async def test_a_lease_is_released_also_when_the_answer_to_a_renewal_was_never_read(
    api: KubeApi, namespace: str
) -> None:
    lease = contender(api, namespace, "first")
    await lease.acquire()
    await patch(api, path(namespace), {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}})

    await lease.release()

    assert await holder(api, namespace) is None
    assert not lease.is_valid()


LEADER = """
    import asyncio, sys
    from trainrun_operator.kube.api import KubeApi
    from trainrun_operator.kube.lease import Lease, LeaseLost

    async def main():
        api = await KubeApi.connect()
        lease = Lease(api=api, namespace=sys.argv[1], name="leader", identity="child")
        await lease.acquire()
        print("leads", flush=True)
        keeping = asyncio.create_task(lease.keep())
        try:
            while lease.is_valid():
                print("writes", flush=True)
                await asyncio.sleep(0.05)
            print("invalid", flush=True)
            await keeping
        except LeaseLost as error:
            print(error, flush=True)
        await api.close()

    asyncio.run(main())
"""


@pytest.mark.slow
async def test_a_leader_that_was_paused_finds_out_before_its_next_write(
    api: KubeApi, namespace: str, tmp_path: Path
) -> None:
    script = tmp_path / "leader.py"
    script.write_text(textwrap.dedent(LEADER))
    with subprocess.Popen(
        [sys.executable, script, namespace], stdout=subprocess.PIPE, text=True, env=os.environ
    ) as child:
        assert child.stdout is not None
        assert await asyncio.to_thread(child.stdout.readline) == "leads\n"
        second = contender(api, namespace, "second")
        waiting = asyncio.create_task(second.acquire())
        child.send_signal(signal.SIGSTOP)
        started = time.monotonic()
        async with asyncio.timeout(60):
            await waiting
        assert time.monotonic() - started < 15
        child.send_signal(signal.SIGCONT)
        lines = (await asyncio.to_thread(child.stdout.read)).splitlines()

    after = lines[lines.index("invalid") :]
    assert "writes" not in after
    assert after[1].startswith("child could not renew its Lease")
    assert second.is_valid()


async def test_who_may_not_take_it_says_so_until_he_may(fake: FakeApi) -> None:
    """Both replicas were ready, and nobody led."""
    api = await KubeApi.connect()
    lease = contender(api, "team", "first")
    fake.refuses = {"team"}
    acquiring = asyncio.create_task(lease.acquire())
    await until(lambda: lease.refusal)
    assert lease.refusal == (
        "the Lease cannot be taken: /apis/coordination.k8s.io/v1/namespaces/team/leases/leader is "
        "forbidden"
    )
    fake.refuses = set()
    await asyncio.wait_for(acquiring, timeout=60)
    assert not lease.refusal
    await api.close()
