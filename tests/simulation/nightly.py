"""Very many random lives of runs, and of sweeps, on all cores: `make sim`, a verb for the night.

Each life is drawn by its number, so a range of numbers is the same lives anywhere: what was broken
off goes on where it was, and a life that fails is lived again by its number. Ends with 1 if some
life breaks a promise, with 130 if it was interrupted.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from tests.simulation.drawn import buddy_life, deaf_life, drawn_life, rare_life
from tests.simulation.folder_lives import mistake_in_folder
from tests.simulation.holding import mistake_in
from tests.simulation.partitioned import drawn, nothing_happened
from tests.simulation.useful_time import mistake_in_goodput
from tests.simulation.world.sweep.faults import live, live_large
from tests.support.first_life import live_again

LIVES = 100_000
TOO_LONG = 300
"""Seconds of processor time after which a life that does not end is given up: most take a fourth of
one. Not of the clock: on a busy machine a large life may wait for minutes."""
ONE_IN = 10
"""One number in so many also has a life of a script that never asks, another one a life whose
goodput is judged, a third one a life with rare causes, a fourth one a life in a cut network, a
fifth one a life of a script that saves into a folder of its own; and one in four times so many a
life of a gang with buddies."""
OWN_FOLDER = 4
"""Last digit of those numbers."""
LARGE = 1000
"""One in so many sweeps is large, and takes a minute."""
SHOWN = 1500
"""Characters of what led to a mistake; the whole of it shows a life that is lived alone."""
MOST_SHOWN = 20
"""Lives that fail which are shown; all are counted."""
EVERY = 5.0
"""Seconds between two lines of progress; on a terminal it is one line."""


@dataclass
class Tally:
    """What has come out so far of lives that are lived in order of their numbers."""

    first: int
    lives: int
    begun: float = field(default_factory=time.monotonic)
    done: int = 0
    failed: list[int] = field(default_factory=list)

    @property
    def text(self) -> str:
        passed = time.monotonic() - self.begun
        rate = self.done / passed if passed else 0.0
        left = (self.lives - self.done) / rate / 60 if rate else 0.0
        bad = f"{len(self.failed)} broke a promise"
        return f"{self.done} of {self.lives} lives, {bad}, {rate:.1f} a second, {left:.0f} min left"


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    tally = Tally(first=options.first, lives=options.lives)
    context = multiprocessing.get_context("fork")
    with context.Pool(options.jobs, initializer=_begin) as pool:
        numbers = range(options.first, options.first + options.lives)
        try:
            _follow(tally, pool.imap(lived, numbers), alone=options.lives == 1)
        except KeyboardInterrupt:
            pool.terminate()
            rest = f"FIRST={tally.first + tally.done} LIVES={tally.lives - tally.done}"
            print(f"\n{tally.text}\ninterrupted; go on with: make sim {rest}")
            return 130
    print(f"{tally.text}")
    if tally.failed:
        print(f"broke a promise: {', '.join(map(str, tally.failed[:100]))}")
    return 1 if tally.failed else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lives", type=_positive, default=LIVES)
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--jobs", type=_positive, default=os.cpu_count() or 1)
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text} is not a whole number above 0")
    return int(text)


def _begin() -> None:
    """Of a process of the pool: Ctrl-C is for the one that reports."""
    logging.disable(logging.CRITICAL)  # what operators say of what they are made to suffer
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, _too_long)


def _too_long(*_: object) -> NoReturn:
    raise TimeoutError(f"the life has not ended within {TOO_LONG} s of processor time")


def lived(number: int) -> tuple[int, str]:
    """The life of this number, and what was wrong in it, if anything."""
    signal.setitimer(signal.ITIMER_PROF, TOO_LONG)
    try:
        mistake = mistake_in(drawn_life(number)) or special_mistake(number)
        mistake = mistake or cut_mistake(number) or folder_mistake(number)
        return number, mistake or sweep_mistake(number)
    except Exception:  # noqa: BLE001 - a pass that raises is a mistake as well
        return number, traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def special_mistake(number: int) -> str:
    """What was wrong in the special life of this number, if it has one."""
    # Their own numbers count all of them, from 0 as those of the tests do.
    own, turn = divmod(number, ONE_IN)
    if turn == 3 and (mistake := mistake_in(deaf_life(own))):
        return f"in that of a script that never asks: {mistake}"
    if turn == 7 and own % 4 == 1 and (mistake := mistake_in(buddy_life(own // 4))):
        return f"in that of a gang with buddies: {mistake}"
    if turn == 6 and (mistake := mistake_in_goodput(drawn_life(own))):
        return f"in its goodput: {mistake}"
    if turn == 9 and (mistake := mistake_in(rare_life(own))):
        return f"in that with rare causes: {mistake}"
    return ""


def cut_mistake(number: int) -> str:
    """What was wrong in the life of this number in a network that is cut, if it has one."""
    own, turn = divmod(number, ONE_IN)
    try:
        if turn == 1:
            nothing_happened(drawn(own))
    except AssertionError as error:
        return f"in that in a cut network: {error}"
    return ""


def folder_mistake(number: int) -> str:
    """What was wrong in the life of this number with a folder of its own, if it has one."""
    own, turn = divmod(number, ONE_IN)
    found = mistake_in_folder(own) if turn == OWN_FOLDER else ""
    return f"in that with a folder of its own: {found}" if found else ""


def sweep_mistake(number: int) -> str:
    """What was wrong in the sweep of this number, if anything: of every thousandth with a thousand
    trials."""
    try:
        if number % LARGE == LARGE - 1:
            live_large(number, trials=1000, at_once=20)
        else:
            live(number)
    except AssertionError as error:
        return f"in its sweep: {error}"
    return ""


def _follow(tally: Tally, lives: Iterator[tuple[int, str]], *, alone: bool) -> None:
    shown = time.monotonic()
    for number, mistake in lives:
        tally.done += 1
        if mistake:
            tally.failed.append(number)
            if len(tally.failed) <= MOST_SHOWN:
                _show(number, mistake, whole=alone)
        if time.monotonic() - shown > EVERY:
            shown = time.monotonic()
            print(tally.text, end="\r" if sys.stdout.isatty() else "\n", flush=True)


def _show(number: int, mistake: str, *, whole: bool) -> None:
    text = mistake if whole or len(mistake) <= SHOWN else f"{mistake[:SHOWN]} [...]"
    text = text.encode(errors="backslashreplace").decode()
    print(f"\nlife {number}: {text}\n{live_again(number)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
