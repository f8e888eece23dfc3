"""Which TrainRun may use a run's folder: numbered claims, a beat, release, takeover, generations.

Layer: rules over `RunStore`. Invariants: a claim is write-once, and the highest number owns the
folder; a claim is taken over only after its release, or after its beat has not changed for a whole
lease on the claimant's own monotonic clock (wall clocks are never compared). A takeover need not
stop the old owner: the new owner's attempts are higher and fence it.

With `onExisting: StartFresh` a TrainRun begins a new generation of the folder. The first generation
is in the run's folder itself, each later one in a subfolder with its own claims, records and
checkpoints: the rules for these never see another generation, so one never reads, fences or deletes
objects of another. A write-once record gives each number to one TrainRun; a TrainRun begins at most
one generation, and stays in the one that it has begun or claimed. Objects that a listing may not
show yet are looked up by name.
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
"""Seconds without a change of the beat after which a claim is taken over: three missed polls at the
longest poll interval."""

CLAIM_TRIES = 5
"""Tries to claim, each after another claimant has won."""

RUN_ID_LENGTH = 16
"""Characters of a run's id: 80 bits. W&B takes up to 64."""


class BeatWatch:
    """Remembers, across calls, since when an owner's beat has not changed.

    Keep one per process and run; a new one starts counting at 0.
    """

    def __init__(
        self, *, lease: float = LEASE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.lease = lease
        """Seconds."""
        self._clock = clock
        self._last_beat: tuple[int, bytes] | None = None
        self.moved = False
        """Whether the beat changed between the last two looks at this owner."""
        self._since = 0.0

    def still_for(self, owner: int, beat: bytes) -> float:
        """Seconds since this beat of this owner was first seen (0 at the first look)."""
        now, before = self._clock(), self._last_beat
        self.moved = before is not None and before[0] == owner and before[1] != beat
        if self._last_beat != (owner, beat):
            self._last_beat, self._since = (owner, beat), now
        return now - self._since


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """We own the folder."""

    number: int
    """Number of our claim."""
    committed: CheckpointId | None
    """The newest checkpoint that any owner is known to have committed."""
    run_id: str
    """The run's id for trackers: see `derived_run_id`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotOwned:
    """We do not own the folder."""

    outcome: Outcome
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """The newest claim, as far as it can be read."""

    number: int
    uid: str
    """Empty when the record is damaged: then only the beat protects the claim."""
    beat: bytes
    released: bool
    committed: CheckpointId | None


def acquire(
    run: RunStore, *, uid: str, fail_on_existing: bool, watch: BeatWatch, params: str = ""
) -> Owned | NotOwned:
    """Claim the run's folder for the TrainRun `uid`, or return why not; repeating it is harmless.

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
    raise StoreUnavailable(f"{run.uri}: other TrainRuns keep claiming this folder")


def beat(run: RunStore, *, uid: str, counter: int, committed: CheckpointId | None = None) -> bool:
    """Show that the owner is alive; `counter` only has to differ from the last one.

    `committed` is the newest known commit (None: that of the last beat). Returns False, without
    writing, when we do not own the folder, or have released it.
    """
    return _write_beat(run, uid=uid, counter=counter, committed=committed, released=False)


def release(run: RunStore, *, uid: str) -> None:
    """Release the folder, so that the next claimant need not wait for the lease."""
    _write_beat(run, uid=uid, counter=0, committed=None, released=True)


def life_of_owner(run: RunStore, *, watch: BeatWatch) -> OwnerLife:
    """Whether the folder's owner shows life; writes nothing."""
    numbers = _owners(run)
    if not numbers:
        return "Unknown"
    claim = _read_claim(run, numbers[-1])
    still = watch.still_for(claim.number, claim.beat)
    if watch.moved:
        return "Moves"
    return "Still" if still >= watch.lease else "Unknown"


def is_used(run: RunStore) -> bool:
    """Whether the folder has been used."""
    return bool(_owners(run) or run.objects(layout.ATTEMPTS) or run.objects(layout.CHECKPOINTS))


def has_claimed(run: RunStore, *, uid: str) -> bool:
    """Whether this TrainRun has ever owned the folder."""
    return any(_read_claim(run, number).uid == uid for number in reversed(_owners(run)))


def claimants(run: RunStore) -> set[str]:
    """All TrainRuns that have ever owned the folder; "" stands for unreadable claims."""
    return {_read_claim(run, number).uid for number in _owners(run)}


def owner_uid(run: RunStore) -> str:
    """The TrainRun with the newest claim, released or not; empty: none, or it is unreadable."""
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
    """Why a trial with these parameters may not continue in this folder: the folder belongs to a
    trial with other parameters, so its checkpoints and values do not apply. Raises StoreError."""
    there = run.find(RunRecord, layout.RUN)
    if not params or there is None or not there.params:
        return None
    if json.loads(there.params) == json.loads(params):
        return None
    return NotOwned(
        outcome="NotEmpty",
        message=f"{run.uri} holds a trial with the parameters {there.params}, but this trial has "
        f"{params}: they come from another log of the sweep. Restore that log, or set "
        "resume.restartErrored and add 1 to resume.token to begin this trial in a new folder",
    )


def stored_run_id(run: RunStore) -> str:
    """The run's id, from its folder; empty where the folder is unused. Raises StoreError."""
    stamp = run.find(RunRecord, layout.RUN)
    numbers = _owners(run) if stamp is None else []
    return _run_id(run, stamp, numbers) if stamp is not None or numbers else ""


def _run_id(run: RunStore, stamp: RunRecord | None, numbers: list[int]) -> str:
    """If the stamp cannot be read, use the first owner, who usually wrote it."""
    if stamp is None:
        stamp = _stamp_of(_read_claim(run, numbers[0]).uid)
    return derived_run_id(stamp.created_by, run.folder_name)


def derived_run_id(created_by: str, folder: str) -> str:
    """The id of the run in `folder` (relative to its storage), which `created_by` used first.

    It is the same in all starts of the run, for trackers and folders of other programs: `run.json`
    is written once, so the id outlives restarts, operators, clusters, and the TrainRun itself. It
    depends on the folder's name, so a copy under another name is another run, as is a later
    generation; it does not depend on the location, so a run moved to another bucket keeps its id.
    """
    digest = hashlib.sha256(f"{created_by}\n{folder}".encode()).digest()
    return base64.b32encode(digest).decode()[:RUN_ID_LENGTH].lower()


def _stamp_of(uid: str, params: str = "") -> RunRecord:
    return RunRecord(layout=layout.VERSION, created_by=f"TrainRun uid {uid}", params=params)


def _stamp(run: RunStore, *, uid: str, params: str) -> RunRecord | None:
    """The content of `run.json`, written now if absent; refuses a folder of a newer layout.

    None: the record is unreadable.
    """
    record = _stamp_of(uid, params)
    if run.write_once(layout.RUN, record):
        return record
    there = run.find(RunRecord, layout.RUN)  # the rest of the folder does not depend on it
    if there is not None and there.layout > layout.VERSION:
        raise StoreMisconfigured(
            f"{run.uri} has layout {there.layout}, created by {there.created_by}; this version "
            f"supports layout {layout.VERSION}: upgrade, or use another runName"
        )
    return there


def _owners(run: RunStore) -> list[int]:
    """The numbers of all claims; looks up by name the newest ones, which a listing may lack."""
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
        # The bytes of an unreadable beat still show whether it changes.
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
        "onExisting: Resume to continue that run, or StartFresh to begin a new generation",
    )


def _in_use(run: RunStore, claim: _Claim, *, uid: str, watch: BeatWatch) -> NotOwned | None:
    if claim.released or claim.uid == uid:
        return None
    if watch.still_for(claim.number, claim.beat) >= watch.lease:
        return None
    return NotOwned(
        outcome="InUse",
        message=f"{run.uri} is in use by TrainRun uid {claim.uid or '(unreadable)'} "
        f"({layout.owner_key(claim.number)}); this run takes it over when that one is suspended or "
        f"finished, or shows no sign of life for {watch.lease:.0f} s. If no TrainRun has this uid, "
        f"delete its leftover pods: kubectl delete pods -A -l trainrun.dev/run-uid={claim.uid}",
    )


def generations(run: RunStore) -> list[RunStore]:
    """All generations, oldest first; the first one is always included, used or not.

    Raises StoreError.
    """
    first = replace(run, generation=1)
    return [replace(run, generation=number) for number in range(1, _newest(first) + 1)]


def enter(run: RunStore, *, uid: str, fresh: bool) -> RunStore:
    """The generation of the TrainRun `uid`: its own, else the newest, or with `fresh` a new one.

    Repeating the call returns the same one. Raises StoreError.
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
    """The highest number of a series of records: the listed `newest`, or one after it."""
    while True:
        key = key_of(newest + 1)
        try:
            run.read(cls, key)
        except ObjectNotFound:
            return newest
        except CheckpointDamaged as error:
            # A proxy that answers all requests would make this series endless.
            raise StoreUnavailable(
                f"{run.uri}/{key} cannot be trusted: {error}, and the listing does not show it"
            ) from error
        newest += 1


def _began(run: RunStore) -> str:
    """The TrainRun that began a later generation; empty for the first, or if it is unreadable."""
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
    raise StoreUnavailable(f"{first.uri}: other TrainRuns keep starting generations here")
