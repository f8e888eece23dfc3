"""Whose token is this: asks the API server.

Layer: kube. A token counts when it was made for our audience and is bound to a pod,
which the API server checks to be still there.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainrun_operator.kube.api import KubeApi

_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
_EXTRA = "authentication.kubernetes.io/"
_USER = "system:serviceaccount:"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodIdentity:
    """Who a token speaks for."""

    namespace: str
    pod: str
    pod_uid: str


async def review(api: KubeApi, token: str, audience: str) -> PodIdentity | None:
    """The pod that this token belongs to; None: it is not valid, not for us, or no pod's.

    Raises KubeError when nobody could tell.
    """
    answer = await api.post(
        _PATH,
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [audience]},
        },
        # It changes nothing, and agents must not wait for a gang whose pods are being created.
        urgent=True,
    )
    status = answer.get("status", {})
    # An API server that knows no audiences accepts tokens for any: it does not name ours then.
    if not status.get("authenticated") or audience not in status.get("audiences", ()):
        return None
    user = status.get("user", {})
    extra = {key: values[0] for key, values in user.get("extra", {}).items() if values}
    name, pod, uid = user.get("username", ""), f"{_EXTRA}pod-name", f"{_EXTRA}pod-uid"
    if not name.startswith(_USER) or pod not in extra or uid not in extra:
        return None
    return PodIdentity(
        namespace=name.removeprefix(_USER).partition(":")[0],
        pod=extra[pod],
        pod_uid=extra[uid],
    )
