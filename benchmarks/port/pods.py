"""A small stand-in for kubelets: each pod is a process of this machine, with its files in place.

It needs root, for mount namespaces: a container's paths (`/trainrun`, the token) and the name of
the operator lead to files of the pod's own.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.errors import KubeError
from trainrun_operator.worlds.kubernetes.names import AUDIENCE, MOUNT, TOKEN_MOUNT, TOKEN_NAME

LOOK_EVERY = 0.02
"""Seconds between two looks at the pods; a kubelet watches them."""
NODE = "here"

Json = dict[str, Any]

IN_PLACE = """
set -e
mkdir -p {mount} {token_mount}
mount --bind "$1" {mount}
mount --bind "$2" {token_mount}
mount --bind "$3" /etc/hosts
shift 3
exec "$@"
"""


@dataclass(slots=True)
class Pods:
    """Runs the pods of one namespace."""

    api: KubeApi
    namespace: str
    account: str
    folder: Path
    operator: str
    """Its host name, which leads to loopback."""
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """By the uid of the pod."""
    ending: set[str] = field(default_factory=set)
    """Uids of pods that got SIGTERM."""

    async def run(self) -> None:
        """For ever."""
        while True:
            found = await self.api.list_all(self.path())
            await asyncio.gather(*(self._start(pod) for pod in found if self._is_new(pod)))
            await asyncio.gather(*(self._end(pod["metadata"]) for pod in found))
            there = {pod["metadata"]["uid"] for pod in found}
            for uid in self.running.keys() - there:
                end(self.running.pop(uid))
            await asyncio.sleep(LOOK_EVERY)

    def stop(self) -> None:
        """End all."""
        while self.running:
            end(self.running.popitem()[1])

    def path(self, name: str = "") -> str:
        """Of a pod, or of all."""
        return f"/api/v1/namespaces/{self.namespace}/pods" + (f"/{name}" if name else "")

    def _is_new(self, pod: Json) -> bool:
        return pod["metadata"]["uid"] not in self.running

    async def _start(self, pod: Json) -> None:
        metadata, container = pod["metadata"], pod["spec"]["containers"][0]
        name = metadata["name"]
        home = self.folder / f"{name}-{metadata['uid'][:8]}"
        volume, token = home / "trainrun", home / "token"
        for made in (volume, token):
            made.mkdir(parents=True)
        (home / "hosts").write_text(f"127.0.0.1 localhost {self.operator}\n")
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": NODE}}
        try:
            await self.api.post(f"{self.path(name)}/binding", binding)
            (token / TOKEN_NAME).write_text(await self._token(metadata))
            with (home / "log").open("wb") as log:
                process = subprocess.Popen(
                    [
                        *("unshare", "--mount", "--propagation", "private", "sh", "-c"),
                        IN_PLACE.format(mount=MOUNT, token_mount=TOKEN_MOUNT),
                        *("sh", volume, token, home / "hosts"),
                        *(sys.executable, *container["command"][1:]),
                    ],
                    env={"PATH": os.environ["PATH"], **environment(container)},
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            self.running[metadata["uid"]] = process
            bound = await self.api.get(self.path(name))
            await self.api.put(
                f"{self.path(name)}/status", {**bound, "status": running(container["name"])}
            )
        except KubeError:
            return  # it was deleted meanwhile, or is tried again

    async def _end(self, metadata: Json) -> None:
        """SIGTERM for one that is to be deleted; it goes once its process has ended."""
        process = self.running.get(metadata["uid"])
        if process is None or "deletionTimestamp" not in metadata:
            return
        if metadata["uid"] not in self.ending:
            self.ending.add(metadata["uid"])
            process.terminate()
        elif process.poll() is not None:
            with suppress(KubeError):  # tried again
                await self.api.delete(self.path(metadata["name"]), body={"gracePeriodSeconds": 0})

    async def _token(self, metadata: Json) -> str:
        reference = {
            "kind": "Pod",
            "apiVersion": "v1",
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        spec = {"audiences": [AUDIENCE], "expirationSeconds": 3600, "boundObjectRef": reference}
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{self.account}/token"
        return str((await self.api.post(path, {"spec": spec}))["status"]["token"])


def environment(container: Json) -> dict[str, str]:
    """The variables of a container, as a kubelet sets them."""
    fields = {"status.podIP": "127.0.0.1", "spec.nodeName": NODE}
    return {
        entry["name"]: (
            fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
            if "valueFrom" in entry
            else entry["value"].replace("$$", "$")
        )
        for entry in container["env"]
    }


def running(container: str) -> Json:
    """The status of a pod whose container runs."""
    began = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"name": container, "image": "", "imageID": "", "ready": True, "restartCount": 0}
    return {
        "phase": "Running",
        "podIP": "127.0.0.1",
        "containerStatuses": [{**status, "state": {"running": {"startedAt": began}}}],
    }


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill what runs in a pod."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
