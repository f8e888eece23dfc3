"""A training that is killed while another library saves leaves no half checkpoint to commit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file

from tests.frameworks.killed_savers import LENGTH
from tests.support.agent_stand_in import AgentStandIn
from tests.support.eventually import eventually
from trainrun._common import writer_processes

pytestmark = pytest.mark.filterwarnings("ignore")

SCRIPT = Path(__file__).parent / "killed_savers.py"
KILLS = 20


def read_dcp(directory: Path) -> Any:
    found = {"weights": torch.zeros(LENGTH)}
    dcp.load(found, storage_reader=dcp.FileSystemReader(directory), no_dist=True)
    return found["weights"]


def read_lightning(directory: Path) -> Any:
    found = torch.load(directory / "lightning.ckpt", weights_only=False)
    [own] = directory.glob("*rank*")
    torch.load(own, weights_only=False)
    return found["state_dict"]["weights"]


def read_transformers(directory: Path) -> Any:
    weights = load_file(directory / "model.safetensors")["weights"]
    torch.load(directory / "optimizer.pt", weights_only=False)
    state = json.loads((directory / "trainer_state.json").read_text())
    assert state["global_step"] == weights[0]
    return weights


READ: Mapping[str, Callable[[Path], Any]] = {
    "torch.save": lambda directory: torch.load(directory / "model.pt")["weights"],
    "safetensors": lambda directory: load_file(directory / "model.safetensors")["weights"],
    "dcp": read_dcp,
    "orbax": lambda directory: ocp.StandardCheckpointer().restore(directory / "state")["weights"],
    "lightning": read_lightning,
    "transformers": read_transformers,
}
"""The weights of a checkpoint; raises if anything of it is missing or half."""


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[list[AgentStandIn]]:
    """One for each training."""
    with ExitStack() as stack:
        folders = [tmp_path / str(number) for number in range(KILLS)]
        for folder in folders:
            folder.mkdir()
        yield [stack.enter_context(AgentStandIn(folder)) for folder in folders]


def kill_each(agents: list[AgentStandIn], library: str, *more: str) -> None:
    """Let each train and be killed; `more`: `after`, if their reports say when a save ends."""
    envs = [agent.environment(WORLD_SIZE="1", OUT=str(agent.folder / "out")) for agent in agents]
    ended = subprocess.run(
        [sys.executable, SCRIPT, library, json.dumps(envs), *more],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]


def announced(agent: AgentStandIn) -> dict[int, Path]:
    """What an agent would upload, and not give up because it has changed since."""
    told = [told for told in (*agent.of_type("report"), *agent.of_type("saved")) if told["files"]]
    found = {int(str(it["step"])): (agent.staging / str(it["files"]), it["digest"]) for it in told}
    return {
        step: directory
        for step, (directory, digest) in found.items()
        if writer_processes.digest(writer_processes.look(directory)) == digest
    }


def assert_whole(agents: list[AgentStandIn], read: Callable[[Path], Any]) -> None:
    """Each announced checkpoint has the weights of its step."""
    for step, directory in [it for agent in agents for it in announced(agent).items()]:
        weights = read(directory)
        assert (len(weights), set(weights.tolist())) == (LENGTH, {float(step)}), directory


@pytest.mark.parametrize("library", READ)
def test_a_save_that_is_killed_at_any_moment_is_committed_whole_or_not_at_all(
    agents: list[AgentStandIn], library: str
) -> None:
    kill_each(agents, library, "after")
    eventually(lambda: len([it for agent in agents for it in announced(agent)]) > KILLS / 4)
    assert [agent.of_type("save-failed") for agent in agents] == [[]] * KILLS
    assert_whole(agents, READ[library])


WITHOUT: Mapping[str, Callable[[Path], Any]] = {
    name: READ[name] for name in ("torch.save", "safetensors", "dcp", "orbax")
} | {
    "lightning": lambda it: torch.load(it / "lightning.ckpt", weights_only=False)["state_dict"][
        "weights"
    ]
}
"""The Trainer of transformers saves before its callback is called, so it is not here."""


@pytest.mark.parametrize("library", WITHOUT)
def test_a_save_of_which_no_end_was_told_is_whole_or_refused_with_the_line_that_tells_it(
    agents: list[AgentStandIn], library: str
) -> None:
    kill_each(agents, library)
    assert_whole(agents, WITHOUT[library])
    told = [agent.folder / "out" for agent in agents]
    lines = [line for it in told if it.exists() for line in it.read_text().splitlines()]
    refused = [line for line in lines if line.startswith("CheckpointUnfinished ")]
    assert refused, lines
    assert all("Pass the end of its save as report(..., after=...)" in it for it in refused)
