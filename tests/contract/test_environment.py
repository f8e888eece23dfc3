"""The environment of a training process: what the agent writes there, the library reads there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from trainrun.contract import variables
from trainrun.contract.environment import Exchange, ProcessPlace, ResumePoint, place_of

ROOT = Path(__file__).parents[2]
SIDES = (ROOT / "operator" / "trainrun_operator", ROOT / "worker_image" / "trainrun")

NAMES = {value for name, value in vars(variables).items() if name.isupper()}
ELSEWHERE = {
    "worlds/kubernetes/fetch.py",  # runs before anything can be imported
    "agent/processes/standby_start.py",  # the same
    "agent/processes/rendezvous_wait.py",  # reads torch's own, where nothing of ours may be loaded
    "cluster/settings.py",  # the operator's own settings, agreed on with the chart
}

PLACE = ProcessPlace(
    run="digits",
    run_id="qds44i3a6xuei7e7",
    attempt=3,
    rank=5,
    world_size=8,
    local_rank=1,
    local_world_size=2,
    node_rank=2,
    master_addr="10.0.0.1",
    master_port=1234,
)


def test_a_place_is_read_as_it_was_written() -> None:
    assert ProcessPlace.read(PLACE.write()) == PLACE


@pytest.mark.parametrize("resume", [None, ResumePoint(attempt=2, step=7, uri="s3://b/step-7")])
@pytest.mark.parametrize("initial", [None, "s3://bucket/pretrained"])
def test_an_exchange_is_read_as_it_was_written(
    resume: ResumePoint | None, initial: str | None
) -> None:
    written = Exchange(
        socket=Path("/w/1.sock"),
        staging=Path("/w/staging"),
        control_file=Path("/w/control"),
        place=place_of(PLACE),
        resume=resume,
        initial=initial,
    )
    assert Exchange.read(written.write()) == written


def test_without_a_socket_there_is_no_agent() -> None:
    assert Exchange.read({variables.INITIAL: "s3://bucket/pretrained"}) is None


@pytest.mark.slow
def test_no_other_module_spells_the_name_of_a_variable() -> None:
    for side in SIDES:
        for path in sorted(side.rglob("*.py")):
            where = path.relative_to(side).as_posix()
            if where == "contract/variables.py" or where in ELSEWHERE:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    spelled = node.value in NAMES or re.fullmatch(r"TRAINRUN_\w+", node.value)
                    assert not spelled, f"{path}:{node.lineno}: {node.value}"
