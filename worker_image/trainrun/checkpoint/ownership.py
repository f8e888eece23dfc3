"""Which TrainRun may use a run's folder: numbered claims, a beat, release, takeover, generations.

Layer: rules over `RunStore`. Invariants: a claim is write-once, the highest number owns the folder;
a claim is taken over only after its release or after its beat stood still for a whole lease, seen
by the claimant's own monotonic clock (no wall clock of anybody is believed). A takeover need not
stop the old owner: its attempts are lower than those of the new one, which fences them.

With `onExisting: StartFresh` a TrainRun begins a new generation of the folder. The first lies in
the run's folder itself, each later one in a folder of its own below, with its own claims, records
and checkpoints: so no rule about these knows that there are others, and nothing of one is read,
fenced or deleted for another. A number is given once, to the TrainRun that its write-once record
names; a TrainRun begins at most one, and stays in the one that it has begun or claimed; what a
listing does not show yet is asked for by its name.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainrun.checkpoint.records import (
    Beat,
    GenerationRecord,
    OwnerRecord,
    RunRecord,
    read_checksummed,
)
from trainrun.contract import layout
from trainrun.errors import (
    CheckpointDamaged,
    ObjectNotFound,
    StoreMisconfigured,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainrun.checkpoint.run_store import RunStore
    from trainrun.contract.agent_state import Outcome, OwnerLife
    from trainrun.contract.checkpoint_id import CheckpointId

LEASE = 30.0
"""Seconds without a change of the beat after which a claim is taken over: three missed polls of
the longest poll interval."""

CLAIM_TRIES = 5
"""A claim that is lost is looked at again this often; each time somebody else has won."""

RUN_ID_LENGTH = 16
"""Characters of a run's id: 80 bits. W&B takes up to 64."""


class BeatWatch:
    """Remembers, across calls, since when an owner's beat has stood still.

    Keep one per process and run; a new one starts to count from nothing.
    """

    def __init__(
        self, *, lease: float = LEASE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.lease = lease
        """Seconds."""
        self._clock = clock
        self._last_beat: tuple[int, bytes] | None = None
        self.moved = False
        """The beat has changed between the last two looks at this owner."""
        self._since = 0.0

    def still_for(self, owner: int, beat: bytes) -> float:
        """Seconds since this beat of this owner was first seen (0 at the first sight)."""
        now, before = self._clock(), self._last_beat
        self.moved = before is not None and before[0] == owner and before[1] != beat
        if self._last_beat != (owner, beat):
            self._last_beat, self._since = (owner, beat), now
        return now - self._since


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """The folder is ours."""

    number: int
    """Of our claim."""
    committed: CheckpointId | None
    """The newest checkpoint that any owner is known to have committed."""
    run_id: str
    """By which trackers know the run: see `derived_run_id`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotOwned:
    """The folder is not ours now."""

    outcome: Outcome
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """The newest claim, as far as it can be read."""

    number: int
    uid: str
    """Empty when the record is damaged: then it is nobody's, and only its beat protects it."""
    beat: bytes
    released: bool
    committed: CheckpointId | None


def acquire(
    run: RunStore, *, uid: str, fail_on_existing: bool, watch: BeatWatch, params: str = ""
) -> Owned | NotOwned:
    """Claim the run's folder for the TrainRun `uid`, or say why not; repeating it is harmless.

    `params` are those of a sweep's trial, for `of_other_params`. Raises StoreError.
    """
    stamp = _stamp(run, uid=uid, params=params)
    for _ in range(CLAIM_TRIES):
        numbers = _owners(run)
        if fail_on_existing and (refusal := _existing(run, uid=uid)):
            return refusal
        newest = _read_claim(run, numbers[-1]) if numbers else None
        if newest is not None and newest.uid == uid and not newest.released:
            run_id = _run_id(run, stamp, numbers)
            return Owned(number=newest.number, committed=newest.committed, run_id=run_id)
        if newest is not None and (refusal := _in_use(run, newest, uid=uid, watch=watch)):
            return refusal
        number = newest.number + 1 if newest else 1
        committed = newest.committed if newest else None
        record = OwnerRecord(number=number, uid=uid, committed=committed)
        if run.write_once(layout.owner_key(number), record):
            run_id = _run_id(run, stamp, numbers or [number])
            return Owned(number=number, committed=committed, run_id=run_id)
        if _owners(run) == numbers:
            raise run.incomplete_listing(layout.owner_key(number))
    raise StoreUnavailable(f"{run.uri}: others keep claiming this folder")


def beat(run: RunStore, *, uid: str, counter: int, committed: CheckpointId | None = None) -> bool:
    """Show that the owner lives; `counter` only has to differ from the last one.

    `committed` is the newest checkpoint known to be committed (None: what the last beat said).
    Returns False when the folder is not ours (any more), also after our own release: then nothing
    was written.
    """
    return _write_beat(run, uid=uid, counter=counter, committed=committed, released=False)


def release(run: RunStore, *, uid: str) -> None:
    """Give the folder up, so that the next claimant need not wait for the lease."""
    _write_beat(run, uid=uid, counter=0, committed=None, released=True)


def life_of_owner(run: RunStore, *, watch: BeatWatch) -> OwnerLife:
    """Whether the folder's owner, whoever it is, shows life; nothing is written."""
    numbers = _owners(run)
    if not numbers:
        return "Unknown"
    claim = _read_claim(run, numbers[-1])
    still = watch.still_for(claim.number, claim.beat)
    if watch.moved:
        return "Moves"
    return "Still" if still >= watch.lease else "Unknown"


def is_used(run: RunStore) -> bool:
    """Whether anybody has used the folder."""
    return bool(_owners(run) or run.objects(layout.ATTEMPTS) or run.objects(layout.CHECKPOINTS))


def has_claimed(run: RunStore, *, uid: str) -> bool:
    """Whether this TrainRun has ever owned the folder."""
    return any(_read_claim(run, number).uid == uid for number in reversed(_owners(run)))


def claimants(run: RunStore) -> set[str]:
    """All TrainRuns that have ever owned the folder; "" stands for those that cannot be named."""
    return {_read_claim(run, number).uid for number in _owners(run)}


def owner_uid(run: RunStore) -> str:
    """The TrainRun that has the newest claim, released or not; empty where nobody can be named."""
    numbers = _owners(run)
    return _read_claim(run, numbers[-1]).uid if numbers else ""


def _write_beat(
    run: RunStore, *, uid: str, counter: int, committed: CheckpointId | None, released: bool
) -> bool:
    numbers = _owners(run)
    claim = _read_claim(run, numbers[-1]) if numbers else None
    if claim is None or claim.uid != uid or (claim.released and not released):
        return False
    commits = [item for item in (committed, claim.committed) if item is not None]
    record = Beat(uid=uid, counter=counter, released=released, committed=max(commits, default=None))
    run.overwrite(layout.beat_key(claim.number), record)
    return True


def of_other_params(run: RunStore, params: str) -> NotOwned | None:
    """Why the trial of a sweep with these parameters may not go on in this folder: it holds one
    with others, whose checkpoints and values are not its own. Raises StoreError."""
    there = run.find(RunRecord, layout.RUN)
    if not params or there is None or not there.params:
        return None
    if json.loads(there.params) == json.loads(params):
        return None
    return NotOwned(
        outcome="NotEmpty",
        message=f"{run.uri} holds a trial with the parameters {there.params}, and this one has "
        f"{params}: the log of the sweep is not the one that they come from. Put that back, or set "
        "resume.restartErrored and add 1 to resume.token to begin this trial in a new folder",
    )


def stored_run_id(run: RunStore) -> str:
    """The run's id, as its folder says; empty where nobody has used it. Raises StoreError."""
    stamp = run.find(RunRecord, layout.RUN)
    numbers = _owners(run) if stamp is None else []
    return _run_id(run, stamp, numbers) if stamp is not None or numbers else ""


def _run_id(run: RunStore, stamp: RunRecord | None, numbers: list[int]) -> str:
    """Where the stamp cannot be read the first owner is asked, who as a rule wrote it."""
    if stamp is None:
        stamp = _stamp_of(_read_claim(run, numbers[0]).uid)
    return derived_run_id(stamp.created_by, run.folder_name)


def derived_run_id(created_by: str, folder: str) -> str:
    """The id of the run in this folder, named below its storage, that `created_by` used first.

    It stays the same in every start of the run, for trackers and folders of other programs:
    `run.json` is written once, so the id outlives restarts, operators, clusters, and the TrainRun
    itself. The name counts, so that a copy of the folder under another name is another run, and so
    is a later generation; where the folder lies does not, so that a run that was moved to another
    bucket stays the same one.
    """
    digest = hashlib.sha256(f"{created_by}\n{folder}".encode()).digest()
    return base64.b32encode(digest).decode()[:RUN_ID_LENGTH].lower()


def _stamp_of(uid: str, params: str = "") -> RunRecord:
    return RunRecord(layout=layout.VERSION, created_by=f"TrainRun uid {uid}", params=params)


def _stamp(run: RunStore, *, uid: str, params: str) -> RunRecord | None:
    """What stands in `run.json`, written now if nothing did; refuse a folder of a newer layout.

    None: what is there cannot be read.
    """
    record = _stamp_of(uid, params)
    if run.write_once(layout.RUN, record):
        return record
    there = run.find(RunRecord, layout.RUN)  # the rest of the folder does not depend on it
    if there is not None and there.layout > layout.VERSION:
        raise StoreMisconfigured(
            f"{run.uri} has layout {there.layout}, created by {there.created_by}; this version "
            f"knows layout {layout.VERSION}: upgrade, or use another runName"
        )
    return there


def _owners(run: RunStore) -> list[int]:
    """The numbers of all claims: what a listing leaves out at its end is asked for by its name."""
    numbers = run.numbers(layout.OWNERS)
    first = max(numbers, default=0)
    last = _last(run, OwnerRecord, layout.owner_key, first)
    return [*numbers, *range(first + 1, last + 1)]


def _read_claim(run: RunStore, number: int) -> _Claim:
    try:
        record = run.read(OwnerRecord, layout.owner_key(number))
    except CheckpointDamaged:
        record = OwnerRecord(number=number, uid="")
    raw, sign = b"", Beat(uid=record.uid, counter=0)
    with contextlib.suppress(ObjectNotFound, CheckpointDamaged):
        # Even a beat that cannot be read shows life by its bytes.
        raw = run.store.get(run.key(layout.beat_key(number)))
        sign = read_checksummed(Beat, raw, name=layout.beat_key(number))
    commits = [item for item in (record.committed, sign.committed) if item is not None]
    return _Claim(
        number=number,
        uid=record.uid,
        beat=raw,
        released=sign.released,
        committed=max(commits, default=None),
    )


def _existing(run: RunStore, *, uid: str) -> NotOwned | None:
    if has_claimed(run, uid=uid) or not (run.generation > 1 or is_used(run)):
        return None
    return NotOwned(
        outcome="NotEmpty",
        message=f"{run.uri} already holds a run and onExisting is Fail; use another runName, "
        "onExisting: Resume to continue that run, or StartFresh to begin anew beside it",
    )


def _in_use(run: RunStore, claim: _Claim, *, uid: str, watch: BeatWatch) -> NotOwned | None:
    if claim.released or claim.uid == uid:
        return None
    if watch.still_for(claim.number, claim.beat) >= watch.lease:
        return None
    return NotOwned(
        outcome="InUse",
        message=f"{run.uri} is in use by TrainRun uid {claim.uid or '(unreadable)'} "
        f"({layout.owner_key(claim.number)}); it is taken over when that run is suspended or "
        f"finished, or gives no sign of life for {watch.lease:.0f} s. If no TrainRun has this uid, "
        f"its pods were left behind: kubectl delete pods -A -l trainrun.dev/run-uid={claim.uid}",
    )


def generations(run: RunStore) -> list[RunStore]:
    """All that were begun, oldest first; the first one, used or not, is always among them.

    Raises StoreError.
    """
    first = replace(run, generation=1)
    return [replace(run, generation=number) for number in range(1, _newest(first) + 1)]


def enter(run: RunStore, *, uid: str, fresh: bool) -> RunStore:
    """The generation of the TrainRun `uid`: its own, else the newest, or with `fresh` a new one.

    Repeating it gives the same one. Raises StoreError.
    """
    begun = generations(run)
    if len(begun) == 1 and not fresh:
        return begun[0]
    for generation in reversed(begun):
        if _began(generation) == uid or has_claimed(generation, uid=uid):
            return generation
    return _begin(begun[-1], uid=uid) if fresh else begun[-1]


def _newest(first: RunStore) -> int:
    newest = max(first.numbers(layout.GENERATIONS), default=1)
    return _last(first, GenerationRecord, layout.generation_key, newest)


def _last(run: RunStore, cls: type[object], key_of: Callable[[int], str], newest: int) -> int:
    """The highest number of a row of records: the `newest` that is listed, or one after it."""
    while True:
        key = key_of(newest + 1)
        try:
            run.read(cls, key)
        except ObjectNotFound:
            return newest
        except CheckpointDamaged as error:
            # Whatever answers every question, a proxy perhaps, would make an endless row of them.
            raise StoreUnavailable(
                f"{run.uri}/{key} is not believed: {error}, and the listing does not show it"
            ) from error
        newest += 1


def _began(run: RunStore) -> str:
    """Who began a later generation; empty for the first, and where that cannot be read."""
    if run.generation == 1:
        return ""
    key = layout.generation_key(run.generation)
    record = replace(run, generation=1).find(GenerationRecord, key)
    return record.uid if record else ""


def _begin(newest: RunStore, *, uid: str) -> RunStore:
    first = replace(newest, generation=1)
    if newest == first and not is_used(first):
        return first
    for number in range(newest.generation + 1, newest.generation + 1 + CLAIM_TRIES):
        record = GenerationRecord(number=number, uid=uid)
        if first.write_once(layout.generation_key(number), record):
            return replace(first, generation=number)
    raise StoreUnavailable(f"{first.uri}: others keep beginning generations of this folder")
