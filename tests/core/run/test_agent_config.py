"""What every agent of a run is told at its start."""

from __future__ import annotations

from tests.core.run.test_config import a_resource
from trainrun_operator.core.run.config import agent_config, config_of


def test_agents_are_told_what_the_spec_says_and_who_they_are_is_left_to_the_world() -> None:
    run = a_resource()
    told = agent_config(run, config_of(run))
    assert (told.run, told.slot, told.worker, told.operator_url) == (run.metadata.name, 0, "", "")
    settings = told.settings
    assert (settings.heartbeat_timeout, settings.flush_timeout) == (30.0, 30.0)
    assert (told.workers, told.processes_per_worker) == (config_of(run).replicas, 1)
    assert (settings.keep, settings.max_pending, settings.on_notice) == (3, 2, "Auto")


def test_agents_are_told_what_standbys_import_and_nothing_where_there_are_none() -> None:
    cold = a_resource()
    workers = cold.spec.workers.to_json_object()
    warm = a_resource(workers={**workers, "warmStart": {"preload": ["torch", "lightning"]}})
    assert agent_config(cold, config_of(cold)).preload == ()
    assert agent_config(warm, config_of(warm)).preload == ("torch", "lightning")
