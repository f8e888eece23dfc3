"""Files that ranks bring for checkpoint steps: at once, when a pending save has ended, or never.

Layer: agent. Of one attempt.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trainrun.agent.checkpoints.staged import StagedSteps, StagingCapacity
from trainrun.agent.checkpoints.uploads import Uploads
from trainrun.contract.messages import Report, Saved, SaveFailed, Unstaged, given_up

LOG = logging.getLogger("trainrun.agent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bringing:
    """Passes the ranks' messages about files on to the staged steps and the uploads."""

    staged: StagedSteps
    rooms: StagingCapacity
    uploads: Uploads
    folders: Mapping[int, Path]
    """Staging folders by rank."""
    asked: Container[int]
    """Ranks that were asked to save."""
    news: Callable[[], None]
    """Called when something changed that the operator waits for."""

    def reported(self, rank: int, report: Report) -> bool:
        """`rank` has reported a step; return whether that changed a checkpoint."""
        after_save = rank in self.asked
        if report.pending:
            self.staged.pend(rank, report, after_save=after_save, now=time.monotonic())
        self._take(rank, report, after_save=after_save)
        awaited = self.staged.reports(rank, report.step, nothing=report.nothing)
        self.drop_lost()
        if report.files is None and not report.pending and not awaited:
            return False
        self._changed()
        return True

    def unstaged(self, rank: int, unstaged: Unstaged) -> None:
        """The files of a step could not be staged."""
        self.rooms.used(rank)
        self.rooms.wake()
        self.staged.lacks(rank, unstaged.step)

    def saved(self, rank: int, saved: Saved) -> None:
        """The save of a step that `rank` reported earlier has ended."""
        begun = self.staged.saved(rank, saved.step, time.monotonic())
        report = replace(begun, files=saved.files, left=saved.left, digest=saved.digest)
        self._take(rank, report, after_save=False)  # decided when the save began
        self.staged.reports(rank, saved.step, nothing=True)
        self._changed()

    def save_failed(self, rank: int, failed: SaveFailed) -> None:
        """It has failed."""
        self.rooms.used(rank)
        if self.staged.save_failed(rank, failed.step):
            self.uploads.give_up(failed.step, given_up(failed.step, failed.why))
        self._changed()

    def taken(self, report: Report) -> None:
        """The agent itself has staged files for a step, from the script's folder."""
        self._take(min(self.folders), report, after_save=False)
        self.staged.pass_all(report.step)
        self._changed()

    def lacks(self, step: int) -> None:
        """The script's folder on this worker has nothing for a step."""
        self.staged.pass_all(step)
        self._changed()

    def lacks_all(self) -> None:
        """Nor for any other step of the attempt."""
        self.staged.pass_every()
        self._changed()

    def drop_lost(self) -> None:
        """Drop steps that lack files of a rank."""
        for step in self.staged.lost():
            LOG.warning(
                "files for step %d could not be staged and their rank continued, so no rank will "
                "have a checkpoint of this step",
                step,
            )
            self.uploads.drop(step)
            self.news()

    def _take(self, rank: int, report: Report, *, after_save: bool) -> None:
        folder = self.folders[rank]
        if report.left:
            self.uploads.torn.left(folder / report.left, report.step)
        if report.files is None:
            return
        self.rooms.used(rank)
        files, now = folder / report.files, time.monotonic()
        if not self.staged.bring(rank, report, files, after_save=after_save, now=now):
            self.uploads.remove([files])

    def _changed(self) -> None:
        self.uploads.wake()
        self.rooms.wake()
        self.news()
