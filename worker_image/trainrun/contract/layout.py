"""The layout below `<uri>/<runName>/`: keys, how to parse them, names of files.

Layer: contract, pure. docs/checkpoints.md shows the layout; no other module spells a key, except
`CheckpointId` for the name of a checkpoint.
"""

from __future__ import annotations

import re
import unicodedata

from trainrun.contract.checkpoint_id import CheckpointId

VERSION = 1
"""Version of this layout, recorded in `run.json`; a higher one is refused."""

RUN = "run.json"
FINISHED = "finished.json"
OWNERS = "owners/"
ATTEMPTS = "attempts/"
CHECKPOINTS = "checkpoints/"
BAD = "bad/"
METRICS = "metrics/"
SAVES = "saves/"
GENERATIONS = "generations/"
STORY = "story/"
LOGS = "logs/"
HANGS = "hangs/"
SWEEP_LOG = "log/"
"""In the folder of a sweep."""
SWEEP_TRIALS = "trials/"
"""In the folder of a sweep: the folders of its trials."""
TASKS = "tasks/"
"""The folder of a program of tasks: its log, results, and damaged results."""
TASK_LOG = f"{TASKS}log/"
TASK_OBJECTS = f"{TASKS}objects/"
TASK_DAMAGED = f"{TASKS}damaged/"
MANIFEST = "manifest.json"
STAGED = "staged.json"
"""In the folder of a checkpoint that an attempt has started from before it was uploaded: the
manifest that it will get."""

_NUMBERED = re.compile(r"(\d{6,})\.json")
_MARKER = re.compile(r"worker-(\d{5,})\.done\.json")
_DESCRIBED = re.compile(r"worker-(\d{5,})\.staged\.json")
_PART = re.compile(r"worker-(\d{5,})/")
_VOTE = re.compile(r"(\d{9,})/worker-(\d{5,})\.(yes|no)\.json")
_STORY = re.compile(r"(\d{6,})-[0-9a-zA-Z]+\.json")
_LOG = re.compile(r"(\d{6,})-(\d{5,})\.jsonl\.gz")
_HANG = re.compile(r"hangs/(\d{6,})-(\d+)/worker-(\d{5,})\.json")
_VOLUME = re.compile(r"(\d{9,})-(\d{9,})\.jsonl")
_METRICS = re.compile(r"(\d{6,})-(\d{5,})\.jsonl")


def run_uri(storage: str, run_name: str) -> str:
    """Address of a run's folder; `storage` is `spec.storage.uri`."""
    return f"{storage.rstrip('/')}/{run_name}"


def generation_folder(run: str, generation: int) -> str:
    """The folder, or address, of a generation; `run` is that of the run. The first generation is in
    it, each later one (see `trainrun.checkpoint.ownership`) in a subfolder."""
    return run if generation <= 1 else f"{run}/generation-{generation:06d}"


def generation_key(number: int) -> str:
    """The write-once record of the TrainRun that began a generation after the first, in the run's
    folder."""
    return f"{GENERATIONS}{number:06d}.json"


def checkpoints_uri(run: str) -> str:
    """Address of the folder of all checkpoints of the run at this address."""
    return f"{run}/{CHECKPOINTS}".rstrip("/")


def checkpoint_uri(run: str, checkpoint: CheckpointId) -> str:
    """Address of a checkpoint of the run at this address."""
    return f"{run}/{folder(checkpoint)}".rstrip("/")


def tasks_uri(run: str) -> str:
    """Address of the folder of a program of tasks in the run at this address."""
    return f"{run}/{TASKS}".rstrip("/")


def owner_key(number: int) -> str:
    """The write-once claim with this number."""
    return f"{OWNERS}{number:06d}.json"


def beat_key(number: int) -> str:
    """The sign of life of the owner with this claim."""
    return f"{OWNERS}{number:06d}.beat"


def record_key(log: str, position: int) -> str:
    """The write-once record at this position, from 1, of the log below this prefix."""
    return f"{log}{position:09d}.json"


def volume_key(log: str, first: int, last: int) -> str:
    """The volume with a copy of these records of such a log."""
    return f"{log}{first:09d}-{last:09d}.jsonl"


def sweep_trial_folder(trial: int, incarnation: int) -> str:
    """The folder of a trial's incarnation, both as numbers, in the folder of its sweep."""
    return f"{SWEEP_TRIALS}{trial:05d}" + (f"-i{incarnation}" if incarnation > 1 else "")


def attempt_key(attempt: int) -> str:
    """The write-once record of an attempt's resume point."""
    return f"{ATTEMPTS}{attempt:06d}.json"


def bad_key(checkpoint: CheckpointId) -> str:
    """The record of why a checkpoint was set aside."""
    return f"{BAD}{checkpoint.name}.json"


def metrics_key(attempt: int, number: int) -> str:
    """One write-once piece of the metrics of an attempt."""
    return f"{METRICS}{attempt:06d}-{number:05d}.jsonl"


def story_key(number: int, uid: str) -> str:
    """A write-once chapter of the story; successive TrainRuns in a folder number their own."""
    return f"{STORY}{number:06d}-{re.sub('[^0-9a-zA-Z]', '', uid)[:12] or '0'}.json"


def hang_folder(attempt: int, number: int) -> str:
    """The folder for the evidence of a hang of an attempt; `number` is that of the request."""
    return f"{HANGS}{attempt:06d}-{number}/"


def hang_key(attempt: int, number: int, worker: int) -> str:
    """The write-once record of one worker in a hang's folder."""
    return f"{hang_folder(attempt, number)}worker-{worker:05d}.json"


def read_hang(key: str) -> tuple[int, int, int] | None:
    """Attempt, number and worker of a hang's record; None for any other key."""
    match = _HANG.fullmatch(key)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def is_story(key: str) -> bool:
    """Whether a chapter of the story has this key."""
    return _STORY.fullmatch(key.rpartition("/")[2]) is not None


def log_key(attempt: int, slot: int) -> str:
    """The write-once last lines of the processes of one worker in an attempt."""
    return f"{LOGS}{attempt:06d}-{slot:05d}.jsonl.gz"


def read_log(key: str) -> tuple[int, int] | None:
    """Attempt and slot of stored last lines; None for any other key."""
    match = _LOG.fullmatch(key.rpartition("/")[2])
    return (int(match[1]), int(match[2])) if match else None


def votes_prefix(attempt: int) -> str:
    """The folder of ballots, by which an attempt's agents agree on a call of `should_save()`."""
    return f"{SAVES}{attempt:06d}/"


def vote_attempt(key: str) -> int | None:
    """The attempt of this ballot; None for any other key."""
    number = key.removeprefix(SAVES).partition("/")[0]
    is_ballot = key.startswith(SAVES) and number.isdecimal() and read_vote(key, int(number))
    return int(number) if is_ballot else None


def vote_key(attempt: int, call: int, worker: int, *, agrees: bool) -> str:
    """A worker's ballot on saving at one call; a listing alone suffices to count the votes."""
    answer = "yes" if agrees else "no"
    return f"{votes_prefix(attempt)}{call:09d}/worker-{worker:05d}.{answer}.json"


def folder(checkpoint: CheckpointId) -> str:
    """The checkpoint's folder, with a slash at the end."""
    return f"{CHECKPOINTS}{checkpoint.name}/"


def file_name(worker: int, name: str) -> str:
    """A worker's file, relative to the checkpoint's folder."""
    return f"worker-{worker:05d}/{name}"


def marker_name(worker: int) -> str:
    """A worker's done marker, relative to the checkpoint's folder."""
    return f"worker-{worker:05d}.done.json"


def read_number(key: str) -> int | None:
    """The number of a claim or attempt record, from its key; None for any other key."""
    match = _NUMBERED.fullmatch(key.rpartition("/")[2])
    return int(match[1]) if match else None


def read_marker(name: str) -> int | None:
    """The worker of the done marker with this name in a checkpoint's folder; None for others."""
    match = _MARKER.fullmatch(name)
    return int(match[1]) if match and marker_name(int(match[1])) == name else None


def worker_of(name: str) -> int:
    """The worker whose part has a file of this name within the checkpoint's folder; -1: none."""
    match = _PART.match(name)
    return int(match[1]) if match else -1


def described_name(worker: int) -> str:
    """The record of a part that this worker holds on its disk and has not uploaded yet."""
    return f"worker-{worker:05d}.staged.json"


def read_described(name: str) -> int | None:
    """The worker of such a record; None for any other name."""
    match = _DESCRIBED.fullmatch(name)
    return int(match[1]) if match and described_name(int(match[1])) == name else None


def read_metrics(key: str) -> tuple[int, int] | None:
    """Attempt and number of a piece of metrics; None for any other key."""
    match = _METRICS.fullmatch(key.rpartition("/")[2])
    return (int(match[1]), int(match[2])) if match else None


def read_volume(key: str) -> range | None:
    """The positions of the records in a volume; None for any other key."""
    match = _VOLUME.fullmatch(key.rpartition("/")[2])
    return range(int(match[1]), int(match[2]) + 1) or None if match else None


def read_vote(key: str, attempt: int) -> tuple[int, int, bool] | None:
    """Call, worker and answer of a ballot of this attempt; None for any other key."""
    match = _VOTE.fullmatch(key.removeprefix(votes_prefix(attempt)))
    return (int(match[1]), int(match[2]), match[3] == "yes") if match else None


TEMPORARY_NAME = ".trainrun-tmp-"
"""Prefix of unfinished files in a store on a file system."""


def unstorable(name: str) -> str:
    """Why a file with this relative path cannot be stored, and what to do; empty: any store can.

    The library refuses such a file while the script can still handle the error; the agent checks
    again.
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8, which object storage requires; rename it"
    if any(unicodedata.category(char) == "Cc" for char in name):
        return "its name contains a control character, which object storage cannot list; rename it"
    if any(part.startswith(TEMPORARY_NAME) for part in name.split("/")):
        return f"names that start with {TEMPORARY_NAME} are reserved; rename it"
    return ""
