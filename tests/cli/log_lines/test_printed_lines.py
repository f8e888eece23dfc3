"""The output of an agent: which line is of which attempt and rank, and what was cut off."""

from __future__ import annotations

from trainrun_operator.cli.formatting import named
from trainrun_operator.cli.log_lines.line import Gap, Line, WorkerOutput


def taken(output: WorkerOutput, *lines: str) -> list[tuple[int | None, int, str]]:
    told = (output.line(line) for line in lines)
    return [(line.attempt, line.rank, line.text) for line in told if line is not None]


def test_lines_are_of_the_attempt_that_the_agent_started_last() -> None:
    output = WorkerOutput(worker="llama-1-1")
    assert taken(
        output,
        "[agent] INFO order: Start",
        "[agent] INFO starting attempt 3",
        "[rank 2] step 1",
        "[rank 3] [agent] INFO starting attempt 9",
        "[agent] INFO starting attempt 4",
        "[rank 2] ",
    ) == [(3, 2, "step 1"), (3, 3, "[agent] INFO starting attempt 9"), (4, 2, "")]
    assert (output.first, output.attempt) == (3, 4)


def test_of_a_worker_whose_output_lacks_its_beginning_the_attempt_is_not_known() -> None:
    assert taken(WorkerOutput(worker="w"), "[rank 0] x") == [(None, 0, "x")]


def test_a_worker_that_never_told_how_its_processes_ended_was_lost() -> None:
    output = WorkerOutput(worker="llama-1-1")
    taken(output, "[agent] INFO starting attempt 3", "[rank 2] a", "[rank 3] b")
    taken(output, "[agent] INFO rank 2: SIGTERM", "[agent] INFO rank 3 was killed by SIGKILL")
    assert list(output.lost(2)) == []
    (missing,) = output.lost(3)
    assert missing == Gap(
        attempt=3,
        worker="llama-1-1",
        text="the output of rank 2 ends here: the worker was lost, and lines that it had not sent "
        "are missing",
    )
    assert list(output.lost(3)) == [], "said once"


def test_many_ranks_are_named_in_a_few_words() -> None:
    assert named({3}) == "rank 3"
    assert named(set(range(10))) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more"


def test_a_line_knows_its_worker() -> None:
    output = WorkerOutput(worker="w", attempt=1)
    assert output.line("[rank 0] x") == Line(attempt=1, rank=0, text="x", worker="w")
