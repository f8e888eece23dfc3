"""What an agent that is connected costs the operator in memory.

Method: a process serves the agents' port as the operator does (TLS, event loop, door, server) for a
run of N workers; this one holds their connections, one each, and speaks the protocol on them: a
heartbeat of the usual size, then a long poll. The figure is the growth of the server's resident
memory between the first agents and the last, over their number. `--loop asyncio` shows the standard
library's loop.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import ssl
import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.verdict import end, must
from trainrun.agent.exchange.http import HttpClient, Interrupt
from trainrun.contract.agent_state import AgentState
from trainrun.contract.answer import Answer, Hold
from trainrun.contract.wire import HEARTBEAT_PATH
from trainrun_operator.cluster.ca import issue, new_ca
from trainrun_operator.runtime.agent_server import AgentServer, AuthenticatedCaller, Refusal
from trainrun_operator.runtime.agents import RunAgents

AGENTS = 500
WARM = 50
"""Agents before the first look: what the server loads with its first requests is no agent's."""
LIMIT = 100.0
"""Kilobytes of an agent."""
RUN_UID = "bench"
ANSWER = Answer(order=Hold(attempt=1))


async def serve(folder: Path, agents: int) -> None:
    """The server's process; writes its port, then its memory whenever it is asked on stdin."""

    async def authenticate(token: str, _address: str) -> AuthenticatedCaller | Refusal:
        return AuthenticatedCaller(name=token, share=RUN_UID, objection=lambda _state: None)

    server = AgentServer(authenticate=authenticate)
    run = RunAgents(run_uid=RUN_UID, on_news=lambda: None, on_progress=lambda: None)
    run.expect({f"bench-{slot}-1" for slot in range(agents)})
    run.publish({f"bench-{slot}-1": ANSWER for slot in range(agents)})
    server.add(run)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "server.crt", folder / "server.key")
    print(await server.start("127.0.0.1", tls=tls), flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(resident(), flush=True)
    await server.stop()


def resident() -> int:
    """Bytes of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def state_of(slot: int, sequence: int) -> AgentState:
    """Of an agent that waits for the others."""
    return AgentState(
        run="bench",
        run_uid=RUN_UID,
        slot=slot,
        worker=f"bench-{slot}-1",
        created_for=1,
        agent=f"agent-{slot}",
        sequence=sequence,
        node=f"node-{slot}",
        steps=(1000,),
        metrics={"loss": 0.5, "accuracy": 0.9},
    )


async def connect(port: int, ca: str, slot: int) -> HttpClient:
    """An agent's connection, on which a long poll waits."""
    client = HttpClient(
        f"https://127.0.0.1:{port}",
        token=lambda: f"token-{slot}",
        tls=ssl.create_default_context(cadata=ca),
    )
    answer = await client.post(HEARTBEAT_PATH, state_of(slot, 1).to_json().encode(), 60.0)
    assert answer.status == 200, answer
    waiting = replace(state_of(slot, 2), seen=ANSWER.digest).to_json().encode()
    path = f"{HEARTBEAT_PATH}?wait=60&interruptible=1"
    interrupt = Interrupt(event=asyncio.Event(), patience=60.0)
    POLLS.append(asyncio.create_task(client.post(path, waiting, 90.0, interrupt=interrupt)))
    return client


POLLS: list[asyncio.Task[object]] = []


async def measure(server: subprocess.Popen[str], agents: int, ca: str) -> float:
    """Kilobytes per agent."""
    assert server.stdin is not None
    assert server.stdout is not None

    def memory() -> int:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write("\n")
        server.stdin.flush()
        return int(server.stdout.readline())

    port = int(server.stdout.readline())
    clients = [await connect(port, ca, slot) for slot in range(WARM)]
    await asyncio.sleep(1)
    before = memory()
    for slot in range(WARM, agents):
        clients.append(await connect(port, ca, slot))
    await asyncio.sleep(1)
    growth = memory() - before
    for poll in POLLS:
        poll.cancel()
    await asyncio.gather(*POLLS, return_exceptions=True)
    return growth / (agents - WARM) / 1000


def main() -> None:
    """Print kilobytes per agent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=AGENTS)
    parser.add_argument("--loop", choices=["uvloop", "asyncio"], default="uvloop")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        loop = uvloop.new_event_loop if options.loop == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(serve(options.serve, options.agents))
        return
    with tempfile.TemporaryDirectory() as name:
        folder, now = Path(name), datetime.now(UTC)
        authority = new_ca(common_name="bench", now=now)
        serving = issue(authority, dns_names=[], ips=["127.0.0.1"], now=now)
        (folder / "server.crt").write_bytes(serving.certificate)
        (folder / "server.key").write_bytes(serving.key)
        command = [sys.executable, __file__, "--serve", name, "--loop", options.loop]
        server = subprocess.Popen(
            [*command, "--agents", str(options.agents)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            cost = asyncio.run(measure(server, options.agents, authority.certificate.decode()))
        finally:
            server.terminate()
            server.wait()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    what = f"{options.agents} agents, {options.loop}"
    print(f"{what}: {cost:.0f} kB each {must(what, cost, LIMIT, 'kB each')}")
    end()


if __name__ == "__main__":
    main()
