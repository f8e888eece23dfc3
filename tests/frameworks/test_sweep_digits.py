"""The example of a sweep: 30 trials, killed in between."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.sweep_log import SweepLog
from trainrun.sweep.view import SweepView
from trainrun_operator.worlds.local.worker import kill_all

EXAMPLE = Path(__file__).parents[2] / "examples" / "sweep_digits" / "sweep.yaml"


@pytest.mark.slow
def test_thirty_trials_find_a_good_network_though_their_driver_is_killed(tmp_path: Path) -> None:
    storage = tmp_path / "sweeps"
    command = [sys.executable, "-m", "trainrun_operator.cli", "run", str(EXAMPLE)]
    command += ["--storage", str(storage), "--plain"]

    def view() -> SweepView:
        return SweepLog(RunStore(open_store(storage.as_uri()), "sweep-digits")).read_on()

    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as driver:
        try:
            eventually(
                lambda: storage.exists() and view().count("Succeeded", "Stopped") > 4,
                timeout=240,
                what="five trials have ended",
            )
        finally:
            driver.kill()
    before = view().trials
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
    kill_all(storage)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    after = view()
    assert after.asked == 30
    assert after.count("Errored") == 0
    assert after.count("Stopped") > 5, "ASHA has ended some"
    assert all(after.trials[number].params == trial.params for number, trial in before.items())
    assert "best         trial " in ended.stdout
    assert min(it.value for it in after.trials.values() if it.value is not None) < 0.05
