"""Names that are loaded at their first use, and what is not loaded before."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys

import pytest

import trainrun


def test_every_name_of_the_package_is_found_and_listed() -> None:
    for name in trainrun.__all__:
        assert getattr(trainrun, name) is not None
    assert set(trainrun.__all__) <= set(dir(trainrun))


def test_no_name_of_the_package_is_a_modules_too() -> None:
    # Who imports the module would find it under that name from then on.
    modules = {found.name for found in pkgutil.iter_modules(trainrun.__path__)}
    assert not modules & set(trainrun.__all__)


def test_a_name_that_is_not_there_is_told_with_its_package() -> None:
    with pytest.raises(AttributeError, match="module 'trainrun' has no attribute 'reprot'"):
        _ = trainrun.reprot


@pytest.mark.slow
def test_an_agent_starts_without_boto3() -> None:
    program = "import json, sys, trainrun.agent.main; print(json.dumps(sorted(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert not {"boto3", "botocore"} & set(json.loads(loaded.stdout))
