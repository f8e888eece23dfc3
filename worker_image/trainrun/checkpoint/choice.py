"""Finding the newest good checkpoint, and what stands in the way of newer ones.

Layer: rules over `RunStore`; completeness, fences and damage are judged by the pure functions of
`selection`. Invariants: what is returned has a manifest, is not fenced, not set aside, and every
object that its manifest names is there with the right size (checksums are verified by the reader).
What a listing shows is believed; what it lacks is asked for by its name, since it may be late;
content that reads wrongly may be this node's fault.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from trainrun.checkpoint.records import AttemptRecord, BadRecord, Manifest
from trainrun.checkpoint.selection import Folder, Resumes, fenced_by, left_behind, newest_first
from trainrun.checkpoint.writer import commit_folder, set_aside
from trainrun.contract import layout
from trainrun.contract.agent_state import Suspect
from trainrun.errors import (
    CheckpointConflict,
    CheckpointDamaged,
    ObjectNotFound,
)

if TYPE_CHECKING:
    from trainrun.checkpoint.run_store import RunStore
    from trainrun.contract.checkpoint_id import CheckpointId


KnownCommits = Mapping["CheckpointId", str]
"""Checkpoints that somebody knows to be committed, whatever the listing shows, and how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreView:
    """What the store shows of a run before a choice is made."""

    attempts: tuple[int, ...]
    """Claimed ones, ascending."""
    claims: tuple[AttemptRecord, ...]
    """Of those that matter to the checkpoints there are."""
    resumes: Resumes
    """What these have left everything newer behind than."""
    folders: Mapping[CheckpointId, Folder]
    bad: frozenset[CheckpointId]
    """Set aside earlier."""

    @property
    def highest(self) -> int:
        """The highest claimed attempt, 0 for none."""
        return self.attempts[-1] if self.attempts else 0

    def sets_aside(self, run: RunStore, checkpoint: CheckpointId) -> bool:
        """Whether a checkpoint was set aside, also where the listing does not show that yet."""
        return checkpoint in self.bad or run.is_bad(checkpoint)

    def shows_manifest(self, checkpoint: CheckpointId) -> bool:
        """Whether the listing shows this checkpoint as committed."""
        folder = self.folders.get(checkpoint)
        return folder is not None and folder.has_manifest


@dataclass(slots=True, kw_only=True)
class Choice:
    """The newest good checkpoint, and what was found wrong with newer ones."""

    resume: Manifest | None = None
    set_aside: list[str] = field(default_factory=list)
    """Those that are damaged or were set aside, newest first: `name: reason`."""
    skipped: list[str] = field(default_factory=list)
    """Never committed ones whose parts are all there and yet cannot be committed."""
    suspect: Suspect | None = None
    """A manifest that reads wrongly here: nothing is chosen before another node has read it."""


def look(run: RunStore) -> StoreView:
    """Read what a choice is based on. Raises StoreError."""
    attempts = run.attempts()
    folders = run.folders()
    # An attempt fences lower ones only, so records up to the lowest checkpoint's say nothing; the
    # last two are what retention protects.
    lowest = min((checkpoint.attempt for checkpoint in folders), default=0)
    matter = [number for number in attempts if number > lowest or number in attempts[-2:]]
    claims = tuple(run.claims(matter))
    return StoreView(
        attempts=tuple(attempts),
        claims=claims,
        resumes=left_behind(claims, folders),
        folders=folders,
        bad=frozenset(run.bad()),
    )


def choose(run: RunStore, view: StoreView, known: KnownCommits) -> Choice:
    """Find the newest good checkpoint; set damaged ones aside on the way.

    Those in `known` that are newer and not in the listing are set aside as well, when they are
    really gone. Raises StoreError.
    """
    choice = Choice()
    above_all_manifests = True
    for folder in newest_first(view.folders, view.resumes):
        if folder.has_manifest:
            above_all_manifests = False
        elif not above_all_manifests or not folder.done:
            # Below a manifest this may be what an interrupted deletion has left.
            continue
        # Before it is completed, too: it may be set aside although no manifest of it is listed.
        if view.sets_aside(run, folder.id):
            choice.set_aside.append(f"{folder.id.name}: {recorded_reason(run, folder.id)}")
            continue
        judge = _usable if folder.has_manifest else _completed
        manifest = judge(run, folder, choice)
        if manifest is not None or choice.suspect is not None:
            choice.resume = manifest
            break
    if choice.resume is not None:
        newer = {id_: how for id_, how in known.items() if id_ > choice.resume.id}
        _set_aside_missing(run, view, choice, newer)
    return choice


def one_before(run: RunStore, view: StoreView, newest: CheckpointId) -> CheckpointId | None:
    """The newest good checkpoint that is older than this one; None: there is none, or its manifest
    reads wrongly here. Raises StoreError."""
    folders = view.folders.items()
    older = {id_: folder for id_, folder in folders if id_ < newest and folder.has_manifest}
    found = choose(run, replace(view, folders=older), {}).resume
    return found.id if found is not None else None


def inspect(run: RunStore, folder: Folder) -> Manifest:
    """Read a committed checkpoint's manifest and hold it against the listing.

    What the listing shows to be wrong is asked for by its name, since listings may be late. Raises
    CheckpointDamaged naming the object and the reason (with `file`, where the listing shows nothing
    wrong), StoreError.
    """
    try:
        manifest = run.manifest(folder.id)
    except (CheckpointDamaged, ObjectNotFound) as error:
        found = isinstance(error, CheckpointDamaged)
        reason = str(error) if found else f"{layout.MANIFEST}: missing"
        damage_listed = not folder.sizes.get(layout.MANIFEST)
        raise CheckpointDamaged(reason, file="" if damage_listed else layout.MANIFEST) from error
    if listed := run.damage(folder, manifest):
        raise CheckpointDamaged(listed)
    return manifest


def listed_damage(run: RunStore, checkpoint: CheckpointId) -> str:
    """What the listing shows to be wrong with a committed checkpoint; empty: nothing.

    Raises StoreError.
    """
    try:
        inspect(run, run.folder(checkpoint))
    except CheckpointDamaged as error:
        return "" if error.file else str(error)
    return ""


def evidence(run: RunStore, view: StoreView, known: KnownCommits) -> list[str]:
    """Why we believe that this run has committed something, although nothing is good.

    Empty: it never has, and may start from nothing. Raises StoreUnavailable where one of them is
    there and only the listing lacks it, StoreError.
    """
    claims = run.claims(view.attempts)
    resumes = left_behind(claims, view.folders)
    witnesses = {
        claim.resume: f"attempt {claim.attempt} was started from it"
        for claim in sorted(claims, key=lambda claim: -claim.attempt)
        if claim.resume is not None
    }
    others = {**known, **dict.fromkeys(view.bad, "it was set aside")}
    witnesses |= {
        checkpoint: how
        for checkpoint, how in others.items()
        if fenced_by(checkpoint, resumes) is None
    }
    found = {}
    for checkpoint, how in witnesses.items():
        if view.shows_manifest(checkpoint):
            continue  # it was judged by `choose`, or is fenced
        if view.sets_aside(run, checkpoint):
            found[checkpoint] = recorded_reason(run, checkpoint)
            continue
        if fenced_by(checkpoint, resumes) is None:
            _check_by_name(run, checkpoint)
        found[checkpoint] = f"{layout.MANIFEST}: missing, but {how}"
    return [f"{checkpoint.name}: {found[checkpoint]}" for checkpoint in sorted(found, reverse=True)]


def _set_aside_missing(run: RunStore, view: StoreView, choice: Choice, newer: KnownCommits) -> None:
    """Note the known commits that are newer than what was found."""
    for checkpoint, how in sorted(newer.items()):
        if view.shows_manifest(checkpoint) or view.sets_aside(run, checkpoint):
            continue
        if fenced_by(checkpoint, view.resumes) is not None:
            continue
        _check_by_name(run, checkpoint)
        reason = f"{layout.MANIFEST}: missing, but {how}"
        set_aside(run, checkpoint, reason)
        choice.set_aside.insert(0, f"{checkpoint.name}: {reason}")


def _check_by_name(run: RunStore, checkpoint: CheckpointId) -> None:
    """Ask for a commit that the listing lacks by its name.

    Raises StoreUnavailable where it is there: then the listing may lack newer ones as well, of
    which nobody knows, and which a claim would leave behind.
    """
    key = layout.folder(checkpoint) + layout.MANIFEST
    with contextlib.suppress(ObjectNotFound):
        run.store.get(run.key(key))
        raise run.incomplete_listing(key)


def _usable(run: RunStore, folder: Folder, choice: Choice) -> Manifest | None:
    name = folder.id.name
    try:
        return inspect(run, folder)
    except CheckpointDamaged:
        pass
    # It is given up for ever, so look again: a listing may have been taken during a hiccup, or too
    # early.
    folder = run.folder(folder.id)
    try:
        return inspect(run, folder)
    except CheckpointDamaged as error:
        if error.file:
            choice.suspect = Suspect(id=folder.id, files=(error.file,), message=f"{name}/{error}")
            return None
        set_aside(run, folder.id, str(error))
        choice.set_aside.append(f"{name}: {error}")
        return None


def _completed(run: RunStore, folder: Folder, choice: Choice) -> Manifest | None:
    try:
        return commit_folder(run, folder)
    except (CheckpointConflict, CheckpointDamaged, ObjectNotFound) as error:
        choice.skipped.append(f"{folder.id.name}: {error}")
        return None


def recorded_reason(run: RunStore, checkpoint: CheckpointId) -> str:
    """Why a checkpoint was set aside."""
    record = run.find(BadRecord, layout.bad_key(checkpoint))
    return record.reason if record else "set aside for a reason that can no longer be read"
