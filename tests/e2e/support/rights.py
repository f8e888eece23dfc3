"""What the operator may do, and what it did: roles against the API server's audit log."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.e2e.support.installation import NAMESPACE, RELEASE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.support.installation import Installation

ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"


class Right(NamedTuple):
    """A verb for a kind of objects."""

    resource: str
    """As in roles: `pods`, `trainruns/status`."""
    verb: str
    namespace: str
    """Where alone it holds, or is used; empty: everywhere."""

    def covers(self, used: Right) -> bool:
        """Whether it allows what was used."""
        same = (self.resource, self.verb) == (used.resource, used.verb)
        return same and self.namespace in ("", used.namespace)


class Call(NamedTuple):
    """A request of the operator that the API server answered."""

    right: Right
    name: str
    time: datetime
    forbidden: bool
    """For want of a right; a quota's or an admission's refusal is none."""


def granted(installation: Installation) -> set[Right]:
    """All that the operator's account is bound to."""
    roles = {
        (role["kind"], role["metadata"].get("namespace", ""), role["metadata"]["name"]): role
        for role in _all(installation, "roles,clusterroles")
    }
    found = set()
    for binding in _all(installation, "rolebindings,clusterrolebindings"):
        subjects = [(s["name"], s.get("namespace")) for s in binding.get("subjects", [])]
        if (RELEASE, NAMESPACE) not in subjects:
            continue
        reference = binding["roleRef"]
        home = binding["metadata"].get("namespace", "") if reference["kind"] == "Role" else ""
        for rule in roles[reference["kind"], home, reference["name"]]["rules"]:
            found |= {Right(r, verb, home) for r in rule["resources"] for verb in rule["verbs"]}
    return found


def calls(installation: Installation) -> Iterator[Call]:
    """What was asked in this session, oldest first, but for the API server's own index pages."""
    with installation.cluster.audit_log.open() as lines:
        for line in lines:
            if ACCOUNT not in line or not line.endswith("\n"):
                continue
            call = _call(json.loads(line))
            if call is not None and call.time >= installation.since:
                yield call


def _call(entry: dict[str, Any]) -> Call | None:
    asked = entry.get("objectRef")
    if entry["user"]["username"] != ACCOUNT or asked is None or "resource" not in asked:
        return None
    parts = (asked["resource"], asked.get("subresource", ""))
    return Call(
        right=Right("/".join(filter(None, parts)), entry["verb"], asked.get("namespace", "")),
        name=asked.get("name", ""),
        time=datetime.fromisoformat(entry["requestReceivedTimestamp"]),
        forbidden=entry.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid",
    )


def _all(installation: Installation, kinds: str) -> list[dict[str, Any]]:
    text = installation.kubectl("get", kinds, "--all-namespaces", "--output", "json")
    return list(json.loads(text)["items"])
