"""The agent's process: signals, output, and its exit code.

Layer: agent, composition root. SIGTERM is a notice, SIGCHLD the end of a child, SIGUSR1 the end of
our parent (requested with PR_SET_PDEATHSIG). SIGINT comes from the terminal and is ignored.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import ssl
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from trainrun._common import kernel
from trainrun.agent import background, termination_message
from trainrun.agent.agent import ORPHANED, Agent
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.agent.exchange.http import tls_context
from trainrun.agent.processes import spawn
from trainrun.agent.processes.environment import Folders
from trainrun.agent.processes.output import Sink, SinkHandler
from trainrun.contract.agent_config import AgentConfig, BadConfig
from trainrun.contract.launcher import LauncherRefused, torch_launch
from trainrun.contract.masking import hide_values

LOG = logging.getLogger("trainrun.agent")

BAD_CONFIG = 2
"""Exit code for an unreadable configuration."""
PARENT_DEATH = signal.SIGUSR1
LAST_OUTPUT = 2.0
"""Seconds without a reader after which the agent gives up the rest of its output."""


def main(
    arguments: Sequence[str],
    environ: Mapping[str, str] = os.environ,
    *,
    library: str = "",
    bring_client: Callable[[str], None] | None = None,
) -> int:
    """Run an agent and return its exit code; `arguments` are `[--, command...]` or none.

    `library` is put in front of the processes' PYTHONPATH; `bring_client`: see
    `OpenedStore`. Does not return where a thread hangs.
    """
    try:
        config = replace(AgentConfig.read(environ, arguments), library=library)
        tls = tls_context(config)
    except BadConfig as error:
        sys.stderr.write(f"trainrun.agent: {error}\n")
        termination_message.write(f"trainrun.agent: {error}")
        return BAD_CONFIG
    hide_values({**environ, **config.env})
    sink = Sink(sys.stdout.fileno())
    handler = SinkHandler(sink)
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    if os.getpid() != 1:
        kernel.become_subreaper()
    spawn.give_way()
    storage = AsyncRunStore(config, bring_client=bring_client)
    # Not `asyncio.run`: it waits for threads that resolve names, which may take a minute each.
    loop = asyncio.new_event_loop()
    try:
        code = loop.run_until_complete(_live(config, storage, sink, tls))
    except OSError as error:
        LOG.error("the worker's folder %s cannot be used: %s", config.directory, error)
        termination_message.write(f"the worker's folder {config.directory} cannot be used: {error}")
        code = 1
    finally:
        storage.close()
        sink.close(LAST_OUTPUT)
        LOG.removeHandler(handler)
    # A normal interpreter exit would wait for threads too, for example for a hanging store call.
    os._exit(code)


def _tell_of_launcher(config: AgentConfig) -> None:
    """Log which launcher options have no effect. A refused one is reported when an attempt
    starts."""
    with contextlib.suppress(LauncherRefused):
        launch = torch_launch(config.command)
        if launch is not None and launch.note:
            LOG.info("%s", launch.note)


async def _live(
    config: AgentConfig, storage: AsyncRunStore, sink: Sink, tls: ssl.SSLContext | None
) -> int:
    loop = asyncio.get_running_loop()
    folders = Folders(config.directory)
    folders.prepare()
    agent = Agent(
        config=config,
        storage=storage,
        folders=folders,
        sink=sink,
        done=loop.create_future(),
        tls=tls,
    )
    background.crash_on_errors(loop, agent.crashed)
    loop.add_signal_handler(signal.SIGCHLD, agent.child_ended)
    loop.add_signal_handler(signal.SIGTERM, agent.terminated)
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    loop.add_signal_handler(PARENT_DEATH, agent.parent_died)
    # Blocked at the very start: process 1 of a container loses a SIGTERM that has no handler.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    if config.parent_pid is not None:
        kernel.signal_on_parent_death(PARENT_DEATH)
        if os.getppid() != config.parent_pid:
            return ORPHANED  # it died before prctl, so no signal will come
    _tell_of_launcher(config)
    agent.start()
    try:
        code = await agent.done
        if code != 0:
            attempt = agent.supervisor.attempt
            exits = attempt.processes.exits(time.monotonic()) if attempt is not None else ()
            termination_message.write(termination_message.compose(agent.shutdown.reason, exits))
        return code
    finally:
        agent.sharing.close()
