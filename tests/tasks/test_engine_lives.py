"""Random lives of programs: graphs of calls, and all that may happen to them, in any order."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.tasks.by_hand import CRASH, finished, missing, raised
from trainrun.tasks.calls import Call, ObjectRef, ProgramOptions, TaskOptions, object_name
from trainrun.tasks.driver_state import Broken, Plan, Ready
from trainrun.tasks.engine import Engine
from trainrun.tasks.records import (
    Began,
    Dispatched,
    Done,
    End,
    Output,
    Rebuild,
    Record,
    Reset,
    TaskRun,
)
from trainrun.tasks.replayed_state import ReplayedState

MAX_RECONSTRUCTIONS = 2


class Worker:
    """What is true of a worker, whatever the engine believes."""

    def __init__(self, cpus: int) -> None:
        self.cpus = cpus
        self.here = True
        self.runs: dict[TaskRun, End | None] = {}
        """Its tries; with an end that was not heard."""


class Life:
    """One program, its drivers, its workers and its store."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.log: list[Record] = []
        self.objects: set[str] = set()
        self.calls: list[Call] = []
        for i in range(random.randint(1, 8)):
            earlier = [
                ObjectRef(one.key, random.randrange(one.options.num_returns)) for one in self.calls
            ]
            options = TaskOptions(
                max_retries=random.choice((0, 1, 3, 3, -1)),
                num_returns=random.choice((1, 1, 2)),
                cpus=random.choice((0, 1, 1, 2)),
                on_change=random.choice(("accept", "accept", "fail")),
            )
            inputs = [*random.sample(earlier, min(len(earlier), random.randint(0, 3)))]
            if random.random() < 0.1:
                inputs.append(ObjectRef("put"))
            call = Call(
                key=f"k{i}", function="m:f", arguments=b"xx", inputs=tuple(inputs), options=options
            )
            self.calls.append(call)
        self.options = ProgramOptions(
            max_reconstructions=MAX_RECONSTRUCTIONS,
            lineage=random.choice(("on", "on", "on", "off")),
            lineage_limit=random.choice((1000, 1000, 8)),
        )
        self.quiet = False
        self.begin(())

    # --- one driver

    def begin(self, lost: tuple[int, ...]) -> None:
        self.log.append(Began(session=f"s{len(self.log)}", lost=lost))
        self.engine = Engine(ReplayedState(self.log), self.options, expected=2)
        self.called: dict[str, Call] = {}
        self.wants: Counter[str] = Counter()
        self.looks: set[tuple[str, int]] = set()
        self.pending: list[Record] = []
        self.workers = {n: Worker(2) for n in range(2)}
        for number in self.workers:
            self.join(number)
        if self.random.random() < 0.8:
            self.put()

    def put(self) -> None:
        if (
            object_name("put", 0, 0) not in self.objects
            and "put" not in ReplayedState(self.log).entries
        ):
            self.objects.add(object_name("put", 0, 0))
            self.engine.given("put", Output(digest="p", size=100_000))

    def die(self) -> None:
        if self.random.random() < 0.5:
            self.write()  # its last batch has arrived
        self.begin(tuple(n for n in self.workers if self.random.random() < 0.3))

    def decide(self) -> None:
        plan = self.engine.decide()
        self.check_invariants()
        self.check_records(plan)
        self.pending += plan.records
        for number, run in plan.starts:
            self.check_start(number, run)
            worker = self.workers[number]
            if worker.here:
                assert run not in worker.runs
                worker.runs[run] = None
                used = [self.cpus(its) for its, end in worker.runs.items() if end is None]
                assert sum(used) <= worker.cpus
        for number, run in plan.stops:
            if self.workers[number].here and run in self.workers[number].runs:
                self.workers[number].runs[run] = self.workers[number].runs[run] or finished("late")
                self.engine.ended(number, run, self.workers[number].runs[run] or CRASH)
        for number, run in plan.acknowledged:
            if self.workers[number].here:
                self.workers[number].runs.pop(run, None)
        assert not self.looks & set(plan.looks)
        self.looks |= set(plan.looks)

    def cpus(self, run: TaskRun) -> float:
        return self.called[run.key].options.cpus

    def write(self) -> None:
        records, self.pending = self.pending, []
        self.log += records
        self.engine.logged(records)

    # --- checks

    def check_invariants(self) -> None:
        known = self.engine._state
        for task in known.tasks.values():
            assert task.unmet == sum(not known.there(r) for r in set(task.call.inputs)), (
                task.call.key
            )

    def check_records(self, plan: Plan) -> None:
        replayed = ReplayedState([*self.log, *self.pending])
        again = {record.key for record in plan.records if isinstance(record, Rebuild)}
        for record in plan.records:
            if isinstance(record, Began):
                continue
            entry = replayed.entries.get(record.key)
            if isinstance(record, Dispatched):
                limit = self.called[record.key].options.max_retries
                assert entry is None or not (entry.settled or entry.open)
                assert entry is None or limit < 0 or entry.spent <= limit
                assert record.number == (entry.number if entry else 0) + 1
            if isinstance(record, Done):
                assert entry
                assert (entry.open, entry.done) == (True, False)
            if isinstance(record, Rebuild):
                assert entry
                assert entry.done
                assert entry.rebuilds < MAX_RECONSTRUCTIONS
                assert self.options.lineage == "on"
                assert self.called[record.key].options.max_retries != 0
                assert self.wants[record.key] or any(
                    record.key in call.parents
                    and (call.key in again or not self.settled(replayed, call.key))
                    for call in self.called.values()
                ), "nobody waits for it"
            replayed.fold(record)

    def settled(self, replayed: ReplayedState, key: str) -> bool:
        entry = replayed.entries.get(key)
        return entry is not None and entry.settled

    def check_start(self, number: int, run: TaskRun) -> None:
        assert any(
            isinstance(record, Dispatched)
            and (record.key, record.generation, record.number, record.worker)
            == (run.key, run.generation, run.number, number)
            for record in self.log
        )

    # --- what may happen

    def join(self, number: int) -> None:
        worker = self.workers[number]
        worker.here = True
        self.engine.joined(number, worker.cpus, 0, tuple(worker.runs))
        for run, end in worker.runs.items():
            if end is not None:
                self.engine.ended(number, run, end)

    def end_one(self) -> None:
        ends = [
            (number, run)
            for number, worker in self.workers.items()
            for run, end in worker.runs.items()
            if end is None
        ]
        if not ends:
            return
        number, run = self.random.choice(ends)
        worker = self.workers[number]
        worker.runs[run] = end = self.end_of(run)
        if worker.here:
            self.engine.ended(number, run, end)

    def end_of(self, run: TaskRun) -> End:
        call = self.called[run.key]
        for ref in call.inputs:
            found = self.engine.output_of(ref.key, ref.index)
            assert found is not None
            if found[0] not in self.objects:
                return missing(ref.key, ref.index)
        if not self.quiet and self.random.random() < 0.4:
            listed = self.random.random() < 0.7
            return self.random.choice((CRASH, CRASH, raised(retriable=listed)))
        changed = not self.quiet and self.random.random() < 0.1
        content = f"{run.number if changed else ''}"
        results = range(call.options.num_returns)
        self.objects |= {object_name(run.key, run.number, index) for index in results}
        return finished(*(f"{run.key}.{index}{content}" for index in results))

    def answer(self) -> None:
        if not self.looks:
            return
        self.read(*self.random.choice(sorted(self.looks)))

    def read(self, key: str, index: int) -> None:
        found = self.engine.output_of(key, index)
        assert found is not None
        self.looks.discard((key, index))
        if found[0] in self.objects:
            self.engine.present(key, index)
        else:
            self.engine.lost(key, index, "absent")

    def call_next(self) -> None:
        if len(self.called) < len(self.calls):
            call = self.calls[len(self.called)]
            self.called[call.key] = call
            self.engine.call(call)

    def step(self) -> None:
        happenings = {
            self.call_next: 15,
            self.end_one: 25,
            self.write: 20,
            self.answer: 8,
            self.delete: 8,
            self.restore: 2,
            self.want: 8,
            self.unwant: 4,
            self.cancel: 0.5,
            self.blip: 3,
            self.rejoin: 3,
            self.die: 1.5,
            self.read_one: 2,
            self.ask_by_hand: 1,
        }
        self.random.choices(list(happenings), list(happenings.values()))[0]()
        self.decide()

    def any_key(self) -> str:
        return self.random.choice(self.calls).key

    def delete(self) -> None:
        if self.objects:
            self.objects.discard(self.random.choice(sorted(self.objects)))

    def restore(self) -> None:
        """A copy turns up."""
        key = self.any_key()
        if (found := self.engine.output_of(key, 0)) is not None:
            self.objects.add(found[0])
            self.read(key, 0)

    def want(self) -> None:
        key = self.any_key()
        if key in self.called:
            self.wants[key] += 1
            self.engine.want(key)

    def unwant(self) -> None:
        key = self.any_key()
        if self.wants[key]:
            self.wants[key] -= 1
            self.engine.unwant(key)

    def cancel(self) -> None:
        self.engine.cancel(self.any_key())

    def blip(self) -> None:
        number = self.random.choice(list(self.workers))
        self.workers[number].here = False
        self.engine.away(number)

    def rejoin(self) -> None:
        self.join(self.random.choice(list(self.workers)))

    def read_one(self) -> None:
        self.get(self.any_key())

    def ask_by_hand(self) -> None:
        """A person's `trainrun tasks rebuild` comes before the batch that is on its way."""
        entry = ReplayedState(self.log).entries.get(self.any_key())
        if entry is not None and entry.settled and not entry.given:
            records: list[Record] = [Reset(key=entry.key)]
            if entry.done:
                again = entry.generation + 1
                self.looks -= {(entry.key, 0), (entry.key, 1)}
                records.append(Rebuild(key=entry.key, generation=again, why="asked for"))
            self.log += records
            self.engine.logged(records)

    def get(self, key: str) -> None:
        """Somebody reads what is there."""
        outcome = self.engine.outcome(key)
        if isinstance(outcome, Ready) and key in self.called:
            for index in range(len(outcome.outputs)):
                self.read(key, index)

    # --- the end

    def calm_down(self) -> None:
        """Nothing fails any more: everything settles."""
        self.quiet = True
        for number in self.workers:
            self.join(number)
        while len(self.called) < len(self.calls):
            self.call_next()
        for call in self.calls:
            self.wants[call.key] += 1
            self.engine.want(call.key)
        for _ in range(1000):
            before = len(self.log)
            self.decide()
            self.write()
            self.answer()
            self.end_one()
            self.decide()
            if len(self.log) == before and not self.looks and not self.pending:
                for call in self.calls:
                    self.get(call.key)
                self.decide()
                if not self.pending and not self.looks:
                    break
        else:
            raise AssertionError("it goes on for ever")
        for call in self.calls:
            outcome = self.engine.outcome(call.key)
            assert outcome is not None, call.key
            if isinstance(outcome, Ready):
                results = range(call.options.num_returns)
                found = [self.engine.output_of(call.key, index) for index in results]
                assert {name for name, _ in filter(None, found)} <= self.objects
                assert None not in found
        self.check_log()

    def check_log(self) -> None:
        done = [(r.key, r.generation) for r in self.log if isinstance(r, Done)]
        assert len(done) == len(set(done))
        counts = self.engine.counts()
        failed = [c for c in self.calls if isinstance(self.engine.outcome(c.key), Broken)]
        assert (counts.total, counts.failed) == (len(self.calls), len(failed))
        assert counts.running == 0
        assert counts.done == len({key for key, _ in done})


@given(st.integers(0, 2**32))
def test_a_life_ends_well(seed: int) -> None:
    life = Life(seed)
    for _ in range(life.random.randint(0, 120)):
        life.step()
    life.calm_down()
