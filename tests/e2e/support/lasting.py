"""A run that trains until it is told to end, so that one gang can go through many incidents."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.e2e.support.bed import a_bed
from tests.e2e.support.cluster_run import ClusterRun
from tests.e2e.support.incidents import succeeded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testbed.cluster import Cluster
    from tests.e2e.support.bed import Bed
    from tests.e2e.support.cluster_run import Json

FOR_EVER = ("--attempts", 1_000_000)


class LastingRun(ClusterRun):
    """A run of counting.py in a namespace of its own."""

    def __init__(self, bed: Bed, **options: Any) -> None:
        super().__init__(bed, "run")
        self._options = options
        self.apply_again()

    def apply_again(self, **changes: Any) -> None:
        """`kubectl apply` with changes of the template, which stay; it trains on until `finish`."""
        self._options |= changes
        args = [*self._options.get("args", ()), *FOR_EVER]
        self.bed.apply(self.bed.trainrun(**{**self._options, "args": args}))

    def finish(self) -> Json:
        """Let it end, by an edit of its template; it must have learned what it should."""
        self.bed.apply(self.bed.trainrun(**self._options))
        return succeeded(self)


@contextmanager
def a_lasting_run(cluster: Cluster, namespace: str, **options: Any) -> Iterator[LastingRun]:
    """A run that is removed with its namespace in the end."""
    with a_bed(cluster, namespace) as bed:
        yield LastingRun(bed, **options)
