"""The kinds of findings, and what to change for each.

Layer: cli; pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "RanksSilent",
    "SaveTooLate",
    "RecoveryFailed",
    "CheckpointNeverAsked",
    "CheckpointNeverOpened",
    "OwnFilesUsed",
    "StepsRepeated",
    "StepsSkipped",
    "LearningRateReset",
    "DataRestarted",
    "DataDiffers",
    "RandomNotRestored",
    "DataOrRandomDiffer",
    "WeightsNotLoaded",
    "WeightsDiffer",
    "OptimizerReset",
    "CurvesDiffer",
    "CheckpointsDiffer",
    "ShouldSaveNeverAsked",
    "NoticeNotUsed",
    "SaveTooSlow",
    "NoticeSavedNothing",
]

_LOAD = (
    "call trainrun.get_checkpoint() before the loop, load its files from as_directory(), and go on "
    "from its step + 1"
)
_STEPS = (
    "go on from get_checkpoint().step + 1, and report a checkpoint with the last step that is in it"
)
_ALL = (
    "save and load all that the next step depends on: weights, optimizer, learning-rate schedule, "
    "place in the data, random numbers (trainrun.torch.State does)"
)
_WEIGHTS = (
    "load the weights from get_checkpoint().as_directory() into the model that is trained, after "
    "it was made, in the precision in which they are trained"
)
_DATA = (
    "save the place in the data and go on from there: a sampler with its epoch and position "
    "(trainrun.torch.ResumableLoader does), or skip what was seen"
)
_RANDOM = (
    "save and load the states of all random generators (random, NumPy, torch, CUDA), or seed them "
    "from the step (trainrun.torch.State has them)"
)

REMEDIES: dict[Kind, str] = {
    "RanksSilent": "call trainrun.report(step=..., checkpoint=...) on every rank, or "
    "report(..., whole=True) on the one that saves everything",
    "SaveTooLate": "ask trainrun.should_save() in evaluation loops and before long work, too, or "
    "give the workers a longer terminationGracePeriodSeconds",
    "RecoveryFailed": "read the error: what was saved is not what is loaded, or the script cannot "
    "begin where its own files are already",
    "CheckpointNeverAsked": _LOAD,
    "CheckpointNeverOpened": "load the files of what get_checkpoint() returns, from "
    "as_directory(); its step alone restores nothing",
    "OwnFilesUsed": f"{_LOAD}. A folder of the script's own is gone with the pod; on a volume that "
    "outlives it, it may be older or newer than the checkpoint that the other ranks resume from",
    "StepsRepeated": _STEPS,
    "StepsSkipped": f"{_STEPS}; take nothing from files of the script's own beside it, which may "
    "be newer",
    "LearningRateReset": "save the schedule's state (scheduler.state_dict()) and load it, or make "
    "the schedule from the step that the training goes on from",
    "DataRestarted": _DATA,
    "DataDiffers": _DATA,
    "RandomNotRestored": _RANDOM,
    "DataOrRandomDiffer": f"{_DATA}; and {_RANDOM}. A batch_hash among the metrics tells which",
    "WeightsNotLoaded": _WEIGHTS,
    "WeightsDiffer": _WEIGHTS,
    "OptimizerReset": "save optimizer.state_dict() and load it after the optimizer was made, "
    "gradient scaler and schedule as well",
    "CurvesDiffer": _ALL,
    "CheckpointsDiffer": f"{_ALL}; averages of weights and counters, too. Where the files only "
    "record the restart itself, nothing is wrong",
    "ShouldSaveNeverAsked": "ask trainrun.should_save() after each step on every rank, and save "
    "when it is true; or save on SIGTERM",
    "NoticeNotUsed": "save as soon as should_save() is true, and report that checkpoint; where it "
    "was being saved meanwhile, give a longer terminationGracePeriodSeconds",
    "SaveTooSlow": "give the workers a terminationGracePeriodSeconds in which a save and its "
    "upload fit, or save less on a notice",
    "NoticeSavedNothing": "give the workers a longer terminationGracePeriodSeconds, or ask "
    "should_save() more often; `trainrun drill` on one machine says which of both it is",
}


AFTER_THE_LOOP = (
    "a resume from the last checkpoint leaves the loop nothing to do: let what comes after it use "
    "nothing that only a step sets"
)
_RESUME = {
    "transformers": "call trainer.train(resume_from_checkpoint=resume_path()), with resume_path of "
    "trainrun.transformers",
    "lightning": "call trainer.fit(..., ckpt_path=resume_path()), with resume_path of "
    "trainrun.lightning",
}


def loading(kind: Kind, framework: str) -> str:
    """What to change where a checkpoint of this framework was not loaded; "": as usual."""
    unloaded = kind in ("CheckpointNeverAsked", "CheckpointNeverOpened", "OwnFilesUsed")
    return _RESUME.get(framework, "") if unloaded else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that would go wrong on the day."""

    kind: Kind
    text: str
    advice: str = ""
    """What to change, where that is not the usual."""

    @property
    def remedy(self) -> str:
        """What to change."""
        return self.advice or REMEDIES[self.kind]
