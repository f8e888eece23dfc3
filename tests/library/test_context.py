from __future__ import annotations

import pytest

import trainrun
from trainrun._process.context import Context


def test_plain_python_is_rank_0_of_1_in_attempt_1() -> None:
    context = trainrun.get_context()
    assert (context.run, context.run_id, context.attempt) == ("local", "", 1)
    assert (context.rank, context.world_size) == (0, 1)
    assert (context.local_rank, context.local_world_size, context.node_rank) == (0, 1, 0)
    assert (context.master_addr, context.master_port) == ("127.0.0.1", 29500)


def test_under_torchrun_it_says_what_torchrun_says() -> None:
    context = Context.read(
        {
            "RANK": "5",
            "WORLD_SIZE": "8",
            "LOCAL_RANK": "1",
            "LOCAL_WORLD_SIZE": "2",
            "GROUP_RANK": "2",
            "MASTER_ADDR": "node-0",
            "MASTER_PORT": "1234",
            "TORCHELASTIC_RUN_ID": "job-7",
            "TORCHELASTIC_RESTART_COUNT": "3",
        }
    )
    assert (context.run, context.attempt, context.node_rank) == ("job-7", 4, 2)
    assert (context.master_addr, context.master_port) == ("node-0", 1234)


def test_under_an_agent_run_and_attempt_are_the_operators() -> None:
    context = Context.read(
        {
            "TRAINRUN_RUN": "digits",
            "TRAINRUN_RUN_ID": "qds44i3a6xuei7e7",
            "TRAINRUN_ATTEMPT": "3",
            "TORCHELASTIC_RUN_ID": "x",
            "TORCHELASTIC_RESTART_COUNT": "2",
            "NODE_RANK": "1",
            "GROUP_RANK": "1",
        }
    )
    assert (context.run, context.attempt, context.node_rank) == ("digits", 3, 1)
    assert context.run_id == "qds44i3a6xuei7e7"


def test_rays_getters_say_the_same_as_the_attributes() -> None:
    env = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    context = Context.read({**env, "NODE_RANK": "2", "TRAINRUN_RUN": "digits"})
    assert context.get_world_rank() == context.rank == 5
    assert context.get_world_size() == context.world_size == 8
    assert context.get_local_rank() == context.local_rank == 1
    assert context.get_local_world_size() == context.local_world_size == 2
    assert context.get_node_rank() == context.node_rank == 2
    assert context.get_experiment_name() == context.run == "digits"


def test_a_variable_that_is_no_number_is_named() -> None:
    with pytest.raises(ValueError, match="environment variable RANK is 'first', which is not"):
        Context.read({"RANK": "first"})
