"""What may change in a stored TrainRun and what not, appearing and going included."""

from __future__ import annotations

from tests.api.spec_table.rows import Change

CHANGES = (
    Change("nothing", {}, {}),
    Change("suspend", {}, {"spec.suspend": True}),
    Change("a controller kept", {"spec.managedBy": "a.b/c"}, {"spec.managedBy": "a.b/c"}),
    Change("a controller added", {}, {"spec.managedBy": "a.b/c"}, frozenset({"spec.managedBy"})),
    Change("a controller removed", {"spec.managedBy": "a.b/c"}, {}, frozenset({"spec.managedBy"})),
    Change(
        "a controller changed",
        {"spec.managedBy": "trainrun.dev/operator"},
        {"spec.managedBy": "a.b/c"},
        frozenset({"spec.managedBy"}),
    ),
    Change("more failures", {}, {"spec.failurePolicy.maxFailures": 5}),
    Change("a new image", {}, {"spec.workers.template.metadata": {"labels": {"v": "2"}}}),
    Change("the default written out", {}, {"spec.workers.replicas": 1}),
    Change("the default taken out", {"spec.workers.replicas": 1}, {}),
    Change(
        "processes left to the command",
        {"spec.workers.processesPerWorker": 1},
        {},
        frozenset({"spec.workers.processesPerWorker"}),
    ),
    Change("a region", {}, {"spec.storage.region": "eu-central-1"}),
    Change(
        "another place",
        {},
        {"spec.storage.uri": "s3://bucket/other"},
        frozenset({"spec.storage.uri"}),
    ),
    Change("another size", {}, {"spec.workers.replicas": 2}, frozenset({"spec.workers.replicas"})),
    Change(
        "the size taken out",
        {"spec.workers.replicas": 4},
        {},
        frozenset({"spec.workers.replicas"}),
    ),
    Change(
        "more processes",
        {},
        {"spec.workers.processesPerWorker": 2},
        frozenset({"spec.workers.processesPerWorker"}),
    ),
    Change("a name added", {}, {"spec.storage.runName": "x"}, frozenset({"spec.storage.runName"})),
    Change(
        "a name removed", {"spec.storage.runName": "x"}, {}, frozenset({"spec.storage.runName"})
    ),
    Change(
        "a name changed",
        {"spec.storage.runName": "x"},
        {"spec.storage.runName": "y"},
        frozenset({"spec.storage.runName"}),
    ),
    Change(
        "other initial weights",
        {"spec.checkpoint.initialFrom": "s3://weights/1"},
        {"spec.checkpoint.initialFrom": "s3://weights/2"},
        frozenset({"spec.checkpoint.initialFrom"}),
    ),
    Change(
        "initial weights added",
        {},
        {"spec.checkpoint.initialFrom": "s3://weights/1"},
        frozenset({"spec.checkpoint.initialFrom"}),
    ),
    Change("a name kept", {"spec.storage.runName": "x"}, {"spec.storage.runName": "x"}),
)
