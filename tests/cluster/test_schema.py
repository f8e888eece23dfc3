"""An operator sees whether the CRD would drop what it remembers."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.trainruns import CRD
from trainrun_operator.cluster.schema import schema_trouble
from trainrun_operator.kube.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.trainruns import TrainRuns
    from trainrun_operator.kube.api import KubeApi

OLD_CRD = Path(__file__).parents[1] / "api" / "recorded" / "crd-0.1.0.yaml"


@pytest.fixture
def old(trainruns: TrainRuns) -> Iterator[TrainRuns]:
    """The CRD of version 0.1.0; the server is shared with other tests."""
    trainruns.install(OLD_CRD)
    yield trainruns
    trainruns.install(CRD)


async def changed_from(api: KubeApi, said: str) -> str:
    """What is said of the CRD, once it is something else: the server tells it a little later."""
    async with asyncio.timeout(30):
        while True:
            with suppress(NotFound):
                if (now := await schema_trouble(api)) != said:
                    return now
            await asyncio.sleep(0.1)


async def test_an_operator_does_not_lead_under_the_crd_of_the_version_before(
    old: TrainRuns, api: KubeApi
) -> None:
    said = await changed_from(api, "")
    assert said == (
        "the CRD trainruns.trainrun.dev is older than this operator and would drop "
        "status.internal; apply the newer one: kubectl apply --server-side --force-conflicts "
        "-f crds/"
    )

    old.install(CRD)
    assert await changed_from(api, said) == ""
