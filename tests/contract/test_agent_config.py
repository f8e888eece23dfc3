"""The configuration of an agent, as JSON."""

from __future__ import annotations

import pytest

from trainrun.contract.agent_config import AgentConfig, BadConfig, KillFault, StorageConfig


def test_the_configuration_survives_its_json() -> None:
    config = AgentConfig(
        run="r",
        run_uid="u",
        slot=3,
        worker="r-3-1",
        operator_url="http://x",
        directory="/d",
        cache="/c",
        storage=StorageConfig(uri="file:///s", run_name="r", region="eu"),
        processes_per_worker=2,
        command=("python", "t.py"),
        env={"A": "1"},
        parent_pid=7,
        gpus=(1, 2),
        faults=(KillFault(rank=1, step=2, mark="/faults/0"),),
        tell_at=(2,),
    )
    assert AgentConfig.from_json(config.to_json()) == config
    assert config.first_rank == 6


def test_a_bad_configuration_names_the_field() -> None:
    with pytest.raises(BadConfig, match="field run is missing"):
        AgentConfig.from_json("{}")
