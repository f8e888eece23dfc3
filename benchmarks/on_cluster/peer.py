"""The peer of a gang's start: as many pods, each with one Python process and one HTTPS call.

That is the least that any operator with something inside the pod has to wait for.
"""

from __future__ import annotations

import time
from pathlib import Path

from tests.e2e.support.bed import PYTHON_IMAGE, Bed

CALL = """
import ssl, time, urllib.request
context = ssl.create_default_context(cafile='/var/run/secrets/kubernetes.io/serviceaccount/ca.crt')
try:
    urllib.request.urlopen('https://kubernetes.default.svc/version', context=context, timeout=60)
except urllib.error.HTTPError:
    pass
import os
open('/bench/called-' + os.environ['NAME'], 'w').write(str(time.time()))
time.sleep(1000000)
"""


def start_plain_pods(bed: Bed, *, folder: Path, number: int) -> float:
    """Create them; returns the seconds until the last one has made its call."""
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    pods = [_pod(bed.namespace, f"plain-{index}", folder) for index in range(number)]
    begun = time.time()
    bed.apply(*pods)
    files = [folder / f"called-plain-{index}" for index in range(number)]
    while not all(path.exists() and path.stat().st_size for path in files):
        if time.time() - begun > 300:
            raise SystemExit("the plain pods did not start\n" + bed.kubectl("get", "pods"))
        time.sleep(0.02)
    took = max(float(path.read_text()) for path in files) - begun
    bed.kubectl("delete", "pods", "--all", "--grace-period=0", "--force", "--wait=true")
    return took


def _pod(namespace: str, name: str, folder: Path) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "worker",
                    "image": PYTHON_IMAGE,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python3", "-c", CALL],
                    "env": [{"name": "NAME", "value": name}],
                    "volumeMounts": [{"name": "bench", "mountPath": "/bench"}],
                }
            ],
            "volumes": [{"name": "bench", "hostPath": {"path": str(folder)}}],
        },
    }
