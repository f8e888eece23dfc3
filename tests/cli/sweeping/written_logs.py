"""Logs of sweeps that nobody has run, and `trainrun sweep` asked about them."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from tests.cli.sweeping.local_sweeps import Sweeps
from trainrun.checkpoint import RunStore, open_store
from trainrun.checkpoint.sweep_log import SweepLog
from trainrun.sweep.records import Record, SweepSession
from trainrun_operator.api.loading import load
from trainrun_operator.api.sweep.resource import TRAINSWEEP
from trainrun_operator.cli.commands import trainrun
from trainrun_operator.core.sweep.config import immutable_part


def ask(*words: str | Path) -> Result:
    return CliRunner().invoke(trainrun, ["sweep", *map(str, words)])


def write(sweeps: Sweeps, *records: Record) -> Path:
    """A log of this sweep; returns its file."""
    file = sweeps.file()
    sweeps.storage.mkdir()
    spec = load(file.read_text(), TRAINSWEEP, source="").spec
    log = SweepLog(RunStore(open_store(sweeps.storage.as_uri()), "lr"))
    for record in (SweepSession(uid="me", spec=immutable_part(spec)), *records):
        assert log.append(record)
    return file
