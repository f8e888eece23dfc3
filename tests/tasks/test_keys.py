"""Keys: equal for equal calls in other processes, under other Pythons, after edits of comments."""

from __future__ import annotations

import decimal
import enum
import math
import os
import subprocess
import sys
import textwrap
import warnings
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import combinations
from pathlib import Path

import pytest

import trainrun
from tests.support.pythons import python
from trainrun.tasks import keys
from trainrun.tasks.calls import ObjectRef
from trainrun.tasks.keys import code_of_module

PROGRAM = '''
import dataclasses, datetime, decimal, enum, fractions, pathlib, sys
from trainrun.tasks import ObjectRef, function, put, task

class Colour(enum.Enum):
    RED = 1

@dataclasses.dataclass
class Point:
    x: int
    names: set

class Plain:
    def __init__(self):
        self.tags = {"a", "b", "c", "d"}
        self.more = {"b": 1, "a": sys.intern("te") + "xt"}

def helper(x):
    return x + 1  # a remark

@task
def tokenize(shard, scale=2, *more, **named):
    """About it."""
    # A remark.
    text = f"{shard!r:>{scale}} {scale=} {{}}" "tail" f"{shard:{{}}}"
    match shard:
        case {"a": [1, *rest], **others} if rest:
            return helper(text), lambda q: [*rest, {**others}], shard[1:2, ...]
    return -1.5e300, 10 ** 30, b"bytes", """
  text"""

class Tools:
    @staticmethod
    @task(max_retries=1)
    def clean(x):
        return """
no indentation"""

class Recorder:
    def call(self, call):
        print(call.key)
        self.code = call.code
    def put(self, key, value):
        print(key)

def main():
    tokenize.remote(1)
    tokenize.remote(1)
    tokenize.remote({"x", "yy", "zzz", 1, 2.5, None}, 3, Colour.RED, Point(1, {"a", "b", "c"}))
    tokenize.remote(pathlib.Path("/a/b"), decimal.Decimal("1.10"), fractions.Fraction(1, 3))
    tokenize.remote(datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc), float("nan"), -0.0)
    tokenize.remote(Plain(), more=[ObjectRef("abc", 1), range(3), Point, len, 1 + 2j, "\\udcff"])
    tokenize.options(version="7").remote("x" * 1000)
    Tools.clean.remote(b"y" * 1000)
    put({"weights": {1: [0.1] * 20}, "names": frozenset(("u", "v", "w"))})

if __name__ == "__main__":
    recorder = Recorder()
    function.enter(recorder)
    main()
    print(recorder.code)
'''


def told(source: str, folder: Path, *, seed: str = "0", by: str = sys.executable) -> list[str]:
    """What the program prints: the key of each call, and at last the digest of the module."""
    (folder / "program.py").write_text(source, encoding="utf-8")
    path = str(Path(trainrun.__file__).parents[1])
    environ = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
    done = subprocess.run(
        [by, "-W", "ignore", "program.py"],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
def test_keys_are_equal_under_another_hash_seed(tmp_path: Path) -> None:
    """The order of a set in a process is not that of another one."""
    first, second = (told(PROGRAM, tmp_path, seed=seed) for seed in ("1", "4711"))
    assert first == second
    assert len(set(first)) == 10, "each call has a key of its own"


@pytest.mark.slow
@pytest.mark.parametrize("minor", [10, 11, 12, 13])
def test_keys_are_equal_under_another_python(tmp_path: Path, minor: int) -> None:
    """Byte code, syntax trees and pickles change with each minor version."""
    assert told(PROGRAM, tmp_path) == told(PROGRAM, tmp_path, by=python(3, minor))


@pytest.mark.slow
def test_an_edited_comment_changes_no_key_and_no_module(tmp_path: Path) -> None:
    """Neither do docstrings, blank lines, layout, and options of the task."""
    edited = (
        PROGRAM.replace("# A remark.", "# Another one,\n\n    # of two lines.")
        .replace('"""About it."""', "'''About\n    more.'''")
        .replace("return helper(text), lambda", "return (\n        helper( text ),\n        lambda")
        .replace("shard[1:2, ...]", "shard[1:2, ...])")
        .replace("# a remark", "")
    )
    assert edited != PROGRAM
    before = told(PROGRAM, tmp_path)
    assert told(edited, tmp_path) == before
    options = edited.replace("@task\n", "@task(max_retries=7, timeout='10m')\n")
    assert told(options, tmp_path)[:-1] == before[:-1]


@pytest.mark.slow
def test_a_changed_constant_changes_the_keys_of_its_function_alone(tmp_path: Path) -> None:
    """And not those with a version of their own, which says that results are the same."""
    before = told(PROGRAM, tmp_path)[:-1]
    after = told(PROGRAM.replace("-1.5e300", "-1.6e300"), tmp_path)[:-1]
    same = [old == new for old, new in zip(before, after, strict=True)]
    assert same == [False] * 6 + [True] * 3


@pytest.mark.slow
def test_a_changed_helper_changes_the_module_and_no_key(tmp_path: Path) -> None:
    """`trainrun tasks` names done tasks whose module has changed since."""
    before = told(PROGRAM, tmp_path)
    after = told(PROGRAM.replace("return x + 1", "return x + 2"), tmp_path)
    assert after[:-1] == before[:-1]
    assert after[-1] != before[-1]


@pytest.mark.parametrize(
    ("module", "file"), [("__main__", "program.py"), ("pack.tasks", "pack/tasks.py")]
)
def test_a_changed_helper_of_another_module_changes_the_code_that_calls_it(
    tmp_path: Path, module: str, file: str
) -> None:
    """Also through a module between them; comments there, and other modules, do not matter."""
    sources = {
        file: "import json, pack.between\nfrom trainrun import tasks\n",
        "pack/__init__.py": "",
        "pack/between.py": "def f():\n    from . import helper\n    return helper.g()\n",
        "pack/helper.py": "def g():\n    return 1\n",
        "pack/other.py": "x = 1\n",
    }

    def code(**changed: str) -> str:
        for name, source in sources.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(changed.get(path.stem, source))
        return code_of_module(module, tmp_path / file)

    before = code()
    assert before
    assert code(helper="def g():  # one\n    return 1\n", other="x = 2\n") == before
    assert code(helper="def g():\n    return 2\n") != before
    assert code(between="def f(): ...\n") != before


def test_text_that_is_interned_and_text_that_is_not_have_one_key() -> None:
    """A pickle refers to a text that it has seen already."""
    once = "some text"
    again = "".join(["some", " ", "text"])
    assert once is not again
    assert key([once, once]) == key([once, again])


class Colour(enum.Enum):
    """Enums are told apart by their class and value."""

    RED = 1


class Shape(enum.IntEnum):
    """An int as well."""

    ROUND = 1


@dataclass
class Point:
    """A dataclass is told by its fields."""

    x: object


@dataclass
class Other:
    """The same fields."""

    x: object


class Text(str):
    """Not a plain text."""

    __slots__ = ()


VALUES = (
    *(None, True, False, 0, 1, -1, 1.0, 0.0, -0.0, math.nan, math.inf, 1 + 0j, 10**30, 1e30),
    *("", "1", "a", "\udcff", b"", b"1", b"a", bytearray(b"a"), b"x" * 100, b"x" * 101, "x" * 100),
    *((), [], {}, set(), frozenset(), (1,), [1], {1}, frozenset({1}), {1: None}, [[1]], [1, 1]),
    *([[1], 2], [[1, 2]], {1: 2}, {2: 1}, {"a": {"b": 1}}, {"a": {"b": 2}}, [None], [[]], ["a,b"]),
    *(Colour.RED, Shape.ROUND, Point(1), Point(True), Other(1), Point(Point(1)), Point, Other, len),
    *(
        Path("a"),
        Path("/a"),
        date(2026, 1, 1),
        datetime(2026, 1, 1),  # noqa: DTZ001 - unlike the next
        datetime(2026, 1, 1, tzinfo=UTC),
    ),
    *(timedelta(1), timedelta(2), decimal.Decimal("1.0"), decimal.Decimal("1.00"), range(3), ...),
    *(ObjectRef("a"), ObjectRef("a", 1), ObjectRef("b"), Text("a"), OrderedDict({1: 2})),
)


def key(value: object) -> str:
    """Of a value of `put`."""
    return keys.key_of_value(keys.encoded(value, set()))


def test_values_of_another_type_or_content_have_other_keys() -> None:
    """Each pair of them."""
    same = [(a, b) for a, b in combinations(VALUES, 2) if key(a) == key(b)]
    assert same == []


def test_equal_sets_and_dicts_have_one_key_in_any_order() -> None:
    """As Python compares them."""
    assert key({"a": 1, "b": 2}) == key({"b": 2, "a": 1})
    assert key(defaultdict(list, {"a": 1, "b": 2})) == key(defaultdict(list, {"b": 2, "a": 1}))
    assert key({3, 1, 2}) == key({2, 3, 1})
    assert key(float("nan")) == key(-float("nan"))


def test_arrays_are_told_by_type_shape_and_content() -> None:
    """Whatever their layout in memory is; those of objects by their items."""
    numpy = pytest.importorskip("numpy")
    grid = numpy.arange(6, dtype="int32").reshape(2, 3)
    assert key(grid) == key(numpy.ascontiguousarray(grid.T).T) == key(grid.copy())
    others = (
        *(
            grid.T,
            grid.reshape(3, 2),
            grid.astype("int64"),
            grid + 1,
            grid.tolist(),
            grid.tobytes(),
        ),
        *(numpy.ma.masked_array(grid, grid > 1), numpy.ma.masked_array(grid, grid > 2)),
        *(numpy.float32(1), numpy.float64(1), 1.0, numpy.array(1.0), numpy.array(["a", None])),
        *(numpy.array([b"a"]), numpy.array(["a"]), numpy.zeros(1, [("a", "i4")])),
        *(numpy.zeros(1, [("b", "i4")]), numpy.array(["b", None])),
    )
    assert len({key(grid), *map(key, others)}) == len(others) + 1
    assert key(numpy.array(["a", {"b", "c"}])) == key(numpy.array(["a", {"c", "b"}]))


def test_a_hash_of_code_needs_no_unindented_source() -> None:
    """A function of a class, with a text in it that stands further left."""
    source = '    @task\n    def f():\n        return """\ntext"""\n'
    other = source.replace("text", "more")
    assert keys.code_of(source, of_task=True) != keys.code_of(other, of_task=True)
    assert keys.code_of(source, of_task=True) == keys.code_of(
        source.replace("@task", "@staticmethod\n    @task(cpus=2)"), of_task=True
    )


def test_a_decorator_below_the_tasks_counts() -> None:
    """It changes what the function does."""
    source = "@task\n@scaled(2)\ndef f(): ...\n"
    assert keys.code_of(source, of_task=True) != keys.code_of(
        source.replace("2", "3"), of_task=True
    )


def test_a_call_that_another_process_may_encode_otherwise_warns_once() -> None:
    """The key of plain data does not."""
    unstable: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in VALUES[:-2]:
            keys.encoded(value, unstable)
    assert unstable == set()
    keys.encoded([Text("a"), textwrap.TextWrapper()], unstable)
    assert unstable == {f"{__name__}.Text", "textwrap.TextWrapper"}


@pytest.mark.slow
def test_threads_that_hash_code_at_once_do_not_disturb_each_other() -> None:
    """A thread that took over in the middle, at a garbage collection, was a SystemError."""
    program = """
        import gc, sys, threading
        from pathlib import Path
        from trainrun.tasks import keys

        gc.callbacks.append(lambda *_: sum(range(200)))
        gc.set_threshold(100)
        sys.setswitchinterval(1e-6)
        source, found = Path(keys.__file__).read_text(), []
        hashing = lambda: found.extend(keys.code_of(source) for _ in range(10))
        threads = [threading.Thread(target=hashing) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(len(found), len(set(found)))
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60
    )
    assert ended.stderr == ""
    assert ended.stdout == "80 1\n"
