"""How long the processes of a worker go without asking."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainrun.agent.training.step_clock import Asking


@dataclass
class Rank:
    calls: int = 0


@dataclass
class Worker:
    """Two ranks that are looked at each second."""

    ranks: dict[int, Rank] = field(default_factory=lambda: {0: Rank(), 1: Rank()})
    living: tuple[int, ...] = (0, 1)
    now: float = 100.0

    def __post_init__(self) -> None:
        self.asking = Asking(files=self.ranks)

    def seconds(self, number: int, *asking: int, stopped: bool = False) -> float:
        """So many seconds pass in which these ranks ask once a second."""
        for _ in range(number):
            self.now += 1.0
            for rank in asking:
                self.ranks[rank].calls += 1
            self.asking.look(self.living, self.now, stopped=stopped)
        return self.asking.longest


def test_before_its_first_call_a_script_keeps_nobody_waiting() -> None:
    assert Worker().seconds(100) == 0.0


def test_while_the_machine_stood_still_nobody_could_have_asked() -> None:
    worker = Worker()
    worker.seconds(3, 0, 1)
    worker.now += 300.0
    assert worker.seconds(2) == 1.0


def test_who_asks_in_every_step_has_no_gap() -> None:
    assert Worker().seconds(100, 0, 1) == 0.0


def test_the_longest_gap_is_told_while_it_lasts_and_stays() -> None:
    worker = Worker()
    worker.seconds(3, 0, 1)
    assert worker.seconds(95) == 95.0
    assert worker.seconds(10, 0, 1) == 95.0
    assert worker.seconds(20) == 95.0


def test_the_rank_that_asks_least_counts() -> None:
    worker = Worker()
    worker.seconds(1, 0, 1)
    assert worker.seconds(40, 0) == 40.0


def test_a_rank_that_has_ended_asks_no_more_and_is_not_waited_for() -> None:
    worker = Worker()
    worker.seconds(1, 0, 1)
    worker.living = (0,)
    assert worker.seconds(40, 0) == 0.0


def test_the_time_that_ranks_wait_in_a_call_is_ours() -> None:
    worker = Worker()
    worker.seconds(1, 0, 1)
    assert worker.seconds(40, stopped=True) == 0.0
    assert worker.seconds(2) == 2.0


def test_a_gap_that_nobody_looked_at_is_not_told() -> None:
    """The machine was suspended, or the agent stopped: what passed is not known."""
    worker = Worker()
    worker.seconds(1, 0, 1)
    worker.now += 1000.0
    assert worker.seconds(1, 0, 1) == 0.0


def test_the_rank_that_has_stopped_asking_is_known_by_its_calls_and_its_pause() -> None:
    worker = Worker()
    worker.seconds(3, 0, 1)
    worker.seconds(30, 1)
    assert (worker.asking.fewest, worker.asking.pause) == (3, 30.0)
    worker.seconds(1, 0)
    assert (worker.asking.fewest, worker.asking.pause) == (4, 0.0)
    worker.living = (1,)
    worker.seconds(1, 1)
    assert (worker.asking.fewest, worker.asking.pause) == (34, 0.0), "the other one has ended"
