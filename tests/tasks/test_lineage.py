"""Results that are lost are made again by whoever wants them, each once, and with a limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tasks.programs import Programs

pytestmark = pytest.mark.slow

CHAIN = "a; b: a; c: b"
DIAMOND = "a; b: a; c: a; d: b c"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Programs]:
    """A program whose tasks run one at a time."""
    made = Programs(tmp_path / "graph", "graph.py", env={"TRAINRUN_TASKS_CPUS": "1"})
    yield made
    made.close()


def begin(graph: Programs, words: str, wanted: str, **env: object) -> None:
    graph.run(words, wanted, **env)
    assert graph.ran


@pytest.mark.case(
    "tasks",
    "A task's result is deleted, truncated, flipped or replaced",
    counted="max_reconstructions of the task",
)
def test_a_chain_whose_results_are_all_lost_runs_once_more_from_its_beginning(
    graph: Programs,
) -> None:
    begin(graph, CHAIN, "c")
    graph.forget("a", "b", "c")
    assert graph.run(CHAIN, "c") == ["c(b(a()))"]
    assert graph.ran == ["a", "b", "c"]


def test_only_what_somebody_wants_is_made_again(graph: Programs) -> None:
    begin(graph, CHAIN, "c")
    graph.forget("b")
    assert graph.run(CHAIN, "c") == ["c(b(a()))"]
    assert graph.ran == []
    assert graph.run(CHAIN, "b") == ["b(a())"]
    assert graph.ran == ["b"]


def test_a_copy_on_the_node_is_found_before_anything_runs_again(graph: Programs) -> None:
    begin(graph, CHAIN, "c")
    graph.forget("a", "b", "c", copies=False)
    assert graph.run(CHAIN, "a", "b", "c") == ["a()", "b(a())", "c(b(a()))"]
    assert graph.ran == []


def test_what_two_tasks_need_is_made_again_once(graph: Programs) -> None:
    begin(graph, DIAMOND, "d")
    graph.forget("a", "b", "c", "d")
    assert graph.run(DIAMOND, "d") == ["d(b(a()),c(a()))"]
    assert graph.ran == ["a", "b", "c", "d"]


def test_two_lost_results_of_one_task_are_made_again_by_one_rebuild(graph: Programs) -> None:
    begin(graph, "twins", "twins.0")
    graph.forget("twins.0", "twins.1")
    assert graph.run("twins", "twins.0", "twins.1") == ["twins0", "twins1"]
    assert graph.ran == ["twins"]


def test_an_ancestor_that_is_lost_during_a_rebuild_is_made_again_once(graph: Programs) -> None:
    begin(graph, DIAMOND, "d")
    graph.forget("b", "c", "d")
    assert graph.run(DIAMOND, "d", FORGETS={"b": "a"}) == ["d(b(a()),c(a()))"]
    assert graph.ran == ["a", "b", "c", "d"]


@pytest.mark.case("tasks", "A lost result may not be computed again", counted="the task fails")
@pytest.mark.parametrize(
    ("reason", "words", "env"),
    [
        ("LineageDisabled", "a", {"RUN": {"lineage": "off"}}),
        ("LineageEvicted", "a", {"RUN": {"lineage_limit": 0}}),
        ("RetriesDisabled", "a", {"OPTIONS": {"max_retries": 0}}),
        ("ReconstructionsExceeded", "a", {"OPTIONS": {"max_reconstructions": 0}}),
    ],
)
def test_what_may_not_be_made_again_says_why_with_key_and_remedy(
    graph: Programs, reason: str, words: str, env: dict[str, object]
) -> None:
    graph.run(words, words, **env)
    graph.forget(words)
    (said,) = graph.run(words, words, **env)
    assert said.startswith(f"{reason}: ")
    assert graph.key(words)[:12] in said
    assert graph.ran == ["a"]


def test_a_rebuild_counts_in_every_later_program(graph: Programs) -> None:
    limit = {"max_reconstructions": 1}
    begin(graph, "a", "a", OPTIONS=limit)
    graph.forget("a")
    assert graph.run("a", "a", OPTIONS=limit) == ["a()"]
    graph.forget("a")
    (said,) = graph.run("a", "a", OPTIONS=limit)
    assert said.startswith("ReconstructionsExceeded: ")


def test_a_value_of_put_that_is_lost_is_named_and_the_program_that_puts_it_again_goes_on(
    graph: Programs,
) -> None:
    (said,) = graph.run("put; a; b: put", "b", FORGETS={"a": "put"})
    assert said.startswith("Put: ")
    assert graph.key("put")[:12] in said
    assert "Make the value in a task instead" in said
    assert graph.run("put; a; b: put", "b") == ["b(put)"]
