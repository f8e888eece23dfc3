"""Which process of `make test` runs what: what must not be torn apart goes to one of them."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

FIRST_CLUSTER = "the operator's cluster"
SECOND_CLUSTER = "the operator's second cluster"
IN_THE_SECOND_CLUSTER = (
    "own_limits",
    "preemption",
    "readme",
    "rules",
    "sweeps",
    "sweeps_outlive",
    "tasks",
    "training",
    "two_runs",
    "users",
    "workers",
)
"""Files of `tests/e2e` whose tests run in a cluster of their own beside the others: one after the
other, all of that folder would take longer than everything else together. Half of its minutes."""

CLUSTER_ITSELF = "the cluster itself"

TOGETHER = {
    **{f"tests/e2e/test_{name}.py": SECOND_CLUSTER for name in IN_THE_SECOND_CLUSTER},
    "tests/e2e/": FIRST_CLUSTER,
    "tests/e2e_cluster/": CLUSTER_ITSELF,
    "tests/images/": CLUSTER_ITSELF,
    "tests/chart/": CLUSTER_ITSELF,
    "tests/api/test_on_a_server.py": CLUSTER_ITSELF,
    "tests/api/test_resources.py": CLUSTER_ITSELF,
    "tests/api/sweep/test_on_a_server.py": CLUSTER_ITSELF,
    "tests/cluster/": CLUSTER_ITSELF,
    "tests/kube/": CLUSTER_ITSELF,
    "tests/worlds/kubernetes/": CLUSTER_ITSELF,
    "tests/agent/test_injected.py": "the archive",
    "tests/core/run/incidents/test_false_alarms.py": "days of training",
    "tests/cli/test_commands.py": "a finished run",
    "tests/cli/test_drill.py": "an undisturbed run for drills",
    "tests/cli/test_drill_habits.py": "undisturbed runs of each habit",
    "tests/packaging/test_extras.py": "the wheel",
    "tests/tasks/test_ends.py": "all ends of a task",
    "tests/torch/test_exact_resume.py": "an undisturbed training",
    "tests/torch/test_sharded.py": "an undisturbed training in shards",
    "tests/worlds/local/test_generations.py": "a run of which there are generations",
    "tests/frameworks/test_accelerate.py": "an undisturbed loop of Accelerate",
    "tests/frameworks/test_fsdp2.py": "an undisturbed loop with shards",
    "tests/frameworks/test_lightning.py": "an undisturbed Lightning Trainer",
    "tests/frameworks/test_transformers.py": "an undisturbed Hugging Face Trainer",
}
"""Tests that run one after the other in one of the processes of `make test`, by the beginning of
their path: they share a cluster, an API server or something built, or build what others load, or
compare with one run. Everything else goes to whoever is free."""

BEGUN = (
    (FIRST_CLUSTER, SECOND_CLUSTER),
    (CLUSTER_ITSELF,),
    ("tests/agent/", "tests/cli/", "tests/docs/", "tests/examples/", "tests/tasks/"),
    ("tests/torch/", "tests/worlds/local/"),
)
"""What is begun in this order, before all others: what takes longest, then tests that wait for more
than a second. Those that are over at once come last, so that all processes end together."""


def _together(nodeid: str) -> str:
    if nodeid.endswith(f"[{SECOND_CLUSTER}]"):
        return SECOND_CLUSTER
    return next((what for path, what in TOGETHER.items() if nodeid.startswith(path)), nodeid)


def _turn(nodeid: str) -> int:
    what = _together(nodeid)
    turns = (n for n, begun in enumerate(BEGUN) if what in begun or nodeid.startswith(begun))
    return next(turns, len(BEGUN))


class Together(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each of the processes of `make test` what must not be torn apart."""

    def _split_scope(self, nodeid: str) -> str:
        return _together(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    """Let `pytest -n 2` use it. (The mark xdist_group does the same up to pytest 9.1.)"""
    config.option.loadscopereorder = False  # the order of the tests counts, not how many there are
    return Together(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests of a process of `pytest -n` into the order in which they are given out."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _turn(item.nodeid))
