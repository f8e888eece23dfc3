"""What a spec says about failures and hangs, on a real cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from tests.e2e.support.incidents import succeeded
from trainrun_operator.cli.commands import trainrun

if TYPE_CHECKING:
    from tests.e2e.support.bed import Bed

pytestmark = pytest.mark.cluster


@pytest.mark.case(
    "processes", "A process hangs, and health.progressTimeout is set", counted="maxFailures"
)
@pytest.mark.case(
    "decisions", "A rule of failurePolicy.rules matches an incident", counted="what its action says"
)
@pytest.mark.rare("tests/worlds/local/test_rules.py")
def test_rules_decide_by_exit_code_and_a_rank_that_hangs_costs_one_failure(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs at once, since most of the time is that of their pods' start."""
    bad = ["--bad-rank", 1]
    ruled = bed.run(
        "ruled",
        args=["--together", *bad, "--bad-attempts", 2, "--fail-at", 7, "--exit-code", 75, 3],
        failurePolicy={
            "maxFailures": 3,
            "backoff": {"initial": "0s"},
            "rules": [
                {"name": "bad-data", "exitCodes": [3], "action": "FailRun"},
                {"name": "try-again", "exitCodes": [75], "action": "RestartUncounted"},
            ],
        },
    )
    hanging = bed.run(
        "hanging",
        args=["--together", *bad, "--hang-at", 7, "--pace", 0.05],
        failurePolicy={"maxFailures": 1},
        health={"heartbeatTimeout": "5s", "progressTimeout": "5s"},
    )

    status = ruled.wait_for_phase("Failed")
    verdict = ruled.condition("Failed")
    assert (verdict["status"], verdict["reason"]) == ("True", "FailedByRule")
    assert "spec.failurePolicy.rules[0] (bad-data) says FailRun" in verdict["message"]
    told = [
        (i["exitCode"], i["rank"], i["rule"], i["action"], i["counted"]) for i in ruled.incidents
    ]
    assert told == [
        (75, 1, "rules[1] (try-again)", "RestartUncounted", False),
        (3, 1, "rules[0] (bad-data)", "FailRun", True),
    ]
    assert ruled.incidents[0]["resumedFrom"]["step"] == 5
    assert status["failures"]["text"] == "1/3"
    ruled.ends_with("FailedByRule")
    monkeypatch.setenv("KUBECONFIG", str(bed.cluster.kubeconfig))
    for name, value in bed.credentials.items():
        monkeypatch.setenv(name, value)
    shown = CliRunner().invoke(trainrun, ["logs", "-n", bed.namespace, "ruled", "--rank", "1"])
    assert shown.exit_code == 0, shown.output
    assert [line for line in shown.stdout.splitlines() if "about to fail" in line] == [
        f"[attempt {attempt} rank 1] about to fail" for attempt in (1, 2)
    ]

    status = succeeded(hanging)
    (incident,) = hanging.incidents
    assert (incident["cause"], incident["rank"], incident["counted"]) == ("Hung", 1, True)
    message, _, where = incident["message"].partition("; ")
    assert message == (
        "no step for 5 s (spec.health.progressTimeout): rank 1 is at step 6, 2 others at 7"
    )
    assert "rank 1 is in `misbehave` (counting.py:" in where
    assert incident["resumedFrom"]["step"] == 5
    assert status["failures"]["text"] == "1/1"
