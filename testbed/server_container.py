"""The S3 server as a container beside kind's nodes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.binaries import binary
from testbed.images import base_image, base_name
from testbed.versitygw import arguments, root_keys

if TYPE_CHECKING:
    from testbed.engine import Engine

S3_PORT = 9000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContainer:
    """versitygw in a container that is made and removed, at the address of one that stays.

    So it is found where it was when it is started again.
    """

    name: str
    engine: Engine
    folder: Path

    @property
    def address(self) -> str:
        return self.engine.address(self._place)

    @property
    def _place(self) -> str:
        return f"{self.name}-address"

    def start(self, *, access_key: str, secret_key: str) -> None:
        image = self._image()
        if not self._exists(self._place):
            at = ("--network", self.engine.network, "--name", self._place)
            self.engine.run("run", "--detach", *at, image, "sleep", "infinity")
        keys = root_keys(access_key, secret_key)
        options = (
            *("--detach", "--name", self.name, "--network", f"container:{self._place}"),
            *("--user", f"{os.getuid()}:{os.getgid()}"),
            *("--volume", f"{binary('versitygw')}:/versitygw:ro", "--volume", f"{self.folder}:/s3"),
            *(word for name, value in keys.items() for word in ("--env", f"{name}={value}")),
        )
        command = ("/versitygw", *arguments(f"0.0.0.0:{S3_PORT}", Path("/s3")))
        self.stop()
        self.engine.run("run", *options, image, *command)

    def stop(self) -> None:
        self._remove(self.name)

    def remove(self) -> None:
        """End it and give up its address."""
        self._remove(self.name)
        self._remove(self._place)

    def freeze(self) -> None:
        self.engine.run("pause", self.name)

    def thaw(self) -> None:
        self.engine.run("unpause", self.name)

    def is_running(self) -> bool:
        return self._exists(self.name) and self._state() in ("running", "paused")

    def log(self) -> str:
        return self.engine.run("logs", self.name)

    def _state(self) -> str:
        return self.engine.run("inspect", "--format", "{{.State.Status}}", self.name).strip()

    def _exists(self, name: str) -> bool:
        return self.engine.succeeds("container", "inspect", name)

    def _remove(self, name: str) -> None:
        if self._exists(name):
            # podman would first ask it to end, and wait.
            self.engine.succeeds("unpause", name)
            self.engine.succeeds("kill", name)
            self.engine.run("rm", "--force", name)

    def _image(self) -> str:
        name = base_name("python")
        if not self.engine.succeeds("image", "inspect", name):
            self.engine.run("load", "--input", base_image("python"), timeout=300)
        return name
