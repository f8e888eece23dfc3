"""`State.save(wait=False)`: what is restored is what was there at the call."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainrun
from tests.support.agent_stand_in import AgentStandIn
from tests.support.eventually import eventually
from trainrun._process import session
from trainrun.torch import State

MAY_WRITE = threading.Event()
FAULTS: list[Exception] = []


def held_up() -> int:
    """What `Slow` becomes in the thread that writes."""
    assert MAY_WRITE.wait(30)
    if FAULTS:
        raise FAULTS.pop()
    return 0


class Slow:
    """A value that takes long to write."""

    def __reduce__(self) -> tuple[Callable[[], int], tuple[()]]:
        return held_up, ()


class Part:
    """Something of a user's own that has a state."""

    def __init__(self, **state: Any) -> None:
        self.state: dict[str, Any] = state

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentStandIn]:
    """An agent whose only rank is this process; what is slow may be written from `MAY_WRITE` on."""
    session.close()
    MAY_WRITE.clear()
    with AgentStandIn(tmp_path) as stand_in:
        more = {"TRAINRUN_PROCESS": str(os.getpid()), "WORLD_SIZE": "1"}
        for name, value in stand_in.environment(**more).items():
            monkeypatch.setenv(name, value)
        with torch.serialization.safe_globals([held_up]):
            yield stand_in
        MAY_WRITE.set()
        session.close()


class Training:
    """A small model that is trained by hand: to make an optimizer of PyTorch takes five seconds."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Linear(3, 3)
        self.part = Part(held=0, counts=[0], momenta=[])
        self.state = State(model=self.net, part=self.part)

    def step(self) -> None:
        state = self.part.state
        state["momenta"] = state["momenta"] or [torch.zeros_like(p) for p in self.net.parameters()]
        with torch.no_grad():
            for parameter, momentum in zip(self.net.parameters(), state["momenta"], strict=True):
                parameter.add_(momentum.add_(1.0))
        state["counts"].append(len(state["counts"]))

    def values(self) -> list[Any]:
        """A copy of everything."""
        tensors = [*self.net.parameters(), *self.part.state["momenta"]]
        return [*(tensor.tolist() for tensor in tensors), list(self.part.state["counts"])]

    @classmethod
    def saved_in(cls, folder: Path) -> list[Any]:
        training = cls()
        training.state.read(folder)
        return training.values()


def staged(agent: AgentStandIn, step: int) -> Path:
    eventually(lambda: step in [saved["step"] for saved in agent.of_type("saved")])
    return agent.staging / f"step-{step:012d}"


def test_steps_that_follow_do_not_reach_the_checkpoint(agent: AgentStandIn) -> None:
    training, before = Training(), []
    training.part.state["held"] = Slow()
    for step in range(3):
        MAY_WRITE.clear()
        before.append(training.values())
        training.state.save(step, {"loss": 1.0}, wait=False)
        training.step()  # the first one begins the momenta
        trainrun.report(step=step)
        assert agent.of_type("saved")[step:] == []
        MAY_WRITE.set()
        staged(agent, step)
    for step in range(3):
        assert Training.saved_in(staged(agent, step)) == before[step]


def test_a_save_waits_while_the_one_before_is_written(agent: AgentStandIn) -> None:
    training = Training()
    training.part.state["held"] = Slow()
    training.state.save(1, wait=False)
    second = threading.Thread(target=training.state.save, args=(2,), kwargs={"wait": False})
    second.start()
    second.join(0.1)
    assert second.is_alive()
    MAY_WRITE.set()
    second.join(30)
    assert Training.saved_in(staged(agent, 2)) == training.values()


def test_a_write_that_fails_costs_its_step_only(
    agent: AgentStandIn, capfd: pytest.CaptureFixture[str]
) -> None:
    training = Training()
    training.part.state["held"] = Slow()
    FAULTS.append(OSError(28, "No space left on device"))
    MAY_WRITE.set()
    training.state.save(1, wait=False)
    training.state.save(2, wait=False)
    assert Training.saved_in(staged(agent, 2)) == training.values()
    (failed,) = agent.of_type("save-failed")
    why = "the save of rank 0 failed: OSError: [Errno 28] No space left on device"
    assert (failed["step"], failed["why"]) == (1, why)
    assert "no rank will have a checkpoint of step 1" in capfd.readouterr().err


def test_a_state_that_could_not_be_read_again_is_told_at_the_call(agent: AgentStandIn) -> None:
    state = State(part=Part(path=Path()))
    with pytest.raises(TypeError, match=r"contains pathlib.*, which torch.load\(weights_only=True"):
        state.save(1, wait=False)
    assert agent.of_type("report") == []


def test_a_save_that_was_asked_for_is_staged_when_the_call_returns(agent: AgentStandIn) -> None:
    agent.replies["save"] = lambda _: {
        "save": {"reason": "SIGTERM", "deadline": 20.0, "writer_rank": 0}
    }
    agent.prepare(1)
    assert trainrun.should_save()
    training = Training()
    training.state.save(1, wait=False)
    assert Training.saved_in(agent.staging / "step-000000000001") == training.values()


def test_without_memory_for_a_copy_a_save_waits_and_tells_it_once(
    agent: AgentStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(10**12))  # which share what is left
    training = Training()
    training.step()
    told = r"waits: a copy of the state needs 0 MB more memory, and 0 MB are left for it. Raise"
    with pytest.warns(UserWarning, match=told):
        training.state.save(1, wait=False)
    training.state.save(2, wait=False)
    for step in (1, 2):
        folder = agent.staging / f"step-{step:012d}"
        assert Training.saved_in(folder) == training.values()
