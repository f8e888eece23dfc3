"""A storage that is gone for ever: whoever stops the run is not kept waiting."""

from __future__ import annotations

import signal
import time

import pytest

from tests.worlds.local.local_runs import LocalRuns

GRACE = 3


@pytest.mark.case("operator", "`trainrun run` is stopped by a signal while its storage is gone")
def test_one_sigterm_ends_a_run_whose_storage_is_gone_after_its_grace(runs: LocalRuns) -> None:
    runs.env, runs.pod = {"STEPS": "100000"}, {"terminationGracePeriodSeconds": GRACE}
    driver = runs.start()
    driver.wait_for_step(7)
    runs.storage.rename(runs.folder / "unmounted")
    begun = time.monotonic()
    driver.process.send_signal(signal.SIGTERM)
    ended = driver.end()
    assert GRACE <= time.monotonic() - begun < 60
    assert ended.code == 130
    assert "stopping without saving: cannot write" in ended.err
    assert "are repeated" in ended.err
    assert runs.our_processes() == []
