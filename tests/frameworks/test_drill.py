"""`trainrun drill` of trainings with frameworks, two ranks and DistributedDataParallel: a sound one
is fine; a script that forgets to resume gets the call of its own framework as the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.drills import a_ground
from trainrun_operator.cli.drilling.comparing import agreed, tolerance
from trainrun_operator.cli.drilling.findings import FaultFreeBaseline
from trainrun_operator.cli.drilling.local_environment import LocalEnvironment
from trainrun_operator.cli.drilling.runs import Goal, scenarios
from trainrun_operator.cli.drilling.verdicts import judge

HERE = Path(__file__).parent
UNTIL, LONG = 14, 300.0


def ground_of(folder: Path, script: Path) -> LocalEnvironment:
    out = folder / "out"
    out.mkdir(parents=True)
    return a_ground(folder, env={"OUT": str(out), "PYTHONPATH": str(HERE)}, script=script)


@pytest.mark.parametrize("script", ["gpt2.py", "lightning_noise.py"])
def test_a_sound_training_is_fine_and_a_forgotten_resume_is_named(
    script: str, tmp_path: Path
) -> None:
    sound = ground_of(tmp_path / "sound", HERE / script)
    one, other = (sound.try_run(None, Goal(until=UNTIL, seconds=LONG)) for _ in range(2))
    within = tolerance(one.curve(1), other.curve(1), until=UNTIL)
    beside = FaultFreeBaseline(
        control=one, within=within, contents=agreed(one, other), until=UNTIL, on_notice="Auto"
    )
    kill = scenarios(one, until=UNTIL, grace=30)[0]
    told = judge(kill, sound.try_run(kill, Goal(until=UNTIL, seconds=LONG)), beside)
    assert told.findings == (), told.findings[0].text
    assert (told.outcome, told.why_not, told.checkpoints) == ("Fine", "", "Equal")
    if script == "gpt2.py":
        forgetful = tmp_path / "forgetful.py"
        whole = (HERE / script).read_text()
        forgetful.write_text(whole.replace("resume_from_checkpoint=resume_path()", ""))
        environment = ground_of(tmp_path / "forgetful", forgetful)
        course = environment.try_run(kill, Goal(until=UNTIL, seconds=LONG))
        (finding,) = judge(kill, course, beside).findings
        assert finding.kind == "RecoveryFailed"  # the callback refuses it, and says why
        assert "train(resume_from_checkpoint=resume_path())" in finding.text
