"""An engine with a log, workers and objects that a test plays by hand."""

from __future__ import annotations

from hashlib import sha256

from trainrun.tasks.calls import Call, ObjectRef, ProgramOptions, TaskOptions
from trainrun.tasks.driver_state import Broken, Plan, Ready
from trainrun.tasks.engine import Engine
from trainrun.tasks.records import (
    Began,
    Crashed,
    End,
    Finished,
    InputMissing,
    Output,
    Raised,
    Record,
    TaskRun,
)
from trainrun.tasks.replayed_state import ReplayedState

CRASH = Crashed(reason="Signalled", message="killed by SIGSEGV")


def call(key: str, *inputs: str | ObjectRef, arguments: bytes = b"x", **options: object) -> Call:
    refs = tuple(ObjectRef(i) if isinstance(i, str) else i for i in inputs)
    return Call(
        key=key,
        function=f"m:{key}",
        arguments=arguments,
        inputs=refs,
        options=TaskOptions(**options),  # type: ignore[arg-type]
        shown=f"{key}()",
    )


def output(content: str, *, inline: bool = False) -> Output:
    digest = sha256(content.encode()).hexdigest()
    return Output(digest=digest, size=100_000, inline="eA==" if inline else "")


def finished(*contents: str) -> Finished:
    return Finished(outputs=tuple(output(c) for c in contents or ("x",)), seconds=1.0)


class ByHand:
    """Records are in the log as soon as they are planned; `starts` and so on add up."""

    def __init__(
        self,
        *,
        workers: int = 1,
        cpus: float = 1,
        log: list[Record] | None = None,
        **options: object,
    ) -> None:
        self.log: list[Record] = list(log or ())
        self.log.append(Began(session=f"s{len(self.log)}"))
        self.options = ProgramOptions(**options)  # type: ignore[arg-type]
        self.engine = Engine(ReplayedState(self.log), self.options, expected=workers)
        for worker in range(workers):
            self.engine.joined(worker, cpus, 0, ())
        self.forget()

    def forget(self) -> None:
        self.starts: list[tuple[int, TaskRun]] = []
        self.stops: list[tuple[int, TaskRun]] = []
        self.acknowledged: list[tuple[int, TaskRun]] = []
        self.looks: list[tuple[str, int]] = []
        self.settled: list[str] = []
        self.new: list[Record] = []

    def turn(self) -> None:
        """Until nothing more is decided."""
        while True:
            plan = self.engine.decide()
            self.starts += plan.starts
            self.stops += plan.stops
            self.acknowledged += plan.acknowledged
            self.looks += plan.looks
            self.settled += plan.settled
            self.new += plan.records
            self.log += plan.records
            self.engine.logged(plan.records)
            if plan == Plan():
                return

    def call(self, *calls: Call) -> None:
        for one in calls:
            self.engine.call(one)
        self.turn()

    def end(self, key: str, end: End | None = None) -> None:
        """The newest try of this key ends."""
        worker, run = next((w, r) for w, r in reversed(self.starts) if r.key == key)
        self.engine.ended(worker, run, end or finished(key))
        self.turn()

    def do(self, *keys: str) -> None:
        for key in keys:
            self.end(key)

    def lose(self, key: str, index: int = 0) -> None:
        self.engine.lost(key, index, "absent")
        self.turn()

    def want(self, key: str) -> None:
        self.engine.want(key)
        self.turn()

    def ready(self, key: str) -> Ready:
        outcome = self.engine.outcome(key)
        assert isinstance(outcome, Ready), outcome
        return outcome

    def error(self, key: str) -> Exception:
        outcome = self.engine.outcome(key)
        assert isinstance(outcome, Broken), outcome
        return outcome.error

    def started(self) -> list[str]:
        """Keys of the tries that have started, in order."""
        return [run.key for _, run in self.starts]

    def of(self, kind: type) -> list[Record]:
        """New records of this kind."""
        return [record for record in self.new if isinstance(record, kind)]


def missing(key: str, index: int = 0) -> InputMissing:
    return InputMissing(key=key, index=index, why="Absent")


def raised(**fields: object) -> Raised:
    return Raised(error="ValueError: no", traceback="Traceback: here", **fields)  # type: ignore[arg-type]
