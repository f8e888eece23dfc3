"""Which metrics a drill does not compare: those that tell about the machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.cli.drilling.test_pictures import DRILL
from trainrun_operator.cli.drilling.comparing import Tolerance, about_machine, deviations, tolerance
from trainrun_operator.cli.drilling.drill_report import control_lines, curves, report_of
from trainrun_operator.cli.drilling.runs import Curve

TRAINED = (
    "loss_per_step", "loss_per_sample", "nll_per_symbol", "second_moment_norm",
    "consecutive_hits", "security_score", "beta", "theta", "timestep_loss", "sentiment_loss",
    "duration_loss", "intersection_over_union", "timestep", "program_score", "memory_loss",
    "seconds_loss_mean",
)  # fmt: skip
CLOCKS = (
    "step_time", "time", "train/tokensPerSec", "tokens_per_sec", "tokens_per_second_per_gpu",
    "train_samples_per_second", "train_runtime", "s_per_step", "eta", "ETA", "eta_seconds",
    "iter_time_ms", "GPUMemory", "gpu_mem", "mem_gb", "memory/max_reserved(GiB)",
    "throughput(tps)", "mfu(%)", "latency_p50", "tokens_per_s", "perf/tflops_per_gpu",
    "time.elapsed", "wall-time", "gpu_util", "loss_time", "speed",
    "system/cpu_utilization_percentage", "duration",
)  # fmt: skip


def a_curve(name: str, first: float = 1.0) -> Curve:
    """One metric of 20 steps, which shrinks."""
    return {step: {name: first * 0.9**step} for step in range(1, 21)}


def of_two(one: Curve, other: Curve) -> Tolerance:
    return tolerance(one, other, until=20)


@pytest.mark.parametrize("name", TRAINED)
def test_a_loss_whose_name_contains_the_word_of_a_clock_was_silently_not_compared(
    name: str,
) -> None:
    trained, never_loaded = a_curve(name), a_curve(name, 2.0)
    within = of_two(trained, trained)
    assert (within.allowed, within.skipped) == ({name: 0.0}, ())
    (wrong,) = deviations(never_loaded, trained, within, after=10, until=20)
    assert (wrong.first.metric, wrong.steps, wrong.compared) == (name, 10, 10)


@pytest.mark.parametrize("name", CLOCKS)
def test_a_metric_named_after_time_speed_or_memory_is_left_out_by_whole_words(name: str) -> None:
    assert about_machine(name)
    within = of_two(a_curve(name), a_curve(name, 1.1))
    assert (within.allowed, within.skipped, within.exact) == ({}, (name,), True)


def test_what_is_named_after_time_and_the_same_in_both_runs_to_all_digits_is_compared() -> None:
    same = a_curve("speed_error")
    assert of_two(same, same).allowed == {"speed_error": 0.0}
    rounded: Curve = {1: {"elapsed": 0.1}, 2: {"elapsed": 0.2}, 3: {"elapsed": 1}}
    assert of_two(rounded, rounded).skipped == ("elapsed",), "a clock may say so twice"


def test_memory_is_never_compared_since_a_load_may_take_more_of_it() -> None:
    same = a_curve("peak_memory_gb")
    assert of_two(same, same).skipped == ("peak_memory_gb",)


def test_what_is_not_compared_is_listed() -> None:
    within = Tolerance(allowed={"loss": 0.0}, steps=20, skipped=("step_time", "mfu"))
    assert list(control_lines(within)) == [
        "two undisturbed runs are equal in 20 steps (metrics: loss)",
        "not compared, since they are named after time, speed or memory: step_time, mfu",
    ]
    told: Any = report_of(replace(DRILL, within=within), exit_code=0).data
    assert told["control"]["notCompared"] == ["step_time", "mfu"]
    many = replace(within, skipped=tuple(f"time_{number}" for number in range(7)))
    *_, last = control_lines(many)
    assert last.endswith("time_3, time_4 and 2 more")


def test_a_metric_that_is_compared_is_drawn_whatever_its_name() -> None:
    drill = replace(DRILL, curve=a_curve("speed_error"), rehearsed=())
    assert curves(drill, most=6).pictures == {}
    compared = replace(drill, within=Tolerance(allowed={"speed_error": 0.0}))
    assert list(curves(compared, most=6).pictures) == ["speed_error"]
