"""The kopf handlers of this operator: settings, login, the watch of TrainRuns, probe, clean-up.

Layer: cluster. `kopf run -m trainrun_operator.cluster.handlers` is an operator for development:
there the startup handler opens the runs in a thread. In production (`app`) the runs use the main
thread and kopf gets its own thread with the same handlers; there `memo.runs` is given.

Handlers only pass events on: kopf does not retry a failed `on.event` handler and misses deletions
in a gap of its watch. The operator's own lists find both: it lists whenever kopf starts a watch
(every five minutes if nothing ends it earlier), and every minute while kopf cannot watch.

kopf's own lists are emptied: kopf needs only the resourceVersion to watch from. The operator itself
lists the objects, one at a time: kopf would parse a whole page and queue each object.
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
        """If the kind is missing, kopf would end; it retries what looks like a broken connection,
        until the CRD exists again."""
        answer = await super().start(connection)
        if self.status == HTTPStatus.NOT_FOUND:
            raise aiohttp.ClientConnectionError(f"{self.url}: {self.status} {self.reason}")
        return answer

    async def json(self, **_: object) -> Any:
        """The answer; a list comes without items and further pages."""
        answer = decoded(await self.read())
        if isinstance(answer, dict) and "items" in answer:
            version = answer["metadata"]["resourceVersion"]
            return {**answer, "metadata": {"resourceVersion": version}, "items": []}
        return answer


def session_of(
    info: kopf.ConnectionInfo, *, on_watch: Callable[[str, bool], None]
) -> kopf.AiohttpSession:
    """A connection with these credentials, for the running event loop; `on_watch` gets the path of
    each requested watch, and whether it started."""

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
    """Endless pauses in seconds, with jitter: an outage of the API server must not end us."""

    def __iter__(self) -> Iterator[float]:
        """Start with short ones."""
        backoff = Backoff(0.5, 30.0)
        while True:
            yield backoff.next()


class NoDiffs(kopf.DiffBaseStorage):
    """Stores and compares nothing: no handler asks for differences."""

    def build(self, **_: object) -> kopf.BodyEssence:
        """Nothing. The default is a deep copy of each object of the watch."""
        return kopf.BodyEssence()

    def fetch(self, **_: object) -> None:
        """Nothing is kept."""

    def store(self, **_: object) -> None:
        """Nothing is kept."""


@kopf.on.startup()
async def start(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: object) -> None:
    """Configure kopf; open the runs if needed; wait for the CRD, since kopf checks only once."""
    settings.networking.error_backoffs = Backoffs()
    settings.networking.connect_timeout = 10
    settings.networking.request_timeout = 30
    settings.watching.chunk_size = 1  # only the version of its lists matters
    settings.watching.server_timeout = 300
    settings.watching.reconnect_backoff = 0.5
    settings.posting.enabled = False
    # A training run's status changes more often than this, so its task is not made again each time.
    settings.queueing.idle_timeout = 60
    settings.persistence.diffbase_storage = NoDiffs()
    # One discovery call instead of a watch of all CRDs and namespaces, which would need permissions
    # that we use for nothing else.
    settings.scanning.disabled = True
    if "runs" not in memo:
        memo.thread = RunsThread(read_settings(os.environ))
        memo.runs = await memo.thread.start()
    await _runs(memo).served()


@kopf.on.login()
async def log_in(memo: kopf.Memo, **kwargs: Any) -> kopf.AiohttpSession | None:
    """Log in as the pod's service account, else with KUBECONFIG."""
    info = kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)
    if info is None:
        return None
    before: tuple[kopf.ConnectionInfo, kopf.AiohttpSession] | None = memo.get("login")
    if before is None or before[0] != info:
        session = session_of(info, on_watch=lambda path, good: _runs(memo).watched(path, good=good))
        memo.login = before = (info, session)
    return before[1]  # if kopf gets refused credentials again, it knows and ends


# Only on.event: it adds no finalizer and no annotation to the object.
@kopf.on.event(GROUP, VERSION, TRAINRUN.plural)
async def trainrun_changed(event: Mapping[str, Any], memo: kopf.Memo, **_: object) -> None:
    """Pass the event on to the runs' loop."""
    raw = event["object"]
    _runs(memo).changed(event["type"], raw)
    # kopf keeps the newest event of each object for a minute, so empty it.
    name = named(raw)
    raw.clear()
    raw.update(name)


@kopf.on.probe(id="trouble")
async def trouble(memo: kopf.Memo, **_: object) -> str:
    """The answer of `kopf run --liveness=...`; the operator's own probes are in `metrics`."""
    return _runs(memo).trouble()


@kopf.on.cleanup()
async def stop(memo: kopf.Memo, **_: object) -> None:
    """End the runs that `start` opened. In production they outlive kopf."""
    if "thread" in memo:
        await memo.thread.stop()


def _runs(memo: kopf.Memo) -> Runs:
    found: Runs = memo.runs
    return found
