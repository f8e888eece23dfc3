"""What is loaded to choose parameters."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOADED = """
import sys
from trainrun_operator.runtime.clerk_work import suggest_of
suggest_of("CmaEs")
print("optuna" in sys.modules, "scipy.stats" in sys.modules)
from scipy import stats
suggest_of("CmaEs")
print(sys.modules["scipy.stats"] is stats)
"""


@pytest.mark.slow
def test_cma_es_loads_neither_optuna_nor_the_slow_part_of_scipy_and_leaves_both_usable() -> None:
    said = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True)
    assert said.stdout.split() == ["False", "False", "True"], said.stderr
