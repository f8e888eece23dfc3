"""The storages that a page may read: all that its user's credentials open, or some, each bound to a
namespace.

Layer: cli; no I/O. Invariant: where storages are bound, a run of a namespace leads to no other
storage than its namespace's, whatever its TrainRun says.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from trainrun.checkpoint.run_store import open_store
from trainrun.errors import StoreMisconfigured
from trainrun_operator.cli.sources import Source
from trainrun_operator.cli.viewing.rows import RunRow
from trainrun_operator.worlds.local.place import place_of

if TYPE_CHECKING:
    from trainrun.checkpoint.stores.store import BrowsableStore


def shared_store(
    uri: str, *, endpoint_url: str | None = None, region: str | None = None
) -> BrowsableStore:
    """One store for all runs in it: opening one costs a client and its connections. Raises
    StoreMisconfigured."""
    plain = uri.rstrip("/")  # but of file:/// its slashes are the address
    return _opened(uri if plain.endswith(":") else plain, endpoint_url, region)


@cache
def _opened(uri: str, endpoint_url: str | None, region: str | None) -> BrowsableStore:
    return open_store(uri, endpoint_url=endpoint_url, region=region)


@dataclass(frozen=True, slots=True)
class UsersStorages:
    """Whatever the user's own credentials open, and the files of this machine."""

    only_bound = False

    def namespaces(self) -> set[str]:
        """Those that a storage is bound to: the one of no cluster."""
        return {""}

    def namespace_of(self, _uri: str, /) -> str:
        """The namespace that a storage is bound to; empty: none."""
        return ""

    def store(self, uri: str) -> BrowsableStore:
        """The store of a storage that the page was given. Raises StoreMisconfigured."""
        return shared_store(uri)

    def opened(self, row: RunRow) -> RunRow:
        """The row of a TrainRun, with the store that it may be read from."""
        source = row.source
        with contextlib.suppress(StoreMisconfigured):  # whoever reads there says so
            store = shared_store(
                source.storage, endpoint_url=source.endpoint_url, region=source.region
            )
            return replace(row, source=replace(source, store=store))
        return row


@dataclass(frozen=True, slots=True)
class BoundStorage:
    """A storage whose runs all belong to one namespace: an administrator says so."""

    namespace: str
    store: BrowsableStore
    """Also reads the folders in it that are storages of their own: a client takes 12 MB."""


@dataclass(frozen=True, slots=True)
class BoundStorages:
    """Only these."""

    by_uri: Mapping[str, BoundStorage]
    only_bound = True

    def namespaces(self) -> set[str]:
        """See UsersStorages."""
        return {storage.namespace for storage in self.by_uri.values()}

    def namespace_of(self, uri: str) -> str:
        """See UsersStorages; also of a folder in one."""
        found = (it.namespace for at, it in self.by_uri.items() if is_within(uri, at))
        return next(found, "")

    def store(self, uri: str) -> BrowsableStore:
        """See UsersStorages."""
        return self.by_uri[uri].store

    def opened(self, row: RunRow) -> RunRow:
        """See UsersStorages. A folder in a storage is one, too: trials of sweeps have such. The
        address of the store is ours, since that in a TrainRun is the word of its user."""
        uri, namespace = row.source.storage.rstrip("/"), row.namespace
        for at, storage in self.by_uri.items():
            within = uri.removeprefix(at)
            plain = not {"", ".", ".."} & {*within.split("/")[1:]} and "%" not in within
            if is_within(uri, at) and plain and storage.namespace == namespace:
                source = replace(row.source, storage=uri, endpoint_url=None, region=None)
                below = f"{within[1:]}/" if within else ""
                return replace(row, source=replace(source, store=storage.store, within=below))
        why = f"the chart's value page.stores has no {uri} for namespace {namespace}"
        return replace(row, source=replace(row.source, closed=why))


Storages = UsersStorages | BoundStorages
"""What a page may read."""


def is_within(uri: str, at: str) -> bool:
    """Whether this is the storage `at`, or a folder in it."""
    return f"{uri}/".startswith(f"{at}/")


def folder(storages: Storages, uri: str, name: str, within: str = "") -> Source:
    """A folder of a storage that the page was given; `within`: of this folder in it, which ends in
    `/`. Raises StoreMisconfigured."""
    store, at = storages.store(uri), f"{uri}/{within}".rstrip("/") if within else uri
    place = place_of(at, name, environ=os.environ)
    return Source(name=name, storage=at, place=place, store=store, within=within)
