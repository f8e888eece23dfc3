"""The page as a Deployment: what the API has, for whoever has a token, until SIGTERM.

Layer: cli. The chart starts it (`page.enabled`), with its settings as JSON in TRAINRUN_PAGE.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from trainrun.checkpoint.run_store import open_store
from trainrun.contract import variables
from trainrun.errors import InvalidSpec, TrainRunError
from trainrun_operator.cli.page import serving
from trainrun_operator.cli.viewing.catalog import RunCatalog
from trainrun_operator.cli.viewing.storages import BoundStorage, BoundStorages, is_within
from trainrun_operator.cli.viewing.token_access import ClusterToken
from trainrun_operator.worlds.kubernetes.access_reviews import TokenReaders
from trainrun_operator.worlds.kubernetes.user_watch import UserWatch

LARGEST = 16 << 20
"""Bytes of an object that is read: the records of a run are smaller, also copied in volumes. The
page is one process for all: what one namespace stores must not take its memory."""


class _Settings(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, extra="forbid", frozen=True
    )


class StoreSettings(_Settings):
    """One of the chart's `page.stores`."""

    uri: str
    namespace: str
    """Whose runs are in it."""
    keys: Path
    """Folder with the files of its Secret, named like the variables of boto3."""
    endpoint_url: str | None = Field(default=None, alias="endpointURL")
    region: str | None = None


class PageSettings(_Settings):
    """What the chart says."""

    port: int = 8080
    hosts: tuple[str, ...] = ()
    """What browsers call the page."""
    base_path: str = ""
    """Stands before every path; `/runs`, say."""
    namespaces: tuple[str, ...] = ()
    """Whose TrainRuns are followed; none: all."""
    stores: tuple[StoreSettings, ...] = ()


def settings_of(text: str) -> PageSettings:
    """Raises InvalidSpec."""
    try:
        return PageSettings.model_validate_json(text)
    except ValidationError as error:
        raise InvalidSpec(
            f"the variable {variables.PAGE_SETTINGS} is wrong; the chart sets it: {error}"
        ) from error


def storages_of(settings: PageSettings) -> BoundStorages:
    """The stores, opened with their own keys. Raises InvalidSpec and StoreMisconfigured."""
    found = dict[str, BoundStorage]()
    for store in settings.stores:
        for other, there in found.items():
            if there.namespace != store.namespace and (
                is_within(store.uri, other) or is_within(other, store.uri)
            ):
                raise InvalidSpec(
                    f"page.stores: {min(other, store.uri)} has two namespaces, {there.namespace} "
                    f"and {store.namespace}; give each one a prefix of its own"
                )
        opened = open_store(
            store.uri,
            endpoint_url=store.endpoint_url,
            region=store.region,
            keys=_keys(store),
            largest=LARGEST,
        )
        found[store.uri.rstrip("/")] = BoundStorage(store.namespace, opened)
    return BoundStorages(found)


def _keys(store: StoreSettings) -> dict[str, str]:
    keys = {file.name: file.read_text().strip() for file in store.keys.glob("AWS_*")}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        if not keys.get(name):
            raise InvalidSpec(f"page.stores: the Secret of {store.uri} has no {name}; add it")
    return keys


async def serve(settings: PageSettings) -> None:
    """Serve the page until SIGTERM. Raises NoCluster, StoreMisconfigured and InvalidSpec."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    storages = storages_of(settings)
    async with TokenReaders.connected() as readers:
        catalog = RunCatalog(
            storages=tuple(storages.by_uri),
            access=storages,
            watch=await UserWatch.of_cluster(settings.namespaces),
        )
        access = ClusterToken(readers=readers, hosts=settings.hosts, base=settings.base_path)
        async with serving(catalog, port=settings.port, access=access):
            await over.wait()


def main() -> int:
    """Serve the page with the settings of the environment."""
    try:
        settings = settings_of(os.environ.get(variables.PAGE_SETTINGS, ""))
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
        asyncio.run(serve(settings))
    except (TrainRunError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
