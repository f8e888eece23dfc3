"""`trainrun page`: serves one page about many runs, live and past, until Ctrl-C.

Layer: cli. Reads with the user's own credentials: kubeconfig and storages.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

import click

from trainrun.errors import InvalidSpec
from trainrun_operator.cli.preparation import Preparation, storage_uri
from trainrun_operator.cli.sources import Source
from trainrun_operator.cli.viewing.access import Access, PrintedToken
from trainrun_operator.cli.viewing.catalog import RunCatalog
from trainrun_operator.cli.viewing.rows import RunRow
from trainrun_operator.cli.viewing.server import PageServer
from trainrun_operator.worlds.kubernetes.user_watch import UserWatch

CHECK_EVERY, LEAVE = 0.1, 2.0
"""Seconds between two checks, and for a page to end: a read of a store may hang."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOptions:
    """The command line of `trainrun page`."""

    places: tuple[str, ...] = ()
    """Storages: URIs and folders."""
    namespace: str | None = None
    """None: the kubeconfig's."""
    everywhere: bool = False
    port: int = 0


def page(options: PageOptions) -> None:
    """Serve the page until Ctrl-C. Raises NoCluster if there is nothing else to show, and
    InvalidSpec."""
    asyncio.run(_serve(options))


async def _serve(options: PageOptions) -> None:
    storages = tuple(dict.fromkeys(storage_uri(place).rstrip("/") for place in options.places))
    watch = await UserWatch.connect(
        options.namespace,
        everywhere=options.everywhere,
        needed=options.everywhere or options.namespace is not None or not storages,
    )
    async with serving(RunCatalog(storages=storages, watch=watch), port=options.port) as server:
        click.echo(f"{server.address()}\nCtrl-C ends it.")
        await asyncio.Event().wait()


@asynccontextmanager
async def serving(
    catalog: RunCatalog, *, port: int = 0, access: Access | None = None
) -> AsyncIterator[PageServer]:
    """The page of this catalog. `access` None: on this machine alone, with a token in its address.
    Raises InvalidSpec."""
    server = PageServer(catalog=catalog, access=access or PrintedToken())
    try:
        await server.start(port)
    except OSError as error:
        raise InvalidSpec(f"--port {port}: {error.strerror}; choose another one") from error
    try:
        async with asyncio.TaskGroup() as tasks:  # if reading fails, so does the page
            reading = tasks.create_task(catalog.run())
            yield server
            reading.cancel()
    finally:
        await server.stop()


@contextmanager
def page_beside(prepared: Preparation) -> Iterator[str]:
    """The address of a page about this local run, served by a thread until the end. Raises
    InvalidSpec where there is no port for it."""
    at = prepared.run.spec.storage
    storage = at.uri.rstrip("/")
    source = Source(name=prepared.name, storage=storage, place=prepared.place)
    row = RunRow(kind="local", name=prepared.name, source=source)
    address: Future[str] = Future()
    over = threading.Event()

    async def serve() -> None:
        async with serving(RunCatalog(storages=(storage,))) as server:
            address.set_result(server.address(f"run?{urlencode({'id': row.id})}"))
            while not over.is_set():
                await asyncio.sleep(CHECK_EVERY)

    def work() -> None:
        try:
            asyncio.run(serve())
        except Exception as error:
            if address.done():
                raise
            address.set_exception(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield address.result()
    finally:
        over.set()
        thread.join(LEAVE)
