"""What the processes of a run are told, so that trackers know it again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.agent.workers import start
from trainrun.contract import variables

if TYPE_CHECKING:
    from tests.agent.workers import Workers
    from tests.support.operator_stand_in import OperatorStandIn

ASK = (
    "import os, trainrun\n"
    "asked = ('TRAINRUN_RUN_ID', 'WANDB_RUN_ID', 'WANDB_RESUME')\n"
    "print(trainrun.get_context().run_id or 'none', *(os.environ.get(k) or '-' for k in asked))\n"
)


def told(
    operator: OperatorStandIn, workers: Workers, *lines: str, run_id: str = "abc234", **env: str
) -> None:
    """Two ranks, with `env` in their container, say these lines."""
    nothing = {variables.WANDB_RUN_ID: None, variables.WANDB_RESUME: None}  # of whoever tests
    worker = workers.start(ASK, processes_per_worker=2, env={**nothing, **env})
    operator.order(replace(start(per_worker=2), run_id=run_id))
    operator.until(lambda s: len(s.exits) == 2)
    for line in lines:
        worker.shows(f"{line}\n")


def test_every_rank_knows_the_id_and_rank_0_alone_is_told_to_resume_in_wandb(
    operator: OperatorStandIn, workers: Workers
) -> None:
    told(
        operator,
        workers,
        "[rank 0] abc234 abc234 abc234 allow",
        "[rank 1] abc234 abc234 - -",
    )


def test_what_the_container_says_of_wandb_stands(
    operator: OperatorStandIn, workers: Workers
) -> None:
    told(
        operator,
        workers,
        "[rank 0] abc234 abc234 mine must",
        "[rank 1] abc234 abc234 mine must",
        WANDB_RUN_ID="mine",
        WANDB_RESUME="must",
    )


def test_where_no_id_is_known_nothing_is_set_and_none_of_an_outer_run_is_left(
    operator: OperatorStandIn, workers: Workers
) -> None:
    told(operator, workers, "[rank 0] none - - -", run_id="", TRAINRUN_RUN_ID="outer")
