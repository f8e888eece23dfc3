"""The run's object storage, opened once, and the threads in which an agent calls it.

Layer: agent, over `trainrun.checkpoint`. The first call loads the client (boto3 costs half a second
of CPU).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.stores.store import ObjectStore
from trainrun.contract.agent_config import AgentConfig

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 8
"""For uploads, commits, the beat and resolutions; plus one per process for its download."""


class OpenedStore:
    """The store of one run and its threads. Calls raise what `trainrun.checkpoint` documents."""

    def __init__(self, config: AgentConfig, *, bring_client: Callable[[str], None] | None) -> None:
        """`bring_client` is called with the scheme of a URI before anything may import its client
        (boto3, obstore), in any thread, repeatedly; None if Python finds what is installed."""
        self.config = config
        self._bring_client = bring_client
        self._pool = ThreadPoolExecutor(
            THREADS + config.processes_per_worker, thread_name_prefix="store"
        )
        self._opened: RunStore | None = None
        self.generation = 0
        """The current generation of the run's folder; 0: unknown, use the first one."""

    async def call(self, function: Callable[..., T], *args: object) -> T:
        """Run `function` in one of the threads and return its result."""
        return await asyncio.wrap_future(self._pool.submit(function, *args))

    async def on_run(
        self,
        function: Callable[Concatenate[RunStore, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """The same for a function of the run's folder."""
        return await self.call(lambda: function(self.run(), *args, **kwargs))

    def run(self) -> RunStore:
        """The run's folder, in the current generation. Blocks the first time."""
        if self._opened is None:
            storage = self.config.storage
            self._opened = RunStore(self.open(storage.uri), storage.run_name)
        return replace(self._opened, generation=max(self.generation, 1))

    def open(self, uri: str) -> ObjectStore:
        """The store at this URI, with the run's credentials."""
        if self._bring_client is not None:
            self._bring_client(uri.partition("://")[0])
        storage = self.config.storage
        return open_store(uri, endpoint_url=storage.endpoint_url, region=storage.region)

    @property
    def cache(self) -> Path:
        """The folder of this node for downloads."""
        return Path(self.config.cache)

    def close(self) -> None:
        """Take no more calls; abandon those under way."""
        self._pool.shutdown(wait=False, cancel_futures=True)
