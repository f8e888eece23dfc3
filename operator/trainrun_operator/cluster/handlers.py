"""All that kopf does for this operator: settings, login, the watch of TrainRuns, probe, clean-up.

Layer: cluster. `kopf run -m trainrun_operator.cluster.handlers` is an operator for development, in
which the handler of the start opens the runs in a thread. In production (`app`) the runs have the
main thread and kopf gets one, with these very handlers; there `memo.runs` is given.

Handlers only pass on what they see: kopf does not repeat an `on.event` handler that failed, and
does not tell of a deletion in a gap of its watch. The operator's own lists find both: it lists
whenever kopf begins to watch, which is every five minutes where nothing ends a watch before, and
each minute where kopf cannot.

kopf's own lists are empty: it lists to know from where in the history to watch. What there is then,
the operator lists itself, one object at a time: kopf would parse a page as a whole, and put each
object into a queue of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import aiohttp
import kopf

from trainrun._common.backoff import Backoff
from trainrun_operator.api.base import GROUP, VERSION
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.cluster.runs import Runs, RunsThread
from trainrun_operator.cluster.settings import read_settings
from trainrun_operator.kube.json_text import decoded
from trainrun_operator.kube.raw import named

if TYPE_CHECKING:
    from aiohttp.connector import Connection


class _Answer(aiohttp.ClientResponse):
    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        """Where the kind is missing kopf would end; what looks like a broken connection it tries
        again, until the CRD is there once more."""
        answer = await super().start(connection)
        if self.status == HTTPStatus.NOT_FOUND:
            raise aiohttp.ClientConnectionError(f"{self.url}: {self.status} {self.reason}")
        return answer

    async def json(self, **_: object) -> Any:
        """The answer; a list as if it had nothing to show, and no other page."""
        answer = decoded(await self.read())
        if isinstance(answer, dict) and "items" in answer:
            version = answer["metadata"]["resourceVersion"]
            return {**answer, "metadata": {"resourceVersion": version}, "items": []}
        return answer


def session_of(
    info: kopf.ConnectionInfo, *, on_watch: Callable[[str, bool], None]
) -> kopf.AiohttpSession:
    """A connection with these credentials, for the loop that runs now; `on_watch` gets the path of
    each watch that is asked for, and whether it has begun."""

    async def over(
        _session: object,
        _context: object,
        asked: aiohttp.TraceRequestEndParams | aiohttp.TraceRequestExceptionParams,
    ) -> None:
        if "watch" in asked.url.query:
            good = isinstance(asked, aiohttp.TraceRequestEndParams) and asked.response.status < 400
            on_watch(asked.url.path, good)

    trace = aiohttp.TraceConfig()
    trace.on_request_end.append(over)
    trace.on_request_exception.append(over)
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
        headers=info.as_http_headers(),
        proxy=info.proxy_url,
        trust_env=info.trust_env,
        response_class=_Answer,
        trace_configs=[trace],
    )
    return kopf.AiohttpSession(
        server=info.server,
        default_namespace=info.default_namespace,
        expiration=info.expiration,
        aiohttp_session=session,
    )


class Backoffs:
    """Pauses without end, in seconds, with jitter: an API server that is away must not end us."""

    def __iter__(self) -> Iterator[float]:
        """Begin with short ones."""
        backoff = Backoff(0.5, 30.0)
        while True:
            yield backoff.next()


class NoDiffs(kopf.DiffBaseStorage):
    """Keeps nothing of an object and compares it with nothing: no handler asks what has changed."""

    def build(self, **_: object) -> kopf.BodyEssence:
        """Nothing. By default a deep copy of each object that the watch brings."""
        return kopf.BodyEssence()

    def fetch(self, **_: object) -> None:
        """Nothing is kept."""

    def store(self, **_: object) -> None:
        """Nothing is kept."""


@kopf.on.startup()
async def start(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: object) -> None:
    """Configure kopf; open the runs if nobody has; wait for the CRD, for kopf looks only once."""
    settings.networking.error_backoffs = Backoffs()
    settings.networking.connect_timeout = 10
    settings.networking.request_timeout = 30
    settings.watching.chunk_size = 1  # of its lists only the version counts
    settings.watching.server_timeout = 300
    settings.watching.reconnect_backoff = 0.5
    settings.posting.enabled = False
    # A run that trains has a status written more often: its task is not made anew each time.
    settings.queueing.idle_timeout = 60
    settings.persistence.diffbase_storage = NoDiffs()
    # One look at what the API server serves, and no watch of all CRDs and namespaces: that would
    # take rights which we have no other use for.
    settings.scanning.disabled = True
    if "runs" not in memo:
        memo.thread = RunsThread(read_settings(os.environ))
        memo.runs = await memo.thread.start()
    await _runs(memo).served()


@kopf.on.login()
async def log_in(memo: kopf.Memo, **kwargs: Any) -> kopf.AiohttpSession | None:
    """As the pod's service account, else as KUBECONFIG says."""
    info = kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)
    if info is None:
        return None
    before: tuple[kopf.ConnectionInfo, kopf.AiohttpSession] | None = memo.get("login")
    if before is None or before[0] != info:
        session = session_of(info, on_watch=lambda path, good: _runs(memo).watched(path, good=good))
        memo.login = before = (info, session)
    return before[1]  # the same again where the same was refused: so kopf knows, and ends


# Only on.event: it leaves no finalizer and no annotation on the object.
@kopf.on.event(GROUP, VERSION, TRAINRUN.plural)
async def trainrun_changed(event: Mapping[str, Any], memo: kopf.Memo, **_: object) -> None:
    """Pass it on to the runs' loop."""
    raw = event["object"]
    _runs(memo).changed(event["type"], raw)
    # kopf keeps the newest event of each object for a minute.
    name = named(raw)
    raw.clear()
    raw.update(name)


@kopf.on.probe(id="trouble")
async def trouble(memo: kopf.Memo, **_: object) -> str:
    """What `kopf run --liveness=...` answers; the operator's own probes are in `metrics`."""
    return _runs(memo).trouble()


@kopf.on.cleanup()
async def stop(memo: kopf.Memo, **_: object) -> None:
    """End the runs that `start` has opened. In production they outlive kopf."""
    if "thread" in memo:
        await memo.thread.stop()


def _runs(memo: kopf.Memo) -> Runs:
    found: Runs = memo.runs
    return found
