"""Names that are loaded at their first use, and what is not loaded before."""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import sys

import pytest

PACKAGES = ("trainrun", "trainrun.checkpoint")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_of_a_package_is_found_and_listed(package: str) -> None:
    module = importlib.import_module(package)
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize("package", PACKAGES)
def test_no_name_of_a_package_is_a_modules_too(package: str) -> None:
    # Who imports the module would find it under that name from then on.
    module = importlib.import_module(package)
    modules = {found.name for found in pkgutil.iter_modules(module.__path__)}
    assert not modules & set(module.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_that_is_not_there_is_told_with_its_package(package: str) -> None:
    module = importlib.import_module(package)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'reprot'"):
        _ = module.reprot


def test_an_agent_starts_without_boto3() -> None:
    program = "import json, sys, trainrun.agent.main; print(json.dumps(sorted(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert not {"boto3", "botocore"} & set(json.loads(loaded.stdout))
