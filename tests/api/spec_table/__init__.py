"""One table of specs, good and bad: the models, the CRD and a real API server must agree on it."""

from __future__ import annotations

from tests.api.spec_table import (
    checkpoint,
    failure_policy,
    health,
    progress,
    run,
    storage,
    workers,
)
from tests.api.spec_table.changes import CHANGES as CHANGES
from tests.api.spec_table.rows import BASE as BASE
from tests.api.spec_table.rows import Case as Case
from tests.api.spec_table.rows import Change as Change
from tests.api.spec_table.rows import changed as changed
from tests.api.spec_table.rows import containers as containers

PARTS = run, workers, storage, checkpoint, failure_policy, health, progress

VALID = tuple(case for part in PARTS for case in part.VALID)
INVALID = tuple(case for part in PARTS for case in part.INVALID)
