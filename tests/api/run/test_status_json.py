"""A status that somebody edited by hand is refused by name, never half believed."""

from __future__ import annotations

import pytest

from trainrun_operator.api.run.status import status_from


@pytest.mark.parametrize("checkpoint", [{"step": -1, "attempt": 1}, {"step": 5, "attempt": 0}])
def test_a_resume_point_that_no_run_can_have_saved_is_refused(checkpoint: dict[str, int]) -> None:
    record = {"attempt": 2, "roster": [1], "agents": "abcd", "resumePoint": checkpoint}

    with pytest.raises(ValueError, match=r"resumePoint\n.*step must be at least 0 and its attempt"):
        status_from({"internal": {"startRecord": record}})
