"""Each part of a State comes back as it was, or an error says why not."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset

from trainrun.torch import ResumableLoader, State


class Counter:
    """Something of a user's own that has a state."""

    def __init__(self, count: Any = 0) -> None:
        self.count = count

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


class Deaf(Counter):
    """Takes nothing over."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Forgotten."""


class Lazy(Counter):
    """Takes its state over where its next iteration begins, as datasets and samplers do."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.next = state["count"]

    def __iter__(self) -> Any:
        self.count = self.next
        return iter(())


@pytest.mark.case(
    "script", "A part of trainrun.torch.State cannot be put back", counted="maxFailures"
)
@pytest.mark.parametrize(
    ("saved", "fresh", "named"),
    [
        (7, 0, "['count']"),
        (float("nan"), 0.0, "['count']"),
        (torch.ones(2), torch.zeros(2), "['count']"),
        ({"seen": [1, 2]}, {"seen": []}, "['count']['seen']"),
        ({"seen": {"a": 1}}, {"seen": {}}, "['count']['seen']"),
        ([(1, 2.0)], [(1, 3.0)], "['count'][0][1]"),
    ],
)
def test_a_part_that_does_not_take_its_state_over_is_named_with_what_is_missing(
    tmp_path: Path, saved: object, fresh: object, named: str
) -> None:
    State(mine=Deaf(saved)).write(tmp_path)
    with pytest.raises(ValueError, match="load_state_dict") as told:
        State(mine=Deaf(fresh)).read(tmp_path)
    assert str(told.value) == (
        f"State(mine=...): load_state_dict() of a Deaf did not restore state_dict(){named}: "
        "restore it there, or leave it out of state_dict()"
    )


class Clock(Counter):
    """Says another time whenever it is asked."""

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "seconds": random.random()}


class Converting(Counter):
    """Keeps what it takes over in another form."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = torch.as_tensor(state["count"]).half()


class Late(Counter):
    """Has no state before its first step."""

    def state_dict(self) -> dict[str, Any]:
        if self.count == 0:
            raise RuntimeError("not begun")
        return super().state_dict()


@pytest.mark.parametrize("kind", [Counter, Lazy, Clock, Converting, Late])
@pytest.mark.parametrize("saved", [7.5, float("nan"), torch.full((2,), float("nan"))])
def test_a_part_that_comes_back_in_its_own_way_is_not_refused(
    tmp_path: Path, kind: type[Counter], saved: Any
) -> None:
    State(mine=Clock(saved)).write(tmp_path)
    taken = kind()
    State(mine=taken).read(tmp_path)
    list(taken) if isinstance(taken, Lazy) else None
    assert torch.allclose(
        torch.as_tensor(taken.count).float(), torch.as_tensor(saved), equal_nan=True
    )


@pytest.mark.parametrize("streaming", [False, True])
def test_an_iteration_that_began_before_the_load_does_not_go_on_in_other_data(
    streaming: bool,
) -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Any:
            return iter(range(8))

    def loader() -> ResumableLoader:
        data: Any = Stream() if streaming else list(range(8))
        return ResumableLoader(data, 2)

    given, taken = loader(), loader()
    begun = iter(given)
    next(begun)
    next(begun)
    not_begun, old = iter(taken), iter(taken)
    next(old)
    taken.load_state_dict(given.state_dict())
    assert next(not_begun).tolist() == [4, 5]
    with pytest.raises(RuntimeError, match=r"began before its state was loaded: call iter\(\)"):
        next(old)
