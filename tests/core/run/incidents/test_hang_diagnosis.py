"""Where ranks stand that do not move: the four classes, and who is named."""

from __future__ import annotations

from typing import Any

import pytest

from trainrun.contract.evidence import Frame, RankEvidence
from trainrun_operator.core.run.incidents.hang_diagnosis import (
    HangDiagnosis,
    RankHangState,
    diagnosis,
    hang_state,
)

C10D = "/x/site-packages/torch/distributed/distributed_c10d.py"
LOADER = "/x/site-packages/torch/utils/data/dataloader.py"
SCRIPT = Frame(name="train", file="/app/train.py", line=52, own=True)


def own(name: str = "train", line: int = 52) -> Frame:
    return Frame(name=name, file="/app/train.py", line=line, own=True)


def in_(name: str, file: str = C10D) -> tuple[Frame, ...]:
    return (
        Frame(name=name, file=file, line=7),
        Frame(name="wrapper", file="/x/site-packages/torch/distributed/c10d_logger.py", line=83),
        SCRIPT,
    )


def at(rank: int, *stack: Frame, slot: int | None = None, **fields: Any) -> RankHangState:
    found = RankEvidence(rank=rank, stack=stack, **({"state": "S"} | fields))
    return hang_state(found, rank if slot is None else slot)


def together(*ranks: int, name: str = "all_reduce") -> list[RankHangState]:
    return [at(rank, *in_(name)) for rank in ranks]


def said(verdict: HangDiagnosis) -> tuple[str, str, int | None]:
    culprit = verdict.culprit.rank if verdict.culprit is not None else None
    return verdict.kind, verdict.message, culprit


def test_the_one_that_is_not_in_the_collective_is_to_blame() -> None:
    loads = Frame(name="DataLoader.__next__", file="/app/data.py", line=41, own=True)
    ranks = [*together(0, 1, 2, 4, 5, 6, 7), at(3, loads)]
    assert said(diagnosis(ranks)) == (
        "OneRankAway",
        "rank 3 is in `DataLoader.__next__` (data.py:41); 7 others in all_reduce",
        3,
    )


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"kernel": "futex; futex_wait_queue"}, "waits in the kernel (futex; futex_wait_queue)"),
        ({"state": "R", "cpu": 1.0}, "computes (100 % of a core)"),
    ],
)
def test_a_rank_whose_stack_could_not_be_read_is_not_blamed(
    fields: dict[str, Any], place: str
) -> None:
    """It stood in the same collective as all others, and its node was called the culprit."""
    verdict = diagnosis([*together(0, 2, 3), at(1, **fields)])
    assert said(verdict) == ("Unknown", f"rank 1 {place}; 3 others in all_reduce", None)


def test_a_rank_without_a_stack_that_waits_for_a_file_is_away() -> None:
    verdict = diagnosis([*together(0, 2), at(1, kernel="read of /data/a.bin; fuse_wait")])
    assert (verdict.kind, verdict.culprit and verdict.culprit.rank) == ("OneRankAway", 1)


def test_of_two_ranks_of_one_worker_that_are_away_the_worker_is_to_blame() -> None:
    ranks = [*together(0, 1), at(2, own(), slot=1), at(3, own("load", 9), slot=1)]
    verdict = diagnosis(ranks)
    assert (verdict.kind, verdict.alone) == ("OneRankAway", False)
    assert verdict.message == (
        "rank 2 is in `train` (train.py:52); 2 others in all_reduce; 1 other in `load` (train.py:9)"
    )


def test_of_ranks_of_two_workers_that_are_away_nobody_is_to_blame() -> None:
    verdict = diagnosis([*together(0), at(1, own()), at(2, own())])
    assert said(verdict) == (
        "Unknown",
        "rank 1 is in `train` (train.py:52); 1 other in `train` (train.py:52); "
        "1 other in all_reduce",
        None,
    )


def test_several_that_wait_for_storage_while_the_rest_is_in_a_collective() -> None:
    reading = {"kernel": "read of /data/shard-7; fuse_wait", "state": "D"}
    verdict = diagnosis([*together(0), at(1, own(), **reading), at(2, own(), **reading)])
    assert verdict.kind == "WaitingForInput"
    assert verdict.message.startswith(
        "rank 1 is in `train` (train.py:52) (read of /data/shard-7; fuse_wait); 1 other in"
    )


def test_all_in_one_collective_blame_nobody() -> None:
    assert said(diagnosis(together(0, 1, 2))) == (
        "SameCollective",
        "all 3 ranks are in all_reduce; no rank is known to be behind",
        None,
    )
    assert diagnosis(together(4)).message.startswith("1 rank is in all_reduce")


def test_where_a_rank_is_missing_that_all_others_stand_together_proves_nothing() -> None:
    assert said(diagnosis(together(0, 1), missing=1)) == (
        "Unknown",
        "2 ranks are in all_reduce; nothing is known about 1 other; no rank is known to be behind",
        None,
    )
    assert diagnosis([*together(0), at(1, own())], missing=2).kind == "Unknown"
    assert diagnosis([*together(0), at(1)]).message.endswith("no rank is known to be behind")


def test_collectives_that_do_not_fit_together() -> None:
    odd = together(2, name="broadcast")
    assert said(diagnosis([*together(0, 1), *odd])) == (
        "OneRankAway",
        "rank 2 is in broadcast; 2 others in all_reduce",
        2,
    )
    verdict = diagnosis([*together(0), *odd])
    assert said(verdict) == (
        "Unknown",
        "the ranks are in different collectives: rank 2 is in broadcast; 1 other in all_reduce",
        None,
    )
    assert diagnosis([*together(0, 1), *odd], missing=1).kind == "Unknown"


def test_a_stopped_rank_is_away_wherever_the_others_are() -> None:
    ranks = [at(0, own("barrier", 9)), at(1, own(), state="T")]
    assert said(diagnosis(ranks)) == (
        "OneRankAway",
        "rank 1 is stopped by a signal (state T) in `train` (train.py:52); "
        "1 other in `barrier` (train.py:9)",
        1,
    )
    assert said(diagnosis([at(0, state="T")])) == (
        "Unknown",
        "rank 0 is stopped by a signal (state T)",
        None,
    )


def test_without_a_collective_those_with_the_lowest_step_are_looked_at() -> None:
    ahead = at(0, own("barrier", 9), step=5)
    behind = at(1, own(), step=4)
    assert said(diagnosis([ahead, behind])) == (
        "Unknown",
        "rank 1 is in `train` (train.py:52); 1 other in `barrier` (train.py:9)",
        None,
    )
    waits = at(1, own(), step=4, kernel="openat; wait_for_partner")
    assert diagnosis([ahead, waits]).kind == "WaitingForInput"
    never = at(1, own(), kernel="openat")
    assert diagnosis([ahead, never]).message.startswith("rank 1 is in `train`")


@pytest.mark.parametrize(
    ("stack", "fields", "text"),
    [
        ((), {"kernel": "read of /data/x"}, "waits (read of /data/x)"),
        (in_("__next__", LOADER), {}, "is in `__next__` (dataloader.py:7)"),
        ((own(),), {"kernel": "pread64 of /d"}, "is in `train` (train.py:52) (pread64 of /d)"),
        (
            (own(),),
            {"kernel": "write of its output; pipe_write"},
            "waits for its output to be read in `train` (train.py:52)",
        ),
        ((own(),), {"kernel": "futex; folio_wait_bit"},
         "is in `train` (train.py:52) (futex; folio_wait_bit)"),
        ((own(),), {"kernel": "nfs_wait_on_request"},
         "is in `train` (train.py:52) (nfs_wait_on_request)"),
    ],
)  # fmt: skip
def test_what_waits_for_input_or_storage(
    stack: tuple[Frame, ...], fields: dict[str, Any], text: str
) -> None:
    verdict = diagnosis([at(0, *stack, **fields)])
    assert (verdict.kind, verdict.message) == ("WaitingForInput", f"rank 0 {text}")


@pytest.mark.case("decisions", "A process dies or hangs inside a GPU kernel", counted="its cause")
@pytest.mark.parametrize(
    ("stack", "fields", "text"),
    [
        ((own(),), {"cpu": 1.0}, "computes (100 % of a core) in `train` (train.py:52)"),
        ((), {"cpu": 0.1, "state": "R"}, "computes (10 % of a core)"),
        ((own(),), {"kernel": "clock_nanosleep"}, "is in `train` (train.py:52)"),
        ((), {"kernel": "futex"}, "waits in the kernel (futex)"),
        ((), {"cpu": 2.0}, "computes (200 % of a core)"),
        ((), {"cpu": 1.0, "gpu": True}, "computes, or waits for its GPU (100 % of a core)"),
        (
            (Frame(name="f", file="/x/site-packages/y.py", line=1),),
            {"helpers_lost": 1},
            "is in `f` (y.py:1), and 1 of its child processes is dead",
        ),
        (
            (own(),),
            {"helpers_lost": 2},
            "is in `train` (train.py:52), and 2 of its child processes are dead",
        ),
    ],
)
def test_what_says_nothing_of_why(
    stack: tuple[Frame, ...], fields: dict[str, Any], text: str
) -> None:
    verdict = diagnosis([at(0, *stack, **fields)])
    assert (verdict.kind, verdict.message) == ("Unknown", f"rank 0 {text}")


def test_of_ranks_of_which_nothing_is_known_is_said_so() -> None:
    assert said(diagnosis([at(0), at(1)])) == (
        "Unknown",
        "nothing is known about 2 ranks",
        None,
    )


def test_a_list_of_places_is_short() -> None:
    ranks = [at(rank, own(line=rank)) for rank in range(6)]
    assert diagnosis(ranks).message == (
        "rank 0 is in `train` (train.py:0); 1 other in `train` (train.py:1); "
        "1 other in `train` (train.py:2); 1 other in `train` (train.py:3); 2 others elsewhere"
    )
