"""Files of checkpoints, by content: what a script calls equal is equal, whatever the bytes."""

from __future__ import annotations

import collections
import gzip
import io
import json
import pickle
import random
import struct
import threading
from typing import Any

import pytest

from trainrun_operator.cli.drilling.checkpoint_digests import Entries, content


def read(data: bytes) -> Entries | None:
    return content(io.BytesIO(data), len(data))


def differing(one: bytes, other: bytes) -> list[str]:
    """The entries that two files have not alike."""
    a, b = read(one), read(other)
    assert a is not None
    assert b is not None
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))


class Own:
    """A class of a user's script."""

    def __init__(self, **state: Any) -> None:
        vars(self).update(state)


class Dangerous:
    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("raise SystemExit('it was run')",))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2.5}, {"b": 2.5, "a": 1}),
        ({"words": {"a", "b", "c"}}, {"words": {"c", "b", "a"}}),
        ({"betas": (0.9, 0.999)}, {"betas": [0.9, 0.999]}),
        ({"loss": float("nan")}, {"loss": float("nan")}),
        ({"step": 3}, {"step": 3.0}),
        ({"x": [shared := [1, 2], shared]}, {"x": [[1, 2], [1, 2]]}),
        (collections.OrderedDict(a=1, b=2), {"b": 2, "a": 1}),
        ({"o": Own(cache=1), "w": b"w"}, {"o": Own(cache=2), "w": b"w"}),
    ],
)
def test_pickles_of_equal_values_are_equal(one: object, other: object) -> None:
    assert differing(pickle.dumps(one), pickle.dumps(other)) == []


def test_what_differs_is_named_by_its_path() -> None:
    one = {
        "model": {"w": [1.0, 2.0]},
        "groups": [{"lr": 0.1}, {"lr": 0.2}],
        "rng": random.getstate(),
    }
    other = {**one, "groups": [{"lr": 0.1}, {"lr": 0.3}], "model": {"w": [1.0, 2.5]}}
    expected = ["groups.1.lr", "model.w"]
    assert differing(pickle.dumps(one), pickle.dumps(other)) == expected
    packed = [gzip.compress(json.dumps(it).encode()) for it in (one, other)]
    assert differing(*packed) == expected


def test_nothing_of_a_pickle_is_run() -> None:
    assert read(pickle.dumps([Dangerous(), {"a": 1}])) is not None


@pytest.mark.parametrize(
    "data",
    [
        b"step 3",
        pickle.dumps(Own(a=1)),
        pickle.dumps([1])[:-2],
        b"PK\x03\x04",
        b"\x93NUMPY\x01",
    ],
)
def test_of_what_cannot_be_read_only_bytes_can_be_compared(data: bytes) -> None:
    assert read(data) is None


def test_a_cycle_has_an_end() -> None:
    loop: dict[str, Any] = {"a": 1}
    loop["self"] = loop
    assert list(read(pickle.dumps(loop)) or {}) == ["a"]


def test_safetensors_are_compared_by_tensor_and_not_by_the_order_of_their_metadata() -> None:
    def file(metadata: dict[str, str], data: bytes) -> bytes:
        told = {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}
        head = json.dumps({"__metadata__": metadata, "w": told}).encode()
        return struct.pack("<Q", len(head)) + head + data

    assert differing(file({"a": "1", "b": "2"}, b"www"), file({"b": "2", "a": "1"}, b"www")) == []
    assert differing(file({"a": "1"}, b"www"), file({"a": "1"}, b"wwx")) == ["w"]


def saved(value: object) -> bytes:
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


@pytest.mark.slow
def test_the_commonest_checkpoint_of_pytorch_is_equal_to_itself_after_a_load() -> None:
    torch = pytest.importorskip("torch")
    numpy = pytest.importorskip("numpy")

    def state(model: Any, adam: Any, scaler: Any, step: int) -> bytes:
        return saved(
            {
                "model": model.state_dict(),
                "optimizer": adam.state_dict(),
                "scaler": scaler.state_dict(),
                "random": (random.getstate(), numpy.random.get_state(), torch.get_rng_state()),
                "step": step,
            }
        )

    def fresh() -> tuple[Any, Any, Any]:
        model = torch.nn.Linear(3, 2)
        return model, torch.optim.Adam(model.parameters()), torch.amp.GradScaler("cpu")

    model, adam, scaler = fresh()
    model(torch.ones(4, 3)).sum().backward()
    adam.step()
    before = state(model, adam, scaler, 3)
    loaded = torch.load(io.BytesIO(before), weights_only=False)
    model, adam, scaler = fresh()
    model.load_state_dict(loaded["model"])
    adam.load_state_dict(loaded["optimizer"])
    scaler.load_state_dict(loaded["scaler"])
    python, arrays, torchs = loaded["random"]
    random.setstate(python)
    numpy.random.set_state(arrays)
    torch.set_rng_state(torchs)
    after = state(model, adam, scaler, loaded["step"])
    assert after != before, "else this shows nothing"
    assert differing(before, after) == []
    torch.nn.init.zeros_(model.bias)
    assert differing(before, state(model, adam, scaler, 3)) == ["model.bias"]


@pytest.mark.slow
def test_tensors_are_compared_by_their_elements_and_not_by_what_they_share_with_others() -> None:
    torch = pytest.importorskip("torch")
    made = torch.arange(12.0).reshape(3, 4)
    for one, other in (
        (made.t(), made.t()),
        (made[1:], made[1:].clone()),
        (made[:, 1:], made[:, 1:]),
        (torch.nn.Parameter(made), made),
    ):
        assert differing(saved({"w": one}), saved({"w": other})) == []
    assert differing(saved({"w": made}), saved({"w": made.bfloat16()})) == ["w"]
    assert differing(saved({"w": made}), saved({"w": made.reshape(4, 3)})) == ["w"]
    assert differing(saved({"w": made.t()}), saved({"w": (made + 1).t()})) == ["w"]
    assert read(saved(made) + saved(made)) is None, "of two archives one would not be seen"
    assert read(saved(threading.Event)) is not None
    assert list(read(saved(torch.nn.Linear(2, 2))) or {}) != [], "its tensors are compared"


@pytest.mark.slow
def test_arrays_in_archives_are_compared_one_by_one() -> None:
    numpy = pytest.importorskip("numpy")

    def arrays(**named: Any) -> bytes:
        file = io.BytesIO()
        numpy.savez_compressed(file, **named)
        return file.getvalue()

    one = arrays(w=numpy.ones(3), odd=numpy.array([{"a": 1}, None], dtype=object))
    other = arrays(odd=numpy.array([{"a": 2}, None], dtype=object), w=numpy.ones(3))
    assert differing(one, one) == []
    assert differing(one, other) == ["odd.npy"]
