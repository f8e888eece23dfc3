"""Finds the newest good checkpoint, and the reasons why newer ones were not chosen.

Layer: rules over `RunStore`; the pure functions of `selection` judge completeness, fences and
damage. Invariants: the chosen checkpoint has a manifest, is neither fenced nor set aside, and all
objects that its manifest names exist with the right size (the reader verifies checksums). An object
that a listing shows exists; one that it lacks is checked by name, since listings may be late;
content that does not match may be this node's fault.
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
"""Checkpoints known to be committed even if the listing lacks them, and the evidence in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreView:
    """The state of a run in the store, read before a choice is made."""

    attempts: tuple[int, ...]
    """Claimed attempts, ascending."""
    claims: tuple[AttemptRecord, ...]
    """The claims that can fence an existing checkpoint."""
    resumes: Resumes
    """By claim, the checkpoint above which it fences."""
    folders: Mapping[CheckpointId, Folder]
    bad: frozenset[CheckpointId]
    """Checkpoints set aside earlier."""

    @property
    def highest(self) -> int:
        """The highest claimed attempt; 0: none."""
        return self.attempts[-1] if self.attempts else 0

    def sets_aside(self, run: RunStore, checkpoint: CheckpointId) -> bool:
        """Whether a checkpoint was set aside, even if the listing does not show it yet."""
        return checkpoint in self.bad or run.is_bad(checkpoint)

    def shows_manifest(self, checkpoint: CheckpointId) -> bool:
        """Whether the listing shows this checkpoint as committed."""
        folder = self.folders.get(checkpoint)
        return folder is not None and folder.has_manifest


@dataclass(slots=True, kw_only=True)
class Choice:
    """The newest good checkpoint, and the faults of newer ones."""

    resume: Manifest | None = None
    set_aside: list[str] = field(default_factory=list)
    """Damaged checkpoints and those set aside before, newest first: `name: reason`."""
    skipped: list[str] = field(default_factory=list)
    """Uncommitted checkpoints that have all parts but cannot be committed."""
    suspect: Suspect | None = None
    """A manifest that this node cannot read: another node must read it before the choice."""


def look(run: RunStore) -> StoreView:
    """Read the state that a choice is based on. Raises StoreError."""
    attempts = run.attempts()
    folders = run.folders()
    # An attempt fences lower ones only, so records up to the lowest checkpoint's do not matter;
    # retention protects the last two.
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
    """Find the newest good checkpoint; set aside damaged ones on the way.

    Also sets aside newer checkpoints in `known` that are missing from both the listing and the
    store. Raises StoreError.
    """
    choice = Choice()
    above_all_manifests = True
    for folder in newest_first(view.folders, view.resumes):
        if folder.has_manifest:
            above_all_manifests = False
        elif not above_all_manifests or not folder.done:
            # Below a manifest this may be the rest of an interrupted deletion.
            continue
        # Check before completing it: it may be set aside although its manifest is not listed.
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
    """The newest good checkpoint older than this one; None: there is none, or this node cannot read
    its manifest. Raises StoreError."""
    folders = view.folders.items()
    older = {id_: folder for id_, folder in folders if id_ < newest and folder.has_manifest}
    found = choose(run, replace(view, folders=older), {}).resume
    return found.id if found is not None else None


def inspect(run: RunStore, folder: Folder) -> Manifest:
    """Read a committed checkpoint's manifest and compare it with the listing.

    Listings may be late, so damage that a listing shows is checked again by name. Raises
    CheckpointDamaged naming the object and the reason (with `file` where the listing shows no
    damage), StoreError.
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
    """The damage that the listing shows for a committed checkpoint; empty: none.

    Raises StoreError.
    """
    try:
        inspect(run, run.folder(checkpoint))
    except CheckpointDamaged as error:
        return "" if error.file else str(error)
    return ""


def evidence(run: RunStore, view: StoreView, known: KnownCommits) -> list[str]:
    """The evidence that this run committed checkpoints, although none of them is good.

    Empty: it never committed any, and may start from scratch. Raises StoreUnavailable where such a
    checkpoint exists and only the listing lacks it, StoreError.
    """
    claims = run.claims(view.attempts)
    resumes = left_behind(claims, view.folders)
    witnesses = {
        claim.resume: f"attempt {claim.attempt} was started from it"
        for claim in sorted(claims, key=lambda claim: -claim.attempt)
        if claim.resume is not None and not claim.staged  # its workers may be lost since
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
            continue  # `choose` has judged it, or it is fenced
        if view.sets_aside(run, checkpoint):
            found[checkpoint] = recorded_reason(run, checkpoint)
            continue
        if fenced_by(checkpoint, resumes) is None:
            _check_by_name(run, checkpoint)
        found[checkpoint] = f"{layout.MANIFEST}: missing, but {how}"
    return [f"{checkpoint.name}: {found[checkpoint]}" for checkpoint in sorted(found, reverse=True)]


def _set_aside_missing(run: RunStore, view: StoreView, choice: Choice, newer: KnownCommits) -> None:
    """Set aside the known commits that are newer than the choice and missing from the store."""
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
    """Look up by name a commit that the listing lacks.

    Raises StoreUnavailable where it exists: the listing may then also lack newer commits that this
    agent does not know of, and a claim would fence them.
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
    # Setting it aside is permanent, so look again: the listing may have been wrong or too early.
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
