"""What the Kubernetes API can answer instead of doing what was asked.

Layer: kube. Callers decide by the class; the message is the API server's own, which
names the object and the rule, so it can be shown to users as it is.
"""

from __future__ import annotations

import json
from typing import Any

from trainrun._common.text import cleaned
from trainrun.errors import TrainRunError


class NoCluster(TrainRunError):
    """No cluster is configured: neither in this pod nor in a kubeconfig."""


class KubeError(TrainRunError):
    """A call did not do what was asked of it."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        """HTTP status; 0: there was no answer."""
        self.reason = reason
        """The API's word for it: NotFound, AlreadyExists, Forbidden, Expired ..."""


class NotFound(KubeError):
    """404: no such object, or no such kind."""


class Conflict(KubeError):
    """409: the object has changed, or a precondition (uid, resourceVersion) does not hold."""


class AlreadyExists(KubeError):
    """409: there is an object of this name."""


class Forbidden(KubeError):
    """403: a permission is missing, a quota is used up, or an admission rule says no."""


class Unauthorized(KubeError):
    """401: our credentials are not accepted, also after they were read again."""


class Invalid(KubeError):
    """The request itself is wrong (400, 405, 413, 415, 422): the same one will never work."""


class Gone(KubeError):
    """410: the history from this resourceVersion on is not kept any more: list again."""


class Unavailable(KubeError):
    """No answer, too many requests, or 5xx: the same call may work later.

    Whether a write was carried out is unknown when there was no answer.
    """


TRANSIENT = (AlreadyExists, Conflict, Forbidden, Gone, NotFound, Unauthorized, Unavailable)
"""What calls may meet while others write, or while the API server is away or has just begun."""


def is_refusal(error: KubeError) -> bool:
    """Whether the server has answered that this one object is not taken: by a quota, an admission
    rule, a webhook that is away, a conflict. Other calls may do as ever."""
    answered = error.status != 0
    return answered and isinstance(error, Forbidden | Invalid | Conflict | Unavailable)


_BY_STATUS: dict[int, type[KubeError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: Invalid,
    408: Unavailable,
    409: Conflict,
    410: Gone,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    429: Unavailable,
}

LONGEST_TEXT = 500
"""Characters of an answer that is no Status object (a proxy's page)."""


def error_of(status: int, body: bytes) -> KubeError:
    """The error that an answer with this HTTP status stands for."""
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or answer.get("kind") != "Status":
        text = body.decode(errors="replace").strip()[:LONGEST_TEXT]
        answer = {"message": text or f"HTTP {status} without a reason"}
    return error_of_status({**answer, "code": status})


def error_of_status(answer: dict[str, Any]) -> KubeError:
    """The error that a Status object stands for, as in the ERROR event of a watch."""
    status, reason = int(answer.get("code") or 0), str(answer.get("reason") or "")
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 else KubeError)
    if reason == "AlreadyExists":
        kind = AlreadyExists
    return kind(cleaned(str(answer.get("message") or reason)), status=status, reason=reason)
