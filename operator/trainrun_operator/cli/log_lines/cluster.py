"""Reads the output of a run's worker pods with the user's own credentials.

Layer: cli. Pods survive restarts, so one pod's log has lines of several attempts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import click

from trainrun_operator.cli.log_lines.line import Line, LogItem, Wanted, WorkerOutput
from trainrun_operator.cli.sources import ClusterSource
from trainrun_operator.worlds.kubernetes.pod_logs import (
    MAX_PODS,
    PodEvent,
    PodLine,
    PodPast,
    follow_pods,
    moment_of,
    read_pods,
)

MOST_LINES = 2000
"""Lines read from each pod without --follow."""
ANY_ATTEMPT = 1 << 60


@dataclass(slots=True, kw_only=True)
class ClusterLines:
    """The lines of one run's pods."""

    source: ClusterSource
    wanted: Wanted
    _outputs: dict[str, WorkerOutput] = field(default_factory=dict)

    def history(self) -> Iterator[Line]:
        """The last lines of all existing pods, by attempt. Raises KubeError, NoCluster."""
        pods = asyncio.run(
            read_pods(self.source.namespace, self._uid, wanted=self._has, tail=MOST_LINES)
        )
        found = [
            line
            for lines in pods
            if lines
            for line in self._attributed(WorkerOutput(worker=lines[0].pod.name), lines)
        ]
        kept = self.wanted.last(found)
        yield from sorted(kept, key=lambda line: (line.attempt or 0, line.moment))

    def follow(self, show: Callable[[LogItem], None]) -> None:
        """Show existing lines, then new ones until the run has ended. Raises as `history`."""

        def show_event(event: PodEvent) -> None:
            output = self._outputs.setdefault(event.pod.name, WorkerOutput(worker=event.pod.name))
            found: Iterable[LogItem]
            if isinstance(event, PodPast):
                found = self.wanted.of(self._attributed(output, event.lines))
            elif isinstance(event, PodLine):
                found = self.wanted.of(_lines(output, [event]))
            else:
                gaps = output.lost(ANY_ATTEMPT)
                found = (gap for gap in gaps if self.wanted.attempt in (None, gap.attempt))
            for item in found:
                show(item)

        asyncio.run(
            follow_pods(
                self.source.namespace,
                self.source.object_name,
                self._uid,
                wanted=self._has,
                tail=self.wanted.tail,
                too_many=_too_many,
                show=show_event,
            )
        )

    @property
    def _uid(self) -> str:
        return self.source.known.uid

    def _has(self, slot: int | None) -> bool:
        """Whether the worker of this slot has a wanted rank."""
        each = self.source.per_worker
        ranks = range(slot * each, slot * each + each) if slot is not None else ()
        return slot is None or self.wanted.has(self.wanted.attempt, ranks)

    def _attributed(self, output: WorkerOutput, past: Sequence[PodLine]) -> list[Line]:
        """The last lines of a worker with their attempts, also those before the first start."""
        found = list(_lines(output, past))
        if output.first is None:
            # The lines since the attempt's start are more than were read, so its start is missing.
            before = output.attempt = self.source.known.status.attempt
        else:
            before = output.first - 1
        return [
            line if line.attempt is not None else replace(line, attempt=before) for line in found
        ]


def _lines(output: WorkerOutput, lines: Iterable[PodLine]) -> Iterator[Line]:
    return filter(None, (output.line(line.text, moment_of(line.stamp)) for line in lines))


def _too_many(pods: int) -> None:
    click.echo(
        f"following only the first {MAX_PODS} of {pods} workers; choose others with --rank",
        err=True,
    )
