"""The agent's process: signals, output, and its exit code.

Layer: agent, composition root. SIGTERM is a notice, SIGCHLD the end of a child, SIGUSR1 the end
of our parent (asked for with PR_SET_PDEATHSIG). SIGINT is the terminal's and none of our business.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence

from trainrun.agent import background, linux
from trainrun.agent.agent import ORPHANED, Agent
from trainrun.agent.config import AgentConfig, BadConfig
from trainrun.agent.folders import Folders
from trainrun.agent.output import Sink, SinkHandler
from trainrun.agent.storage import Storage

LOG = logging.getLogger("trainrun.agent")

BAD_CONFIG = 2
"""Exit code for a configuration that cannot be read."""
PARENT_DEATH = signal.SIGUSR1
LAST_OUTPUT = 2.0
"""Seconds for the output still to be written."""


def main(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Run an agent and return its exit code; `arguments` are `[--, command...]` or none."""
    try:
        config = AgentConfig.read(environ, arguments)
    except BadConfig as error:
        sys.stderr.write(f"trainrun.agent: {error}\n")
        return BAD_CONFIG
    sink = Sink(sys.stdout.fileno())
    handler = SinkHandler(sink)
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    linux.become_subreaper()
    linux.give_way()
    storage = Storage(config)
    try:
        code = asyncio.run(_live(config, storage, sink))
    except OSError as error:
        LOG.error("the worker's folder %s cannot be used: %s", config.directory, error)
        code = 1
    finally:
        storage.close()
        sink.close(LAST_OUTPUT)
        LOG.removeHandler(handler)
    if storage.busy:
        # A call of the store hangs in its thread, which Python would wait for at exit.
        os._exit(code)
    return code


async def _live(config: AgentConfig, storage: Storage, sink: Sink) -> int:
    loop = asyncio.get_running_loop()
    folders = Folders(config.directory)
    folders.prepare()
    agent = Agent(
        config=config, storage=storage, folders=folders, sink=sink, done=loop.create_future()
    )
    background.crash_on_errors(loop, agent.crashed)
    loop.add_signal_handler(signal.SIGCHLD, agent.child_ended)
    loop.add_signal_handler(signal.SIGTERM, agent.terminated)
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    loop.add_signal_handler(PARENT_DEATH, agent.parent_died)
    if config.parent_pid is not None:
        linux.signal_on_parent_death(PARENT_DEATH)
        if os.getppid() != config.parent_pid:
            return ORPHANED  # it died before we asked: nobody will tell us
    agent.start()
    try:
        return await agent.done
    finally:
        folders.close()
