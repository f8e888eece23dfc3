"""The port that slot 0 offers for the rendezvous of an attempt; the next one is JAX's.

Layer: agent, leaf. A port inside the kernel's ephemeral range may be taken by any outgoing
connection between our try and the bind of rank 0; one outside it only by another server.
"""

from __future__ import annotations

import errno
import random
import socket
from pathlib import Path

EPHEMERAL_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")

DEFAULT_EPHEMERAL_RANGE = (32768, 60999)
"""Linux's default, used where the file cannot be read."""

CANDIDATE_RANGES = ((20000, 29999), (10000, 19999), (61000, 65000), (2000, 9999))
"""Tried in this order; 30000-32767 is left to Kubernetes' node ports."""

TRIES_PER_RANGE = 50


class NoFreePort(OSError):
    """No port outside the ephemeral range could be bound."""


def pick_port() -> int:
    """Return a TCP port that could be bound just now, and so could the next one, outside the
    ephemeral range.

    Raises NoFreePort.
    """
    low, high = ephemeral_range()
    for first, last in CANDIDATE_RANGES:
        outside = [port for port in range(first, last) if port + 1 < low or port > high]
        for port in random.sample(outside, min(TRIES_PER_RANGE, len(outside))):
            if can_bind(port) and can_bind(port + 1):
                return port
    raise NoFreePort(
        f"no free port for the rendezvous outside the ephemeral range {low}-{high}; "
        "narrow net.ipv4.ip_local_port_range or stop what listens there"
    )


def ephemeral_range(file: Path = EPHEMERAL_RANGE_FILE) -> tuple[int, int]:
    """Return the first and last port that the kernel hands to outgoing connections."""
    try:
        low, high = file.read_text().split()
        return int(low), int(high)
    except (OSError, ValueError):
        return DEFAULT_EPHEMERAL_RANGE


def can_bind(port: int) -> bool:
    """Say whether a server could bind `port` on all addresses, as torch's TCPStore does."""
    # No SO_REUSEADDR: a port still in TIME_WAIT is one that somebody used a moment ago.
    families = [socket.AF_INET6, socket.AF_INET] if socket.has_ipv6 else [socket.AF_INET]
    for family in families:
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(("", port))
        except OSError as error:
            if family == socket.AF_INET6 and not _is_taken(error):
                continue  # IPv6 is switched off on this machine
            return False
    return True


def _is_taken(error: OSError) -> bool:
    return error.errno in (errno.EADDRINUSE, errno.EACCES)
