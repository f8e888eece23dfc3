"""After all other tests: the operator used the rights that it has, and wanted no others.

`make test` runs the two halves of this folder in two processes, each with a cluster of its own, and
these tests at the end of each half.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.support.installation import NAMESPACE
from tests.e2e.support.rights import Right, calls, granted
from tests.support.levels import FILES_OF_THE_NIGHT
from tests.support.sharing_out import FIRST_CLUSTER, SECOND_CLUSTER

if TYPE_CHECKING:
    from tests.e2e.support.installation import Installation

HALVES = (FIRST_CLUSTER, SECOND_CLUSTER)
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.after_all_others,
    pytest.mark.usefixtures("half"),
    pytest.mark.parametrize("half", HALVES),
]

SELDOM_USED = {
    ("secrets", "update"): "fills a secret for the CA that somebody made in advance",
    ("trainruns", "get"): "reads a run again whose status was written by somebody else",
    ("trainsweeps", "get"): "reads a sweep that is too large to be kept",
    ("pods", "get"): "looks at a pod whose creation was answered with AlreadyExists",
}


def test_nothing_was_tried_that_is_not_allowed(installation: Installation) -> None:
    forbidden = [
        call
        for call in calls(installation)
        if call.forbidden
        and not any(begun <= call.time <= ended for begun, ended in installation.without_rights)
    ]
    assert forbidden == []


def test_no_secret_was_read_but_its_own(installation: Installation) -> None:
    asked = [call for call in calls(installation) if call.right.resource == "secrets"]
    assert {(call.right.namespace, call.name) for call in asked} == {(NAMESPACE, "trainrun-ca")}


def test_every_right_was_used(
    half: str,
    installation: Installation,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    ran = {item.path.name for item in request.session.items}
    there = set(Path(__file__).parent.glob("test_*.py")) - request.config.stash[FILES_OF_THE_NIGHT]
    missing = {path.name for path in there} - ran
    if missing:
        pytest.skip(f"without {', '.join(sorted(missing))} not every right is used")
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # that all processes have
    _write(folder / f"{half}.rights", {call.right for call in calls(installation)})
    told = list(folder.glob("*.rights"))
    if len(told) < len(HALVES):
        return  # the half that ends last judges both
    used = {Right(*each) for file in told for each in json.loads(file.read_text())}
    unused = {
        (right.resource, right.verb)
        for right in granted(installation)
        if not any(right.covers(each) for each in used)
    }
    assert unused <= SELDOM_USED.keys()


def _write(file: Path, used: set[Right]) -> None:
    new = file.with_suffix(".new")
    new.write_text(json.dumps(sorted(used)))
    new.replace(file)
