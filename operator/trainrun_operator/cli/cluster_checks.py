"""`trainrun doctor --cluster`: what the cluster has, and what the user may do there.

Layer: cli.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from trainrun import __version__
from trainrun.errors import TrainRunError
from trainrun_operator.api.base import VERSION
from trainrun_operator.worlds.kubernetes.installation import (
    ClusterReadiness,
    OperatorFound,
    read_readiness,
)

Level = Literal["OK", "WARN", "FAIL", "SKIP"]
"""SKIP: it could not be looked at."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    level: Level
    message: str
    """What was found; an error's message may end with its remedy."""
    remedy: str = ""
    """What to do; empty: nothing, or the message says it."""

    def lines(self) -> Iterator[str]:
        """As people read it."""
        yield f"{self.level:4}  {self.name:10}  {self.message}"
        if self.remedy:
            yield f"{'':18}{self.remedy}"


INSTALL = (
    "install the chart: helm install trainrun charts/trainrun -n trainrun-system --create-namespace"
)
PLURALS = ("trainruns", "trainsweeps")
VERBS = ("get", "list", "create", "patch", "delete")


def cluster_checks(namespace: str | None) -> Iterator[Check]:
    """All checks of the cluster of the kubeconfig; namespace None: the kubeconfig's."""
    try:
        found = read_readiness(namespace, verbs=VERBS, plurals=PLURALS)
    except TrainRunError as error:
        remedy = "check whether `kubectl cluster-info` works"
        yield Check("cluster", "FAIL", str(error), remedy)
        return
    versions = found.versions
    yield Check("cluster", "OK", f"Kubernetes {versions.kubernetes.removeprefix('v')}")
    missing = [name for name in PLURALS if name not in found.kinds]
    if missing:
        yield Check("CRDs", "FAIL", f"no {', '.join(missing)} in {VERSION}", INSTALL)
    else:
        yield Check("CRDs", "OK", f"{', '.join(PLURALS)} in {VERSION}")
    if versions.operators is None:
        yield Check("operator", "SKIP", "not looked at: you may not list Deployments")
    elif not versions.operators:
        yield Check("operator", "FAIL", "none is installed", INSTALL)
    for operator in versions.operators or ():
        yield _operator(operator, found)
    for plural in PLURALS:
        yield _rights(plural, found)
    yield _policy(found)
    if found.kueue:
        yield _kueue(found)


def _operator(operator: OperatorFound, found: ClusterReadiness) -> Check:
    where = f"{operator.namespace}/{operator.name} {operator.version}".strip()
    logs = f"see why: kubectl logs -n {operator.namespace} deployment/{operator.name}"
    if not operator.ready:
        return Check("operator", "FAIL", f"{where}: no pod is ready", logs)
    holder = found.leaders[operator.namespace]
    if holder == "":
        return Check("operator", "FAIL", f"{where}: none of its pods leads", logs)
    leads = f"{holder} leads" if holder is not None else "ready; you may not read who leads"
    if operator.version not in ("", __version__):
        message = f"{where}: {leads}; this command is {__version__}"
        remedy = f"install {operator.version} here, or upgrade the chart"
        return Check("operator", "WARN", message, remedy)
    return Check("operator", "SKIP" if holder is None else "OK", f"{where}: {leads}")


def _rights(plural: str, found: ClusterReadiness) -> Check:
    denied, namespace = found.denied[plural], found.namespace
    if not denied:
        return Check("rights", "OK", f"you may {', '.join(VERBS)} {plural} in {namespace}")
    message = f"you may not {', '.join(denied)} {plural} in {namespace}"
    remedy = f"ask the cluster's administrator for the role edit in namespace {namespace}"
    return Check("rights", "FAIL", message, remedy)


def _policy(found: ClusterReadiness) -> Check:
    if found.policies is None:
        return Check("policy", "SKIP", "not looked at: you may not list admission policies")
    if found.policies:
        return Check("policy", "OK", "an admission policy bounds the pods that TrainRuns ask for")
    remedy = "upgrade the chart with --set admissionPolicy.enabled=true"
    return Check("policy", "WARN", "nothing bounds the pods that TrainRuns ask for", remedy)


def _kueue(found: ClusterReadiness) -> Check:
    if found.roles is None:
        return Check("Kueue", "SKIP", "is there; not looked at: you may not list ClusterRoles")
    if any(name.endswith("-kueue") for name in found.roles):
        return Check("Kueue", "OK", "is there, and may read TrainRuns")
    remedy = "upgrade the chart with --set kueue.enabled=true (docs/clusters.md, Beside Kueue)"
    return Check("Kueue", "WARN", "is there, and its webhook may refuse all workers", remedy)
