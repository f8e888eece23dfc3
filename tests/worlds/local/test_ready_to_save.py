"""A script that stops asking for a while, with a real process."""

from __future__ import annotations

from tests.worlds.local.local_runs import LocalRuns

EVALUATES = """
import time, trainrun
for step in range(1, 81):
    trainrun.report({"loss": 1.0}, step=step)
    trainrun.should_save()
    if step == 20:
        time.sleep(5.0)
    time.sleep(0.05)
"""


def test_a_long_evaluation_is_told_before_a_notice_comes(runs: LocalRuns) -> None:
    container = {"name": "worker", "image": "unused", "command": ["python", "-c", EVALUATES]}
    template = {"spec": {"terminationGracePeriodSeconds": 2, "containers": [container]}}
    runs.spec = {"workers": {"replicas": 1, "template": template}}
    ended = runs.run()
    assert ended.code == 0, ended.out[-3000:]
    told = [event["message"] for event in ended.history if event["reason"] == "SaveTooLate"]
    assert len(told) == 1
    assert told[0].startswith("a notice of 2 s would lose ")
    assert "(worker tiny-0-1)" in told[0]
