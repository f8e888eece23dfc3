from __future__ import annotations

from pathlib import Path

import pytest

from trainrun.agent.faults import Faults
from trainrun.contract.agent_config import KillFault


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "0"


def test_a_fault_strikes_once_at_its_step_or_the_first_after_it(mark: Path) -> None:
    faults = Faults([KillFault(rank=1, step=10, mark=str(mark))])
    assert not faults.strikes(1, 9)
    assert not faults.strikes(0, 10)
    assert faults.strikes(1, 12)
    faults.ended(1, 9)
    assert not faults.strikes(1, 12)
    assert mark.exists()


def test_a_fault_that_another_has_struck_does_not_strike(mark: Path) -> None:
    faults = Faults([KillFault(rank=1, step=10, mark=str(mark))])
    mark.touch()
    assert not faults.strikes(1, 12)


def test_a_process_that_had_ended_on_its_own_leaves_the_fault_to_the_next(mark: Path) -> None:
    faults = Faults([KillFault(rank=1, step=10, mark=str(mark))])
    assert faults.strikes(1, 12)
    faults.ended(1, None)
    assert not mark.exists()
    assert faults.strikes(1, 12)


def test_a_fault_strikes_at_its_moment_of_the_step_only(tmp_path: Path) -> None:
    faults = Faults(
        [
            KillFault(rank=1, step=10, mark=str(tmp_path / "0"), at="save"),
            KillFault(rank=1, step=0, mark=str(tmp_path / "1"), at="load"),
        ]
    )
    assert not faults.strikes(1, 10), "a report is neither"
    assert not faults.strikes(1, 9, "save")
    assert faults.strikes(1, 10, "save")
    faults.ended(1, 9)
    assert faults.strikes(1, 7, "load")


def test_one_kill_is_one_fault(tmp_path: Path) -> None:
    first = KillFault(rank=1, step=10, mark=str(tmp_path / "0"))
    second = KillFault(rank=1, step=12, mark=str(tmp_path / "1"))
    faults = Faults([first, second])
    assert faults.strikes(1, 10)
    assert not faults.strikes(1, 12), "what the process said before its end"
    faults.ended(1, 9)
    assert faults.strikes(1, 12)
