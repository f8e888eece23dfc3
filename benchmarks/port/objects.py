"""Objects that a user of one namespace makes: as large as the API server takes, or many.

Such a user needs no right that the role `edit` does not give. Each case is there as a whole before
an operator starts, which has to read all of it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.worlds.kubernetes.names import CREATION_LABEL, RUN_UID_LABEL, SLOT_LABEL

if TYPE_CHECKING:
    from trainrun_operator.kube.api import KubeApi

Manifest = dict[str, Any]
NAMESPACE = "stranger"
AT_ONCE = 4
LARGE = 1_200_000
"""Bytes of an object that is large; etcd takes 1.5 MB."""
UNREAD = "x-unread"
"""A field that nobody reads: the schema of a template is open."""


def _name(number: int) -> str:
    return f"stranger-{number:04d}"


def _run(number: int, **more: Any) -> Manifest:
    container = {"name": "worker", "image": "none", "command": ["python3", "train.py"]}
    return {
        **TRAINRUN.head(),
        "metadata": {"name": _name(number)},
        "spec": {
            "suspend": True,
            "workers": {
                "replicas": 1,
                "template": {"spec": {"containers": [container], **more}},
            },
            "storage": {"uri": "s3://bucket/runs"},
        },
    }


def _run_of(number: int, size: int) -> Manifest:
    """Most are texts that do not shrink; some parse to what is twenty times as large. With more of
    these it is the API server that needs all the memory."""
    text = random.Random(number).randbytes(size // 2).hex()
    odd = {0: ["7"] * (size // 4), 1: [{}] * (size // 3)}
    return _run(number, **{UNREAD: odd.get(number % 50, text)})


def _large_run(number: int) -> Manifest:
    return _run_of(number, LARGE)


def _readable_run(number: int) -> Manifest:
    """As large as is read."""
    return _run_of(number, 500 * 1024)


def _pod(number: int) -> Manifest:
    """It says of itself that it is a worker, and no node takes it. Some have a text that is sent in
    six times the bytes: "<" as "\\u003c"."""
    labels = {RUN_UID_LABEL: f"uid-{number}", SLOT_LABEL: "0", CREATION_LABEL: "1"}
    env = [{"name": f"V{at}", "value": "x" * 1000} for at in range(LARGE // 1030)]
    if number % 50 == 0:
        env = [{"name": "V", "value": "<" * 1_100_000}]
    tolerations = [{"key": f"k{at}", "operator": "Exists"} for at in range(2000)]
    container = {"name": "worker", "image": "none", "env": env}
    return {
        "metadata": {"name": _name(number), "labels": labels},
        "spec": {"containers": [container], "tolerations": tolerations},
    }


OBJECTS = {
    "large-runs": (TRAINRUN.path(NAMESPACE), _large_run, 500),
    "readable-runs": (TRAINRUN.path(NAMESPACE), _readable_run, 500),
    "small-runs": (TRAINRUN.path(NAMESPACE), _run, 2000),
    "large-pods": (f"/api/v1/namespaces/{NAMESPACE}/pods", _pod, 500),
}
"""Where, what, and how many."""


async def create(api: KubeApi, name: str) -> None:
    """All objects of a case."""
    path, make, _ = OBJECTS[name]
    await _each(name, lambda number: api.post(path, make(number), timeout=120))


async def delete(api: KubeApi, name: str) -> None:
    """All of them. One request for all takes longer than the API server waits."""
    path, _, _ = OBJECTS[name]
    now = {"gracePeriodSeconds": 0}
    await _each(name, lambda number: api.delete(f"{path}/{_name(number)}", body=now))


async def _each(name: str, act: Callable[[int], Awaitable[object]]) -> None:
    numbers = iter(range(OBJECTS[name][2]))

    async def hand() -> None:
        for number in numbers:
            await act(number)

    await asyncio.gather(*(hand() for _ in range(AT_ONCE)))
