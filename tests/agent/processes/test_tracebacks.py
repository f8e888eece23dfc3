"""The exception in the output of a process, as printers of the field print tracebacks.

`printed/` holds what they really wrote; only paths were shortened.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainrun.agent.processes.output import FORGOTTEN, STRAYS, OutputPump, Sink, Tail

PRINTED = Path(__file__).parent / "printed"
DIVISION = "ZeroDivisionError: division by zero"
RICH = "ValueError: a rather long message a rather long message a rather long message a"
TABLE = {
    "torch": "ValueError: bad batch\nin two lines",
    "torch_behind_a_bar": "ValueError: bad batch\nin two lines",
    "torch_chained": "RuntimeError: no such key",
    "torch_group": "ExceptionGroup: many (1 sub-exception)",
    "torch_and_rich": "ValueError: bad batch",
    "torch_spawn": "ValueError: in child",
    "torchrun": "ValueError: in torchrun",
    "data_loader": "ValueError: bad item",
    "multiprocessing": "ValueError: in child",
    "tqdm": "ValueError: bad",
    "tqdm_closed": "ValueError: bad",
    "bar_between": "ValueError: bad",
    "other_lines_between": "ValueError: bad",
    "rich": RICH,
    "rich_in_color": RICH,
    "rich_logging": DIVISION,
    "logging": DIVISION,
    "logging_each_line": DIVISION,
    "loguru": DIVISION,
    "group": "ExceptionGroup: many (2 sub-exceptions)",
    "group_in_color": "ExceptionGroup: many (2 sub-exceptions)",
    "note": "ValueError: bad",
    "note_in_color": "ValueError: bad",
    "syntax": "SyntaxError: '(' was never closed",
    "syntax_in_color": "SyntaxError: '(' was never closed",
    "syntax_imported": "SyntaxError: '(' was never closed",
    "errors_at_exit": "ValueError: true",
    "thread": DIVISION,
    "asyncio_task": "RuntimeError: main",
}


async def seen(tmp_path: Path, output: bytes, *, piece: int = 1 << 20) -> str:
    """The exception that is seen in this output when it comes in such pieces."""
    out = os.open(tmp_path / "out", os.O_CREAT | os.O_RDWR)
    sink = Sink(out)
    reading, writing = os.pipe()
    pump = OutputPump(reading, "[rank 0] ", sink)
    for start in range(0, len(output), piece):
        os.write(writing, output[start : start + piece])
        pump._read()
    os.close(writing)
    pump.finish()
    sink.close(timeout=5)
    os.close(out)
    return pump.tail.exception


@pytest.mark.case(
    "script", "A library decorates the traceback of an exception", counted="its cause"
)
@pytest.mark.parametrize("name", TABLE)
async def test_the_exception_is_seen_whoever_prints_its_traceback(
    tmp_path: Path, name: str
) -> None:
    output = (PRINTED / f"{name}.txt").read_bytes()
    assert await seen(tmp_path, output) == TABLE[name]
    assert await seen(tmp_path, output, piece=7) == TABLE[name]
    # Somebody puts his mark before each line, as mpirun and launchers do.
    if "bar" not in name and "tqdm" not in name and "syntax" not in name:
        marked = b"".join(b"[1,0]<stderr>:" + line for line in output.splitlines(keepends=True))
        assert (await seen(tmp_path, marked)).splitlines()[0] == TABLE[name].splitlines()[0]


def test_every_recorded_output_is_in_the_table() -> None:
    assert {path.stem for path in PRINTED.iterdir()} == set(TABLE)


@pytest.mark.parametrize(
    ("script", "exception"),
    [
        ("from tqdm import tqdm; bar = tqdm(total=9); bar.update(3); 1 / 0", DIVISION),
        ("from rich.traceback import install; install(); 1 / 0", DIVISION),
        ("import logging\ntry: 1 / 0\nexcept Exception: logging.exception('x')", DIVISION),
        ("raise ExceptionGroup('two', [ValueError(1)])", "ExceptionGroup: two (1 sub-exception)"),
        (
            "def f():\n  class Odd(Exception): pass\n  raise Odd('x')\nf()",
            "f.<locals>.Odd: x",
        ),
        ("import faulthandler, os; faulthandler.enable(); os.abort()", ""),
        ("import traceback; traceback.print_stack(); print('Loss: 3')", ""),
    ],
)
async def test_the_exception_is_seen_as_the_installed_printers_print_it(
    tmp_path: Path, script: str, exception: str
) -> None:
    done = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, check=False)
    assert await seen(tmp_path, done.stderr) == exception


def tail_of(*lines: str) -> Tail:
    tail = Tail()
    for line in lines:
        tail.add(0.0, line)
    return tail


HEADER = "Traceback (most recent call last):"
SURVIVED = (HEADER, '  File "a.py", line 1, in f', "OSError: tried again")


def test_of_a_traceback_that_was_survived_and_the_true_end_the_end_is_seen() -> None:
    assert tail_of(*SURVIVED, "step 3", HEADER, "  x", "KeyError: 'a'").exception == "KeyError: 'a'"


def test_a_traceback_long_before_the_end_does_not_explain_it() -> None:
    assert tail_of(*SURVIVED, *["step"] * FORGOTTEN).exception == "OSError: tried again"
    assert tail_of(*SURVIVED, *["step"] * (FORGOTTEN + 1)).exception == ""


def test_the_first_line_of_a_traceback_alone_makes_no_exception_of_later_lines() -> None:
    assert tail_of(HEADER, "loss: 3", "INFO: epoch 3").exception == "INFO: epoch 3"
    assert tail_of(HEADER, *["step 3 done"] * (STRAYS + 1), "INFO: epoch 3").exception == ""


def test_a_message_with_thousands_of_lines_does_not_hide_its_exception() -> None:
    frames = ['  File "a.py", line 1, in f', "    f()"] * 300
    assert tail_of(HEADER, *frames, "RuntimeError: nvcc", *["log"] * 400).exception == (
        "RuntimeError: nvcc"
    )


async def test_a_flood_that_looks_like_a_traceback_costs_no_more_than_other_floods() -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    tail_of(HEADER, '  File "' * 8000, "Traceback (most " * 4000, "a." * 30_000, "╭─" * 30_000)
    assert loop.time() - begun < 2.0
