"""Copies of a state: what is written of them is what the state was when it was copied."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from trainrun.torch.snapshot import SnapshotBuffers


@st.composite
def tensors(draw: st.DrawFn) -> list[torch.Tensor]:
    """Tensors that share storages: tied, views, strided, transposed."""
    kinds = st.sampled_from([torch.float32, torch.int64, torch.bfloat16, torch.bool])
    bases = [
        torch.arange(24, dtype=torch.float32).to(draw(kinds)).reshape(4, 6)
        for _ in range(draw(st.integers(1, 3)))
    ]
    views: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda base: base,
        lambda base: base[1:3],
        lambda base: base.t(),
        lambda base: base[:, ::2],
        lambda base: base.expand(2, 4, 6),
        lambda base: base.clone().to_sparse(),
        lambda base: nn.Parameter(base, requires_grad=base.is_floating_point()),
    ]
    picks = st.tuples(st.sampled_from(bases), st.sampled_from(views))
    return [view(base) for base, view in draw(st.lists(picks, min_size=1, max_size=6))]


def ties(of: list[torch.Tensor]) -> list[int]:
    """For each tensor the first one that shares its storage."""
    places = [0 if t.is_sparse else t.untyped_storage().data_ptr() for t in of]
    return [places.index(place) for place in places]


def saved(content: object) -> Any:
    file = io.BytesIO()
    torch.save(content, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.filterwarnings("ignore:Validating sparse tensor")
@settings(deadline=None, max_examples=20)
@given(st.lists(tensors(), min_size=1, max_size=3))
def test_a_copy_is_saved_as_the_state_itself_was(saves: list[list[torch.Tensor]]) -> None:
    buffers = SnapshotBuffers()
    for state in saves:
        expected = saved({"state": state, "more": [1]})
        content: dict[str, Any] = {"state": state, "more": [1]}
        copy = buffers.copy(content)
        assert callable(copy)
        with torch.no_grad():
            for tensor in state:
                (tensor._values() if tensor.is_sparse else tensor.untyped_storage()).fill_(1)
        content["more"].append(2)
        found = saved(copy())
        assert found["more"] == [1]
        assert ties(found["state"]) == ties(state)
        for one, other, original in zip(found["state"], expected["state"], state, strict=True):
            assert torch.equal(one.to_dense(), other.to_dense())
            assert (type(one), one.requires_grad) == (type(original), original.requires_grad)
            if not one.is_sparse:
                assert one.stride() == original.stride()


def test_buffers_are_used_again_and_grow_with_the_state() -> None:
    buffers, state = SnapshotBuffers(), [torch.zeros(8), torch.zeros(16)]

    def places() -> list[int]:
        copy = buffers.copy(state)
        assert callable(copy)
        return [tensor.data_ptr() for tensor in copy()]

    first = places()
    assert places() == first
    state.append(torch.zeros(4))
    assert places()[:2] == first
