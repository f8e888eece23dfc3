"""`@tasks.task`, `.remote()` and what they refuse, with a program that only takes calls down."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainrun import tasks
from trainrun.errors import InvalidSpec, TrainRunError
from trainrun.tasks import function, running
from trainrun.tasks.calls import Call, ObjectRef


class Recorder:
    """Takes calls down, and knows no result."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def call(self, call: Call) -> None:
        """Take it down."""
        self.calls.append(call)


@pytest.fixture
def program() -> Iterator[Recorder]:
    """A running program."""
    recorder = Recorder()
    function.enter(recorder)  # type: ignore[arg-type]
    yield recorder
    function.leave()


@tasks.task
def tokenize(shard: Any, scale: int = 2, *, token: str = "") -> list[Any]:
    """Split."""
    return [shard, scale, token]


@tasks.task(num_returns=2)
def both(_x: object) -> tuple[int, int]:
    """Two results."""
    return 1, 2


class Tools:
    """Holds a task as a static function."""

    @staticmethod
    @tasks.task
    def clean(x: int) -> int:
        """The same."""
        return x


class Plain:
    """A class of the user's."""


def test_a_direct_call_runs_right_here() -> None:
    """As the plain function, with its name and docstring."""
    assert tokenize("a", scale=3) == ["a", 3, ""]
    assert Tools.clean(2) == 2
    assert (tokenize.__name__, tokenize.__doc__) == ("tokenize", "Split.")


def test_a_call_names_function_arguments_and_inputs(program: Recorder) -> None:
    """References are found however deep they lie, each once."""
    ref = tokenize.remote({"deep": [ObjectRef("a"), (ObjectRef("b", 1), ObjectRef("a"))]})
    (call,) = program.calls
    assert ref == ObjectRef(call.key)
    assert call.function == f"{__name__}:tokenize"
    assert call.inputs == (ObjectRef("a"), ObjectRef("b", 1))
    assert call.shown == "tokenize({'deep': [ObjectRef(a), (ObjectRef(b.1), ObjectRef(a))]})"


def test_equal_calls_are_calls_of_their_own_and_the_same_after_a_restart(
    program: Recorder,
) -> None:
    """By name, by position or by default makes no difference; the replay gives the same keys."""
    first = [tokenize.remote(1), tokenize.remote(shard=1), tokenize.remote(1, 2)]
    assert len(set(first)) == 3
    function.enter(program)  # type: ignore[arg-type]
    assert [tokenize.remote(1, scale=2), tokenize.remote(1), tokenize.remote(1)] == first


def test_equal_calls_of_several_threads_have_the_keys_of_one_thread(program: Recorder) -> None:
    """They are interchangeable."""
    threads = [threading.Thread(target=tokenize.remote, args=(1,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keys = {call.key for call in program.calls}
    function.enter(program)  # type: ignore[arg-type]
    assert {tokenize.remote(1).key for _ in range(8)} == keys


def test_several_results_have_a_reference_each(program: Recorder) -> None:
    """And a call with another number of them is another call."""
    first, second = both.remote(1)
    assert (first.key, first.index, second.index) == (second.key, 0, 1)
    assert both.options(num_returns=1).remote(1).key != first.key
    assert program.calls[0].options.num_returns == 2


def test_options_of_one_call_leave_those_of_the_function(program: Recorder) -> None:
    """And only those that are named change."""
    both.options(max_retries=-1, timeout="1h30m", memory="1Gi", retry_exceptions=[OSError]).remote(
        1
    )
    both.remote(1)
    changed, kept = (call.options for call in program.calls)
    assert (changed.max_retries, changed.num_returns, changed.timeout) == (-1, 2, 5400.0)
    assert (changed.memory, changed.retry_exceptions) == (1 << 30, ("builtins.OSError",))
    assert (kept.max_retries, kept.timeout) == (3, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_retries": -2}, "max_retries=-2 must be a whole number: -1 for no limit, 0 for none"),
        ({"max_retries": True}, "max_retries=True must be a whole number"),
        ({"timeout": "10 minutes"}, "timeout='10 minutes' must be a text such as \"10m\""),
        ({"timeout": 0}, "timeout=0 must be"),
        ({"timeout": ""}, "timeout='' must be"),
        ({"memory": "1GB"}, "memory='1GB' must be a number of bytes above 0"),
        ({"cpus": -1}, "cpus=-1 must be a number from 0"),
        ({"gpus": 0.5}, "gpus=0.5 must be a whole number from 0"),
        ({"num_returns": 0}, "num_returns=0 must be a whole number from 1"),
        ({"version": 2}, 'version=2 must be a text such as "2"'),
        ({"keep": "nowhere"}, 'keep=\'nowhere\' must be "store" or "node"'),
        ({"retry_exceptions": [int]}, "retry_exceptions=[<class 'int'>] must be True, False, or"),
        ({"max_retries": None, "cpus": "2"}, "max_retries=None must be"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(options: dict[str, Any], message: str) -> None:
    """At the decorator, before anything runs, and by `.options()` with the function's name."""
    with pytest.raises(InvalidSpec) as caught:
        tasks.task(**options)
    assert str(caught.value).startswith("tasks.task: ")
    with pytest.raises(InvalidSpec) as caught:
        tokenize.options(**options)
    assert f"tokenize: {message}" in str(caught.value)
    assert str(caught.value).count(" must be ") == len(options)


def test_an_option_that_is_none_is_named_with_those_that_are() -> None:
    """As Python does."""
    with pytest.raises(TypeError, match=r"has no option 'num_cpus'. It has cpus, gpus, keep, "):
        tasks.task(num_cpus=2)


@pytest.mark.case(
    "tasks", "An option, a function or an argument that no worker could use", counted="refused"
)
def test_a_function_that_workers_could_not_find_is_refused_at_its_decorator() -> None:
    """With what to do."""

    def inner() -> None: ...

    with pytest.raises(InvalidSpec, match=r"import .*inner. Define it with `def` at the top"):
        tasks.task(inner)

    async def later() -> None: ...

    with pytest.raises(
        InvalidSpec, match=r"takes no async function .*later is one: return a value"
    ):
        tasks.task(later)
    with pytest.raises(InvalidSpec, match=r"lambda"):
        tasks.task(lambda: None)
    with pytest.raises(InvalidSpec, match=r"put @staticmethod above @tasks.task"):
        tasks.task(staticmethod(inner))
    with pytest.raises(InvalidSpec, match=r"takes a function, not <class .*Plain'>"):
        tasks.task(Plain)


def test_a_function_whose_name_means_something_else_is_refused_when_called(
    program: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers find functions by name."""
    again = tasks.task(Tools.clean.__wrapped__)
    again.remote(1)  # the same function
    monkeypatch.setattr(Tools, "clean", print)
    with pytest.raises(InvalidSpec, match=r"Tools.clean: something else in module"):
        tasks.task(again.__wrapped__).remote(1)
    assert len(program.calls) == 1


def test_code_without_a_source_needs_a_version(program: Recorder) -> None:
    """Else nothing shows when it changes."""
    space: dict[str, Any] = {"__name__": __name__}
    exec("def typed(): pass", space)
    globals()["typed"] = space["typed"]
    with pytest.raises(InvalidSpec, match=r'tasks.task\(version="1"\)'):
        tasks.task(space["typed"]).remote()
    tasks.task(version="1")(space["typed"]).remote()
    assert len(program.calls) == 1


@pytest.mark.slow
def test_an_argument_that_cannot_be_pickled_is_named(program: Recorder) -> None:
    """And what to do; nothing is called, so its key is free."""
    with pytest.raises(
        InvalidSpec, match=r"argument scale of tokenize cannot be pickled: TypeError"
    ):
        tokenize.remote(1, threading.Lock())
    own: list[Any] = []
    own.append(own)
    with pytest.raises(
        InvalidSpec, match=r"shard of tokenize cannot be part of a key: it contains itself"
    ):
        tokenize.remote(own)
    with pytest.raises(InvalidSpec, match=r"limit is 67,108,864. Pass .*tasks.put\(value\)"):
        tokenize.remote(b"x" * (64 << 20))
    with pytest.raises(
        InvalidSpec,
        match=r"argument shard of tokenize: other nodes do not have the folder .* reference",
    ):
        tokenize.remote([running.output_directory()])
    assert program.calls == []


def test_missing_and_superfluous_arguments_fail_as_in_a_direct_call(program: Recorder) -> None:
    """In the program, not minutes later in a worker."""
    with pytest.raises(TypeError, match=r"tokenize.remote\(\): missing a required argument"):
        tokenize.remote()
    with pytest.raises(TypeError, match=r"too many positional"):
        tokenize.remote(1, 2, 3)
    assert program.calls == []


def test_a_call_is_shown_in_short_and_without_secrets(program: Recorder) -> None:
    """Also where only the parameter's name says that it is one."""
    tokenize.remote("x" * 1000, token="correct-horse")
    tokenize.remote("https://me:pass@host/x", 1)
    tokenize.remote(pytest.importorskip("numpy").zeros((2, 2)))
    long, address, lines = (call.shown for call in program.calls)
    assert "correct-horse" not in long
    assert len(long) < 200
    assert address == "tokenize('https://***@host/x', 1)"
    assert lines == "tokenize(array([[0., 0.], [0., 0.]]))"


def test_a_key_that_may_change_is_said_once_for_each_function(program: Recorder) -> None:
    """With the type and the remedy."""
    with pytest.warns(UserWarning, match=r"tokenize takes .*Plain: .* Pass plain data") as caught:
        tokenize.remote(Plain())
    tokenize.remote(Plain())
    assert caught[0].filename == __file__
    assert len(program.calls) == 2


def test_outside_of_a_program_and_in_a_task_a_call_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So do get and its siblings."""
    with pytest.raises(TrainRunError, match=r"tokenize.remote\(\) needs .*tasks.run\(main\) below"):
        tokenize.remote(1)
    with pytest.raises(TrainRunError, match=r"tasks.get needs a running program"):
        tasks.get(ObjectRef("a"))
    monkeypatch.setattr(running, "_role", "task")
    with pytest.raises(TrainRunError, match=r"tasks.put was called inside a task. .*in main"):
        tasks.put(1)
    monkeypatch.setattr(running, "_role", "launcher")
    with pytest.raises(TrainRunError, match=r"called while a worker imports .* `if __name__"):
        tokenize.remote(1)


@pytest.mark.usefixtures("program")
def test_what_is_no_reference_is_refused() -> None:
    """A value instead of a reference, twice the same, or more than there are."""
    with pytest.raises(TypeError, match=r"tasks.get takes references, .*not int"):
        tasks.get([1])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"tasks.cancel takes references, .*not NoneType"):
        tasks.cancel(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"tasks.get: timeout=-1 must be a text such as"):
        tasks.get(ObjectRef("a"), timeout=-1)
    with pytest.raises(TypeError, match=r"already a reference"):
        tasks.put(ObjectRef("a"))
    with pytest.raises(ValueError, match=r"num_returns=2 must be from 1 to 1"):
        tasks.wait([ObjectRef("a")], num_returns=2)
    with pytest.raises(ValueError, match=r"twice"):
        tasks.wait([ObjectRef("a"), ObjectRef("a")])


def test_a_file_is_told_by_size_and_time_or_by_its_version(
    program: Recorder, tmp_path: Path
) -> None:
    """A changed file makes another call of it."""
    path = tmp_path / "a shard"
    path.write_text("one")
    first = tokenize.remote(tasks.File(str(path)))
    path.write_text("three")
    assert tokenize.remote(tasks.File(str(path))) != first
    assert tasks.File(path.as_uri()).path == path
    assert tasks.File(path.as_uri()).version.startswith("5-")
    assert tasks.File("s3://bucket/key", version="etag").version == "etag"
    with pytest.raises(InvalidSpec, match=r"read s3://bucket/key itself. Give it a version"):
        tasks.File("s3://bucket/key")
    with pytest.raises(InvalidSpec, match=r"read nowhere: No such file"):
        tasks.File("nowhere")
    assert len(program.calls) == 2


def test_every_name_of_the_package_is_there() -> None:
    """They are loaded when they are used."""
    for name in tasks.__all__:
        assert getattr(tasks, name) is not None
