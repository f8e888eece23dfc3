"""What tells a warm start from a cold one is noticed, so that finding nothing means something."""

from __future__ import annotations

from typing import Any

import pytest

from tests.agent.processes.same_start import differences, differences_of_torch

OF_CHILD = [["train.py"], ["/code"], "__mp_main__", "0", ["HOME", "MASTER_PORT"]]
START: dict[str, Any] = {
    "modules": ["os", "sys"],
    "importers": ["/code", "/lib"],
    "path": ["/code", "/lib"],
    "environ": {"HOME": "/root", "MASTER_PORT": "1"},
    "environ of children": ["HOME=/root", "MASTER_PORT=1"],
    "handlers": {"SIGINT": "default"},
    "spawn": OF_CHILD,
    "forkserver": OF_CHILD,
    "fork": OF_CHILD,
}
TORCH: dict[str, Any] = {
    "drawn": [0.5, [1, 2], 7],
    "modules": 1000,
    "environment": {"HOME": "/root", "MASTER_PORT": "1"},
    "loaders": {"fork": [{"environment": ["HOME", "MASTER_PORT"], "numbers": [0.1]}]},
}
NEXT = {"environ": {"HOME": "/root", "MASTER_PORT": "2"}}
NEXT_OF_CHILDREN = {"environ of children": ["HOME=/root", "MASTER_PORT=2"]}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"handlers": {"SIGINT": "ignored"}}, "handlers SIGINT: cold 'default', warm 'ignored'"),
        ({"modules": ["sys"]}, "modules: ['os'] are missing"),
        ({"fork": [*OF_CHILD[:4], ["HOME"]]}, "fork 4: cold alone ['MASTER_PORT'], warm alone []"),
        (NEXT, "environ MASTER_PORT: cold '1', warm '2'"),
    ],
)
def test_whatever_a_script_could_notice_is_named(changed: dict[str, Any], told: str) -> None:
    assert differences(START, START) == []
    assert differences(START, {**START, **changed}) == [told]


def test_more_modules_and_more_folders_looked_into_are_what_a_preload_is() -> None:
    more = {"modules": ["os", "sys", "torch"], "importers": ["/lib", "/lib/torch"]}
    assert differences(START, {**START, **more}) == []


def test_what_each_attempt_is_told_anew_may_differ_between_attempts() -> None:
    later = {**START, **NEXT, **NEXT_OF_CHILDREN}
    assert differences(START, later, attempts_differ=True) == []
    elsewhere = {**later, "environ": {"HOME": "/", "MASTER_PORT": "2"}}
    assert differences(START, elsewhere, attempts_differ=True) == [
        "environ HOME: cold '/root', warm '/'"
    ]


def test_processes_that_draw_the_same_numbers_are_noticed_and_loaders_that_do_not() -> None:
    other = {**TORCH, "drawn": [0.6, [3, 4], 8]}
    assert differences_of_torch(TORCH, other) == []
    assert differences_of_torch(TORCH, {**other, "drawn": [0.5, [3, 4], 8]}) == ["both drew 0.5"]
    assert differences_of_torch(TORCH, {**other, "modules": 10}) == [
        "a warm start has fewer modules"
    ]
    drew = {"fork": [{"environment": ["HOME", "MASTER_PORT"], "numbers": [0.2]}]}
    assert differences_of_torch(TORCH, {**other, "loaders": drew}, attempts_differ=True) == [
        "loaders fork 0 numbers 0: cold 0.1, warm 0.2"
    ]
