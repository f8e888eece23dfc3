"""The operator's settings, read from environment variables; the chart sets all of them.

Layer: cluster.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trainrun.errors import InvalidSpec
from trainrun_operator.cluster.endpoint import place_of
from trainrun_operator.core.run.boundary import Installation
from trainrun_operator.worlds.kubernetes.clerk_pod import ClerkImage
from trainrun_operator.worlds.kubernetes.observing.nodes import (
    DEFAULT_NOTICES,
    NoticeTaint,
    notice_taints,
)

AGENT_ARCHIVE = "/opt/trainrun/agent.zip"
"""Its path in the operator's image."""

CLERK_IMAGE = ClerkImage(image="docker.io/trainrun/operator:dev")
"""The default: the image that `make images` builds."""

LogFormat = Literal["json", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one operator process."""

    identity: str
    """Our name in the Lease: the pod's name."""
    namespace: str
    """The operator's own namespace."""
    address: str
    """The pod's IP, published to agents."""
    service: str = "trainrun-agents"
    """The Service without selector that agents call."""
    agent_port: int = 8443
    health_port: int = 8080
    agent_archive: str = AGENT_ARCHIVE
    """Path of the agent archive that workers fetch."""
    namespaces: tuple[str, ...] = ()
    """Watched namespaces; empty: all."""
    adopts: frozenset[str] = frozenset()
    """Namespaces of removed installations, whose runs we take over."""
    nodes: bool = True
    """Whether nodes may be watched."""
    notice_taints: tuple[NoticeTaint, ...] = DEFAULT_NOTICES
    """Taints that announce the end of a node; the first match counts."""
    clerk_image: ClerkImage = CLERK_IMAGE
    """The image of the sweeps' clerks."""
    log_format: LogFormat = "text"

    @property
    def url(self) -> str:
        """The URL that agents call."""
        return f"https://{self.host}:{self.agent_port}"

    @property
    def place(self) -> str:
        """This process's own `address:port`, leader or not."""
        return place_of(self.address, self.agent_port)

    @property
    def installation(self) -> Installation:
        """The installation of this process, without its key."""
        return Installation(name=self.namespace, adopts=self.adopts)

    @property
    def host(self) -> str:
        """The DNS name in our certificate."""
        return f"{self.service}.{self.namespace}.svc"


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Raises InvalidSpec, naming the variable that is missing or wrong."""
    log_format = environ.get("TRAINRUN_LOG_FORMAT", "text")
    return Settings(
        identity=environ.get("POD_NAME") or socket.gethostname(),
        namespace=_needed(environ, "POD_NAMESPACE"),
        address=_needed(environ, "POD_IP"),
        service=environ.get("TRAINRUN_SERVICE", "trainrun-agents"),
        agent_port=_port(environ, "TRAINRUN_AGENT_PORT", 8443),
        health_port=_port(environ, "TRAINRUN_HEALTH_PORT", 8080),
        agent_archive=environ.get("TRAINRUN_AGENT_ARCHIVE", AGENT_ARCHIVE),
        namespaces=_words(environ.get("TRAINRUN_WATCH_NAMESPACES", "")),
        adopts=frozenset(_words(environ.get("TRAINRUN_ADOPT", ""))),
        nodes=environ.get("TRAINRUN_NODES", "true").lower() != "false",
        notice_taints=notice_taints(_words(environ.get("TRAINRUN_NOTICE_TAINTS", ""))),
        clerk_image=_clerk_image(environ),
        log_format="json" if log_format == "json" else "text",
    )


def _clerk_image(environ: Mapping[str, str]) -> ClerkImage:
    return ClerkImage(
        image=environ.get("TRAINRUN_CLERK_IMAGE") or CLERK_IMAGE.image,
        pull_policy=environ.get("TRAINRUN_CLERK_PULL_POLICY") or CLERK_IMAGE.pull_policy,
    )


def _needed(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    if not value:
        raise InvalidSpec(f"the environment variable {name} is not set; the chart sets it")
    return value


def _port(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "") or str(default)
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise InvalidSpec(f"the environment variable {name} is {text!r}; it must be a port")
    return int(text)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in (part.strip() for part in text.split(",")) if word)
