"""Random programs of up to twelve tasks, and what each result is when nothing goes wrong."""

from __future__ import annotations

import base64
import random
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

from trainrun.tasks.calls import Call, ObjectRef, ProgramOptions, TaskOptions
from trainrun.tasks.records import Output

Kind = Literal["task", "put"]


@dataclass(frozen=True)
class Node:
    """A task of the program, or a value of `put`."""

    key: str
    kind: Kind = "task"
    inputs: tuple[ObjectRef, ...] = ()
    options: TaskOptions = field(default_factory=TaskOptions)
    inline: bool = False
    raises: bool = False
    flaky: float = 0.0
    """Chance that a try raises what is retried."""
    seconds: float = 1.0
    changes: bool = False
    """Each try returns something else."""

    @property
    def refs(self) -> tuple[ObjectRef, ...]:
        """Of its results."""
        return tuple(ObjectRef(self.key, index) for index in range(self.options.num_returns))

    @property
    def call(self) -> Call:
        """As the program makes it."""
        return Call(
            key=self.key,
            function="m:f",
            arguments=b"x" * 10,
            inputs=self.inputs,
            options=self.options,
            shown=f"f({self.key})",
        )

    def output(self, ref: ObjectRef, value: str) -> Output:
        """A value is a digest: so an object is damaged where it holds another one."""
        inline = base64.b64encode(value.encode()).decode() if self.inline else ""
        kept: Literal["Node", "Store"] = "Store"
        if self.options.keep == "node" and not self.inline and self.kind == "task":
            kept = "Node"
        return Output(digest=value, size=100_000 + ref.index, inline=inline, kept=kept)


@dataclass(frozen=True)
class Action:
    """What main does."""

    kind: Literal["call", "get", "wait", "cancel", "pause"]
    refs: tuple[ObjectRef, ...] = ()
    number: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Graph:
    """A program."""

    nodes: dict[str, Node]
    actions: tuple[Action, ...]
    options: ProgramOptions

    def value(self, ref: ObjectRef) -> str:
        """What it is when nothing goes wrong; empty: the function raises, or one before it."""
        node = self.nodes[ref.key]
        taken = [self.value(one) for one in node.inputs]
        if node.raises or "" in taken:
            return ""
        return sha256(repr((ref.key, ref.index, taken)).encode()).hexdigest()

    def ancestors(self, key: str) -> set[str]:
        """It, and all that it is made from."""
        return {key}.union(*(self.ancestors(ref.key) for ref in self.nodes[key].inputs))

    def is_steady(self, ref: ObjectRef) -> bool:
        """Its value is always the same."""
        return not any(self.nodes[key].changes for key in self.ancestors(ref.key))

    def children(self, key: str) -> list[Node]:
        """Who takes a result of it."""
        return [node for node in self.nodes.values() if any(r.key == key for r in node.inputs)]


def draw_graph(rng: random.Random) -> Graph:
    """One that depends on nothing else."""
    nodes: dict[str, Node] = {}
    actions: list[Action] = []
    refs: list[ObjectRef] = []
    for number in range(rng.randint(1, 12)):
        node = _draw_node(rng, f"k{number:02}", refs)
        nodes[node.key] = node
        refs += node.refs
        actions.append(Action("call", node.refs[:1]))
        if rng.random() < 0.1:
            actions.append(Action("get", (rng.choice(refs),)))
        if rng.random() < 0.1:
            actions.append(
                Action("wait", tuple(refs), rng.randint(1, len(refs)), rng.uniform(0, 9))
            )
        if rng.random() < 0.03:
            actions.append(Action("cancel", (rng.choice(refs),)))
    for _ in range(rng.randint(0, 3)):
        actions.append(Action("pause", seconds=rng.uniform(0, 60)))
        actions.append(Action("get", tuple(rng.sample(refs, rng.randint(1, len(refs))))))
    actions.append(Action("get", tuple(refs if rng.random() < 0.5 else refs[-1:])))
    options = ProgramOptions(
        lineage="off" if rng.random() < 0.06 else "on",
        lineage_limit=25 if rng.random() < 0.06 else 1 << 30,
    )
    return Graph(nodes, tuple(actions), options)


def _draw_node(rng: random.Random, key: str, refs: list[ObjectRef]) -> Node:
    if rng.random() < 0.15:
        return Node(key, "put", inline=rng.random() < 0.3)
    inputs = tuple(rng.sample(refs, min(len(refs), rng.choice((0, 1, 1, 2, 3)))))
    flaky = 0.3 if rng.random() < 0.1 else 0.0
    return Node(
        key,
        inputs=inputs,
        options=TaskOptions(
            max_retries=rng.choice((3, 3, 3, 1, 0, -1)),
            max_reconstructions=rng.choice((None, None, None, 0, 1, -1)),
            num_returns=rng.choice((1, 1, 2)),
            cpus=rng.choice((1, 1, 1, 2)),
            keep="node" if rng.random() < 0.15 else "store",
            retry_exceptions=bool(flaky),
            on_change=rng.choice(("accept", "accept", "fail")),
        ),
        inline=rng.random() < 0.25,
        raises=not flaky and rng.random() < 0.04,
        flaky=flaky,
        seconds=rng.choice((0.0, 0.5, 2.0, 10.0)),
        changes=rng.random() < 0.03,
    )
