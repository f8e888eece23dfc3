"""Reading one TrainRun, once, as its user may: for the command line.

Layer: worlds/kubernetes. With the credentials of the user's kubeconfig, and nothing else.
"""

from __future__ import annotations

import asyncio

from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.connection import usual_namespace
from trainrun_operator.worlds.kubernetes.run_object import RunVersion, run_version


def read_run(name: str, namespace: str | None) -> RunVersion:
    """The TrainRun of this name; None: in the namespace that the kubeconfig says.

    Raises NoCluster, KubeError in the API server's words, and InvalidSpec.
    """
    return asyncio.run(_read(name, namespace or usual_namespace()))


async def _read(name: str, namespace: str) -> RunVersion:
    api = await KubeApi.connect()
    try:
        return run_version(await api.get(TRAINRUN.path(namespace, name)))
    finally:
        await api.close()
