"""What can go wrong with a cluster, for callers that tell the two cases apart."""

from __future__ import annotations

UNAVAILABLE = 3
"""Exit code of `python -m testbed` where there can be no cluster; that of what is broken is 1."""


class ClusterUnavailable(Exception):
    """This machine cannot run a cluster at all; the message says why and what to do about it."""


class ClusterBroken(Exception):
    """A step failed that should not have; the message holds the words of what failed."""
