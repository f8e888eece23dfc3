"""The errors that the Kubernetes API returns.

Layer: kube. Callers decide by the class; the message is the API server's own, which
names the object and the rule, so users can read it unchanged.
"""

from __future__ import annotations

import json
from typing import Any

from trainrun._common.text import cleaned
from trainrun.errors import TrainRunError


class NoCluster(TrainRunError):
    """No cluster is configured: neither in this pod nor in a kubeconfig."""


class KubeError(TrainRunError):
    """A call failed."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        """HTTP status; 0: no answer."""
        self.reason = reason
        """The API's reason: NotFound, AlreadyExists, Forbidden, Expired ..."""


class NotFound(KubeError):
    """404: the object or the kind does not exist."""


class Conflict(KubeError):
    """409: the object has changed, or a precondition (uid, resourceVersion) does not hold."""


class AlreadyExists(KubeError):
    """409: an object of this name exists."""


class Forbidden(KubeError):
    """403: a permission is missing, a quota is used up, or an admission rule refuses."""


class Unauthorized(KubeError):
    """401: our credentials are not accepted, even after reading them again."""


class Invalid(KubeError):
    """The request itself is wrong (400, 405, 413, 415, 422): a retry will never work."""


class Gone(KubeError):
    """410: the history since this resourceVersion is no longer kept: list again."""


class Unavailable(KubeError):
    """No answer, too many requests, or 5xx: the same call may work later.

    Without an answer it is unknown whether a write was done.
    """


TRANSIENT = (AlreadyExists, Conflict, Forbidden, Gone, NotFound, Unauthorized, Unavailable)
"""What calls can run into while others write, or while the API server is down or starting."""


def is_refusal(error: KubeError) -> bool:
    """Whether the server refused this one object: a quota, an admission rule, a webhook that is
    down, a conflict. Other calls may still work."""
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
"""Characters kept of an answer that is not a Status object (a proxy's page)."""


def error_of(status: int, body: bytes) -> KubeError:
    """The error for an answer with this HTTP status."""
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or answer.get("kind") != "Status":
        text = body.decode(errors="replace").strip()[:LONGEST_TEXT]
        answer = {"message": text or f"HTTP {status} without a reason"}
    return error_of_status({**answer, "code": status})


def error_of_status(answer: dict[str, Any]) -> KubeError:
    """The error for a Status object, as in the ERROR event of a watch."""
    status, reason = int(answer.get("code") or 0), str(answer.get("reason") or "")
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 else KubeError)
    if reason == "AlreadyExists":
        kind = AlreadyExists
    return kind(cleaned(str(answer.get("message") or reason)), status=status, reason=reason)
