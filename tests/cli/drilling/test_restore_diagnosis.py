"""What a difference after a resume is taken for."""

from __future__ import annotations

import pytest

from trainrun.contract.metrics import Metric
from trainrun_operator.cli.drilling.comparing import Part, deviations, parts_of, tolerance
from trainrun_operator.cli.drilling.remedies import Finding
from trainrun_operator.cli.drilling.restore_diagnosis import After, findings
from trainrun_operator.cli.drilling.runs import Curve

UNTIL, HANDED = 30, 20


def undisturbed(step: int) -> dict[str, Metric]:
    return {"loss": 2.0 - step * 0.05, "lr": 0.1 * 0.9**step, "batch_hash": f"b{step}"}


CONTROL: Curve = {step: undisturbed(step) for step in range(1, UNTIL + 1)}


def told(*names: str, **changed: list[Metric]) -> list[Finding]:
    """Of a run whose metrics have these values after the resume, one by one; of other metrics only
    those named are reported, as without a restart."""
    steps = range(HANDED + 1, UNTIL + 1)
    keep = {*names, *changed}
    run: dict[int, dict[str, Metric]] = {
        step: {name: value for name, value in CONTROL[step].items() if name in keep}
        for step in steps
    }
    for name, values in changed.items():
        for step, value in zip(steps, values, strict=False):
            run[step][name] = value
    within = tolerance(CONTROL, CONTROL, until=UNTIL)
    wrong = deviations(run, CONTROL, within, after=HANDED, until=UNTIL)
    return findings(After(run=run, control=CONTROL, within=within, steps=tuple(steps)), wrong)


def losses(*plus: float) -> list[Metric]:
    return [2.0 - step * 0.05 + more for step, more in zip(range(21, 31), plus, strict=True)]


FIRST = [CONTROL[step] for step in range(1, 11)]


@pytest.mark.parametrize(
    ("found", "kind", "text"),
    [
        (
            told("lr", loss=losses(0, *[0.3] * 9)),
            "OptimizerReset",
            "looks like optimizer or schedule rather than weights (lr: equal)",
        ),
        (
            told(loss=losses(*[0.01, -0.02] * 5)),
            "DataOrRandomDiffer",
            "looks like random numbers, or the order of the data (report a batch_hash",
        ),
        (
            told("batch_hash", loss=losses(*[0.01, -0.02] * 5)),
            "RandomNotRestored",
            "looks like random numbers (batch_hash: equal)",
        ),
        (told(loss=losses(*[0.1] * 10)), "WeightsDiffer", "on one side of the undisturbed curve"),
        (
            told(loss=[it["loss"] for it in FIRST]),
            "WeightsNotLoaded",
            "these are the values of the first steps, as if nothing was loaded",
        ),
        (
            told(loss=[float(it["loss"]) + 0.01 for it in FIRST]),
            "WeightsNotLoaded",
            "much closer to the curve of the first steps",
        ),
        (
            told(lr=[it["lr"] for it in FIRST]),
            "LearningRateReset",
            "the schedule restarted",
        ),
        (told(lr=[0.5] * 10), "LearningRateReset", "does not continue where it was"),
        (
            told(batch_hash=[it["batch_hash"] for it in FIRST]),
            "DataRestarted",
            "the data restarted",
        ),
        (told(batch_hash=["x"] * 10), "DataDiffers", "other batches than without a restart"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_it_is_named_by_what_was_seen(found: list[Finding], kind: str, text: str) -> None:
    (finding,) = found
    assert finding.kind == kind
    assert text in finding.text


def test_what_follows_from_another_part_is_not_told_beside_it() -> None:
    both = told(lr=[it["lr"] for it in FIRST], loss=losses(0, *[0.3] * 9))
    assert [it.kind for it in both] == ["LearningRateReset"]


def test_where_everything_began_anew_all_of_it_is_told() -> None:
    everything = told(
        lr=[it["lr"] for it in FIRST],
        batch_hash=[it["batch_hash"] for it in FIRST],
        loss=[it["loss"] for it in FIRST],
    )
    assert {it.kind for it in everything} == {
        "LearningRateReset",
        "DataRestarted",
        "WeightsNotLoaded",
    }


NOISE = [(-1) ** step * 0.05 * (1 + step % 3) for step in range(UNTIL + 1)]
NOISY: Curve = {step: {"loss": 2.0 - step * 0.01 + NOISE[step]} for step in range(1, UNTIL + 1)}


def scattered(
    *plus: float, wrong: frozenset[Part] = frozenset(), right: frozenset[Part] = frozenset()
) -> str:
    """The kind, of a curve that changes from step to step by about 0.2, with this on top."""
    steps = tuple(range(HANDED + 1, UNTIL + 1))
    run = {
        step: {"loss": float(NOISY[step]["loss"]) + more}
        for step, more in zip(steps, plus, strict=True)
    }
    within = tolerance(NOISY, NOISY, until=UNTIL)
    found = deviations(run, NOISY, within, after=HANDED, until=UNTIL)
    after = After(run=run, control=NOISY, within=within, steps=steps, wrong=wrong, right=right)
    (finding,) = findings(after, found)
    return finding.kind


def test_on_a_flat_curve_the_draws_of_the_first_steps_are_not_taken_for_new_weights() -> None:
    flat = [((step * 37) % 11 - 5) / 10 for step in range(UNTIL + 1)]
    control: Curve = {step: {"loss": 2.0 + flat[step]} for step in range(1, UNTIL + 1)}
    steps = tuple(range(HANDED + 1, UNTIL + 1))
    run = {step: {"loss": 2.001 + flat[step - HANDED]} for step in steps}
    within = tolerance(control, control, until=UNTIL)
    found = deviations(run, control, within, after=HANDED, until=UNTIL)
    after = After(run=run, control=control, within=within, steps=steps)
    assert [it.kind for it in findings(after, found)] == ["DataOrRandomDiffer"]


ONE_SIDE = [0.02, 0.15, 0.08, 0.2, 0.11] * 2


@pytest.mark.parametrize(
    ("kind", "wrong", "right"),
    [
        ("DataOrRandomDiffer", set(), set()),
        ("RandomNotRestored", {"Random"}, set()),
        ("DataDiffers", {"Data"}, set()),
        ("DataDiffers", set(), {"Random"}),
        ("DataOrRandomDiffer", {"Data", "Random"}, set()),
    ],
)
def test_a_curve_that_is_moved_as_by_other_batches_is_not_taken_for_other_weights(
    kind: str, wrong: set[Part], right: set[Part]
) -> None:
    assert scattered(*ONE_SIDE, wrong=frozenset(wrong), right=frozenset(right)) == kind


def test_a_curve_that_moves_much_more_or_hardly_at_all_has_other_weights() -> None:
    assert scattered(*[1.0] * 10) == "WeightsDiffer"
    assert scattered(*[0.001] * 10) == "WeightsDiffer"


def test_a_loss_that_is_no_number_after_the_resume_is_told_as_it_is() -> None:
    assert scattered(*[float("nan")] * 10, wrong=frozenset({"Random"})) == "CurvesDiffer"


def test_entries_of_checkpoints_are_known_by_their_names() -> None:
    assert parts_of(["state.pt: rng.torch", "rng_state_1.pth"]) == {"Random"}
    assert parts_of(["state.json: sampler.position", "s.json: epoch"]) == {"Data"}
    assert parts_of(["s.pt: scheduler.last_epoch"]) >= {"Rate"}
    assert parts_of(["s.pt: optimizer.param_groups.0.lr"]) == {"Rate"}
    weights = ["m.pt: model.bn.num_batches_tracked", "m.pt: position_embeddings.weight"]
    assert parts_of([*weights, "o.pt: optimizer.state.0.exp_avg"]) == set()
