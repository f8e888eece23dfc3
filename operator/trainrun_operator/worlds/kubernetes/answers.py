"""What a cluster answers to its user, with what to do about it: one line each.

Layer: worlds/kubernetes.
"""

from __future__ import annotations

from typing import Any, Literal

from trainrun.errors import TrainRunError
from trainrun_operator.api.resources import Resource
from trainrun_operator.kube.errors import (
    Forbidden,
    KubeError,
    NotFound,
    Unauthorized,
    Unavailable,
)

UserVerb = Literal["get", "patch"]
"""What a user does with an object from the command line."""

_ROLES: dict[UserVerb, str] = {"get": "view", "patch": "edit"}
"""Of those that every cluster has, the least that the chart lets do it."""


class NoSuchObject(TrainRunError):
    """There is no object of this name and kind."""


class ClusterRefused(TrainRunError):
    """The cluster did not do what its user asked for."""


def told(
    error: KubeError, verb: UserVerb, resource: Resource[Any], namespace: str, name: str
) -> TrainRunError:
    """The same for somebody who reads no API server's answers."""
    plural = resource.name
    match error:
        case NotFound(reason="NotFound"):
            return NoSuchObject(
                f"there is no {resource.kind} {name} in namespace {namespace}; `kubectl get "
                f"{resource.plural} -A` lists all, -n or NAMESPACE/NAME names another namespace"
            )
        case NotFound():  # the path itself: no such kind
            return NoSuchObject(
                f"this cluster knows no {resource.kind} ({error}); install the operator's chart "
                "there, or choose another cluster with KUBECONFIG"
            )
        case Forbidden() if " cannot " in str(error):  # a right is missing: no quota, no rule
            return ClusterRefused(
                f"{error}; ask whoever administers the cluster for the role {_ROLES[verb]} in "
                f"namespace {namespace} (`kubectl auth can-i {verb} {plural} -n {namespace}`)"
            )
        case Unauthorized():
            return ClusterRefused(
                f"the cluster does not accept the credentials of your kubeconfig ({error}); log in "
                f"again, until `kubectl get {plural} -n {namespace}` works"
            )
        case Unavailable():
            return ClusterRefused(
                f"the cluster of your kubeconfig does not answer ({error}); see whether `kubectl "
                "cluster-info` reaches it, or choose another one with KUBECONFIG"
            )
        case _:
            return error
