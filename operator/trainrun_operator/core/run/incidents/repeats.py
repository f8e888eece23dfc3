"""Known failures: errors that many scripts die of, and failures that repeat.

Layer: core; a pure function of the incidents in the status. Messages of errors of CUDA, NCCL and
DataLoaders include a remedy; errors about a lost peer are collateral, and not among them. Does a
repeated failure come from the code, the node, or the checkpoint? A root that repeats on several
nodes is a bug; on one node alone it is the node. After two deaths of one root in a row while
opening the same checkpoint, the next attempt tries the checkpoint before it, once; what slot 0's
agent then claims is in the store and in the start record. If that trial dies in the same way, the
checkpoint is not the cause. If it ends in another way, nothing is known, and another trial may
follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.run.status import StartRecord, TrainRunStatus
from trainrun_operator.api.run.status_parts import Incident
from trainrun_operator.core.run.causes import SIGNAL_NAMES, row_of, signal_of
from trainrun_operator.core.run.incidents.attempt_progress import highest_step, uptime
from trainrun_operator.core.run.steps import newest_known
from trainrun_operator.core.run.view import View

GPU_FULL = (
    "the memory of its GPU is full: lower the batch of a process or accumulate gradients, and "
    "check whether another process uses memory of that GPU"
)

SHARED_FULL = (
    "shared memory is most likely full: mount an emptyDir with medium: Memory at /dev/shm (a "
    "container has 64 MiB there), or lower num_workers"
)

REMEDIES: dict[tuple[str, ...], str] = {
    ("cuda out of memory",): GPU_FULL,
    ("cuda error: out of memory",): GPU_FULL,
    ("dataloader worker", "killed by signal: killed"): (
        "a DataLoader's worker was killed, most likely because memory ran out: raise the memory "
        "limit or lower num_workers"
    ),
    ("dataloader worker", "killed by signal: bus error"): SHARED_FULL,
    ("sigbus",): SHARED_FULL,
    ("dataloader worker", "exited unexpectedly"): (
        "a DataLoader's worker has died: its own error is further up in the output of the rank"
    ),
    ("ncclunhandledcudaerror",): (
        "a CUDA call inside NCCL failed: look for an earlier error of this rank, and check the "
        "GPU of its node (Xid in the kernel's log)"
    ),
    ("ncclinvalidusage",): (
        "ranks use NCCL differently: give each process its own GPU, and call the same collectives "
        "in the same order on all ranks"
    ),
    ("ncclinternalerror",): (
        "NCCL failed internally: set NCCL_DEBUG=INFO, and check that all workers have the same "
        "image"
    ),
    ("cuda error: an illegal memory access",): (
        "a bug in a kernel of the script, or a broken GPU: set CUDA_LAUNCH_BLOCKING=1 to find the "
        "line; if it happens on one node only, have its GPU checked"
    ),
    ("device-side assert triggered",): (
        "a check in a kernel failed, mostly for an index out of range (a label beyond the classes, "
        "a token beyond the vocabulary): set CUDA_LAUNCH_BLOCKING=1 to find the line"
    ),
    ("no module named 'encodings'",): (
        "PYTHONHOME names the folder of a Python that is not the command's: unset it"
    ),
    ("uncorrectable ecc error",): (
        "the memory of the GPU is broken: have it checked, and keep the run away from the node"
    ),
}
"""All words of an entry must occur; the first entry that matches is used."""


def remedy_of(text: str) -> str:
    """What to do about an exception with this text; "" where that is unknown."""
    lower = text.lower()
    fitting = (remedy for words, remedy in REMEDIES.items() if all(word in lower for word in words))
    return next(fitting, "")


AGAIN = 3
"""Occurrences from which on a repeat is shown: two may be chance."""

NUMBERED = {3: "third", 4: "fourth", 5: "fifth"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What incidents of one root have in common."""

    root: str
    """`FloatingPointError in loss.py:88`, `SIGSEGV`."""
    step: int | None
    """The highest step that its attempt reported; None: none."""
    template: str
    """Hash of the pod template, and so of the image."""


def fingerprint(incident: Incident) -> Fingerprint | None:
    """None where the root is unknown: an exit code alone may mean anything."""
    signal = signal_of(incident)
    if incident.collateral:
        return None
    if incident.exception and incident.raised_at:
        root = f"{incident.exception[0]} in {incident.raised_at}"
    elif signal is not None and not incident.exception:
        root = SIGNAL_NAMES.get(signal, f"signal {signal}")
    else:
        return None
    return Fingerprint(root=root, step=incident.step, template=incident.template)


def same_node(incidents: Sequence[Incident]) -> Incident | None:
    """The first of the newest AGAIN incidents with the root of the newest one, if all of that root
    were on one node; else None."""
    same = _of_root(incidents, incidents[-1]) if incidents else []
    if len(same) < AGAIN or len({incident.node for incident in same}) > 1:
        return None
    return same[-AGAIN]


def repeated(incidents: Sequence[Incident], *, alone: bool = False) -> tuple[str, str]:
    """Reason and message for the newest incident if its root has repeated; else empty.

    `alone`: the run has one worker, so no other node has shown that it works without the failure.
    """
    same = _of_root(incidents, incidents[-1]) if incidents else []
    newest = fingerprint(same[-1]) if same else None
    if newest is None or len(same) < AGAIN:
        return "", ""
    # In a local run each worker counts as a node, with the name of the worker.
    nodes = sorted({incident.node for incident in same if incident.node != incident.worker} - {""})
    time = NUMBERED.get(len(same), f"{len(same)}th")
    when = "before the first step" if newest.step is None else f"at step {newest.step}"
    what = f"{time} time: {newest.root} {when}"
    if len(nodes) == 1 and not alone:
        first = "first check whether the script is at fault, then " if same[-1].exception else ""
        return "SameNode", f"{what}, always on node {nodes[0]}: {first}have the node checked"
    if len(nodes) == 1 and not same[-1].exception:
        at_fault = f"the code is at fault, or node {nodes[0]}, the only one that ran it"
        return "SameFailure", f"{what}: {at_fault}"
    where = f", on {len(nodes)} nodes" if len(nodes) > 1 else ""
    return "SameFailure", f"{what}{where}: the code is at fault, and restarts do not help"


LONGEST = 600.0
"""Seconds after which a process that got its checkpoint has opened it: some scripts report only
what they save."""
MESSAGE_WIDTH = 900
"""Characters kept of a message to which something is added."""


def marked(view: View, record: StartRecord, incident: Incident) -> Incident:
    """The incident of the newest attempt, with the checkpoint that its attempt died opening, if
    any, and the newer one that its trial left out."""
    slot, point = incident.slot, record.resume_point
    incident = replace(incident, trial_of=record.trial_of)
    agent = (view.agents[slot] or view.last_words.get(slot)) if slot is not None else None
    if point is None or agent is None or highest_step(view) is not None:
        return incident
    held_for = uptime(agent).total_seconds() - agent.rendezvous - agent.load
    if not agent.asked_for_checkpoint or held_for >= LONGEST:
        return incident
    message = incident.message[:MESSAGE_WIDTH]
    return replace(incident, opened=point, message=f"{message} (while opening step {point.step})")


def to_try(view: View) -> CheckpointId | None:
    """The checkpoint that the next attempt leaves out, as a trial, if it is the newest."""
    status, incidents = view.status, view.status.all_incidents
    # A worker taken away before a first step proves nothing about the checkpoint.
    telling = [
        incident
        for incident in incidents
        if row_of(incident.cause).stands_still or incident.step is not None
    ]
    if len(telling) < 2:
        return None
    before, last = telling[-2:]
    point, root = last.opened, fingerprint(last)
    since = [incident for incident in incidents if incident.attempt >= before.attempt]
    if status.attempt - before.attempt >= len(since):
        return None  # an attempt has ended meanwhile without an incident
    if root is None or root != fingerprint(before) or root.template != view.config.template_hash:
        return None
    return point if point == before.opened and point != status.tried else None


def tried(status: TrainRunStatus, last: Incident) -> CheckpointId | None:
    """The newest checkpoint that a trial showed not to be the cause of the deaths."""
    alike = any(incident.opened == last.trial_of for incident in _of_root(status.incidents, last))
    found = last.trial_of is not None and last.opened is not None and alike
    return last.trial_of if found else status.tried


def opened_again(incidents: Sequence[Incident]) -> str:
    """The message about a checkpoint that attempts died opening, from the second death; else ""."""
    last = incidents[-1] if incidents else None
    if last is None or last.opened is None:
        return ""
    point, alike = last.trial_of or last.opened, _of_root(incidents, last)
    died = sum(incident.opened == point for incident in alike)
    if died < 2:
        return ""
    text = f"{died} attempts died while opening the same checkpoint (step {point.step})"
    if any(incident.trial_of == point for incident in alike):
        return f"{text}, and one died the same way at the one before: the script is at fault"
    return f"{text}: `trainrun checkpoints set-aside` makes the run use the one before it"


def on_trial(view: View) -> str:
    """The message about a running trial that leaves out a newer checkpoint; "" if there is none."""
    record, newest = view.running, newest_known(view)
    if record is None or record.trial_of is None or record.resume_point is None:
        return ""
    if newest is not None and newest.attempt == record.attempt:
        return ""  # it has a checkpoint of its own
    newer, point = record.trial_of, record.resume_point
    return (
        f"attempts died while opening step {newer.step} of attempt {newer.attempt}, so attempt "
        f"{record.attempt} tries step {point.step} of attempt {point.attempt}, once. "
        f"Step {newer.step} is kept until attempt {record.attempt} has saved a checkpoint"
    )


def _of_root(incidents: Sequence[Incident], last: Incident) -> list[Incident]:
    """Those with the root of `last`."""
    root = fingerprint(last)
    return [
        incident for incident in incidents if root is not None and fingerprint(incident) == root
    ]
