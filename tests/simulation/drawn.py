"""Lives drawn at random, each by its number: the same number is the same life, on any machine.

Not by hypothesis: its examples also depend on the constants in all modules that happen to be
loaded, so that a life which failed elsewhere could not be found again; and making one smaller took
an hour.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from tests.simulation.lives import Life
from tests.simulation.striking import FAULTS, RARE, Fault, FaultKind
from trainrun_operator.api.run.rules import FailureRule, RuleAction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainrun.contract.answer import OnNotice

TEXTS = ("損" * 300, "\x00\x1b[31m\r\n" * 50, "\U0010ffff\ufffe\u202e", '{"a": "\\' * 99)
"""What a script may print where it dies, and what somebody must be able to read afterwards."""

STOPS: tuple[FaultKind, ...] = (
    "preempt",
    "evict",
    "suspend",
    "template",
    "kill",
    "node-loss",
    "leave",
    "operator-crash",
    "hand-over",
    "store-away",
)


def drawn_life(number: int, kinds: Sequence[FaultKind] = FAULTS, within: float = 40.0) -> Life:
    """The life of this number: with up to six faults of these kinds in its first seconds."""
    chance = random.Random(number)
    faults = [
        Fault(
            kind=chance.choice(kinds),
            at=round(chance.uniform(0, within), 2),
            slot=chance.randint(0, 3),
            size=round(chance.random(), 2),
            text=_text(chance),
        )
        for _ in range(chance.randint(0, 6))
    ]
    return Life(
        seed=chance.getrandbits(32),
        replicas=chance.randint(1, 4),
        max_failures=chance.choice([-1, 0, 1, 3]),
        max_preemptions=chance.choice([None, None, -1, 1]),
        loss=chance.choice([0.0, 0.0, 0.1, 0.3]),
        duplicate=chance.choice([0.0, 0.2]),
        delay=chance.choice([0.02, 0.2, 1.5]),
        hang=chance.choice([False, True]),
        grace=chance.choice([0.0, 2.0, 30.0]),
        faults=tuple(faults),
        deadline=chance.choice([None, None, None, 25.0, 60.0]),
        ttl=chance.choice([None, 5.0, 30.0]),
        processes=chance.choice([1, 1, 1, 2, 3]),
        together=chance.choice([True, True, True, False]),
        says_finished=chance.choice([False, True]),
        asks=chance.choice([True, False]),
        on_notice=chance.choice(["Auto", "Auto", "Auto", "AskScript", "Signal", "Stop"]),
        on_sigterm=chance.choice(["Saves", "Saves", "Dies", "Ignores"]),
        max_start_failures=chance.choice([None, None, -1, 1]),
        no_progress_limit=chance.choice([0, 0, 2, 3]),
        window=chance.choice([None, None, None, 15.0, 60.0]),
        force_delete=chance.random() < 0.9,
        raised_after=chance.choice([None, None, 0.2, 3.0, 70.0]),
        rules=tuple(_rule(chance) for _ in range(chance.choice([0, 0, 0, 1, 2, 3]))),
        progress_timeout=chance.choice([None, 30.0, 45.0]),
        first_step_timeout=chance.choice([None, 40.0, 90.0]),
        on_existing=chance.choice(["Resume", "Resume", "Fail", "StartFresh"]),
        before=chance.choice(["Nothing", "Nothing", "Unfinished", "Finished"]),
        hang_policy=chance.choice(["Observe", "Observe", "Restart"]),
        upload_every=chance.choice([None, None, 4.0, 20.0]),
    )


def deaf_life(number: int) -> Life:
    """One of a script that never asks should_save(), with every way to be stopped."""
    on_notice: OnNotice = "Auto" if number % 2 else "Signal"
    return replace(drawn_life(number, STOPS, within=30.0), asks=False, on_notice=on_notice)


LOSSES: tuple[FaultKind, ...] = (
    "node-loss",
    "node-loss",
    "dark-node",
    "vanish",
    "kill",
    "operator-crash",
    "store-away",
    "template",
)


def buddy_life(number: int) -> Life:
    """One of a gang with copies on other nodes, which loses workers, also several at once."""
    life = drawn_life(number, LOSSES, within=30.0)
    pairs = tuple(
        replace(fault, at=fault.at + 0.3, slot=fault.slot + 1 + number % 2)
        for fault in life.faults[: number % 3]
    )
    return replace(
        life,
        faults=(*life.faults, *pairs),
        replicas=max(life.replicas, 2),
        upload_every=4.0 if number % 4 == 0 else 600.0,
        buddy=True,
    )


def rare_life(number: int) -> Life:
    """One in which also comes what is rare, as often as everything else together."""
    return drawn_life(number, (*FAULTS, *RARE * (len(FAULTS) // len(RARE))))


MATCHERS: tuple[dict[str, Any], ...] = (
    {},
    {"exit_codes": (1, 137)},
    {"signals": ("SIGKILL",)},
    {"exceptions": ("ValueError",)},
    {"message_pattern": "bad|lost"},
    {"causes": ("AppError", "Preempted", "RendezvousFailed")},
    {"causes": ("NodeLost", "OutOfMemory", "Silent", "StartFailed")},
    {"ranks": (0, 2)},
    {"causes": ("FatalError", "RetryError", "Hung")},
    {"exceptions": ("FatalError", "trainrun.RetryError")},
)


def _rule(chance: random.Random) -> FailureRule:
    """One that matches now and then, by one of the things that it may look at or by two."""
    two = chance.choice(MATCHERS) | chance.choice(({}, *MATCHERS))
    return FailureRule(action=chance.choice(get_args(RuleAction)), **two)


def _text(chance: random.Random) -> str:
    """An everyday message, one that is hard to print, or any text at all."""
    any_text = "".join(map(chr, chance.choices(range(0xD800), k=chance.randint(0, 12))))
    return chance.choice(["ValueError: bad batch", chance.choice(TEXTS), any_text])
