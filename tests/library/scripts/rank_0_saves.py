"""Only rank 0 reports; it reports metrics first, then the whole checkpoint of the same step."""

from __future__ import annotations

import time

import trainrun

if trainrun.get_context().rank == 0:
    for step in range(1, 4):
        trainrun.report({"loss": 1 / step}, step=step)
        saved = trainrun.staging_directory()
        (saved / "model").write_text(f"weights of step {step}")
        trainrun.report({"loss": 1 / step}, step=step, checkpoint=saved, whole=True)
        time.sleep(0.05)
