"""Two real agents whose scripts save into folders of their own, and what an operator tells them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.agent.workers import start
from tests.support.eventually import eventually
from trainrun.contract.answer import FolderRule, Hold, OpenStep, ResolveRequest, RunSettings
from trainrun.contract.checkpoint_id import CheckpointId

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.agent.workers import Worker, Workers
    from tests.support.operator_stand_in import OperatorStandIn
    from trainrun.contract.agent_state import AgentState

LONG = 60.0
RULE = FolderRule(
    path="out", newest="step-*", settle=1.0, resume_args=("--resume", "{newest}/model.bin")
)
PRELUDE = """
import os, signal, sys, time
from pathlib import Path
ATTEMPT, RANK = os.environ["TRAINRUN_ATTEMPT"], int(os.environ["RANK"])
def save(step, name="model.bin", text=None):
    folder = Path("out", f"step-{step}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text or f"{step} of {RANK}\\n")
def wait(name):
    while not Path("..", name).exists(): time.sleep(.02)
def seen():
    found = (p for p in Path("out").rglob("*") if p.is_file() and ".trainrun" not in p.parts)
    print("sees", sys.argv[1:], {str(p.relative_to("out")): p.read_text().strip() for p in found})
"""


class Gang:
    """Both workers of a run."""

    def __init__(
        self,
        operator: OperatorStandIn,
        workers: Workers,
        script: str,
        rule: FolderRule = RULE,
        *,
        volume: Path | None = None,
    ) -> None:
        """`volume`: where all of them work; None: each in a folder of its own."""
        self.operator = operator
        self.workers = workers
        self.script = PRELUDE + script
        self.rule = rule
        self.volume = volume
        self.there: list[Worker] = [self.add(0), self.add(1)]
        self.begin(1)

    def add(self, slot: int, *, number: int = 1) -> Worker:
        """A new worker for a slot, with an empty disk if there was none of this number."""
        folder = self.folder(slot, number)
        folder.mkdir(exist_ok=True)
        return self.workers.start(
            self.script,
            slot=slot,
            worker=f"run-{slot}-{number}",
            directory=str(folder / "node"),
            working_dir=str(self.volume or folder),
            cache=str(folder / "cache"),
            settings=RunSettings(folder=self.rule),
        )

    def replace(self, slot: int) -> None:
        """The slot's node is lost with its disk."""
        self.there[slot].kill()
        self.there[slot] = self.add(slot, number=2)

    def folder(self, slot: int, number: int = 1) -> Path:
        return self.workers.folder / f"worker-{slot}-{number}"

    def tell(self, name: str) -> None:
        """What scripts wait for."""
        (self.workers.folder / name).touch()

    def states(self) -> list[AgentState]:
        found = [self.operator.state(worker.config.worker) for worker in self.there]
        return [state for state in found if state is not None]

    def state(self, slot: int) -> AgentState:
        found = self.operator.state(self.there[slot].config.worker)
        assert found is not None
        return found

    def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Wait for it; meanwhile each agent hears which steps the others have staged."""

        def look() -> bool:
            open_: dict[int, set[int]] = {}
            for state in self.states():
                for staged in state.staged:
                    if staged.ranks or staged.uploaded:
                        slots = open_.setdefault(staged.step, set())
                        slots |= {state.slot} if staged.uploaded else set()
            steps = (OpenStep(step=s, slots=tuple(sorted(open_[s]))) for s in sorted(open_))
            self.operator.also(steps=tuple(steps))
            return bool(condition())

        try:
            eventually(look, timeout=LONG, what=what)
        except AssertionError as error:
            logs = "\n".join(worker.output[-3000:] for worker in self.there)
            raise AssertionError(f"{error}; {self.states()}\n{logs}") from error

    def committed(self, step: int, attempt: int = 1) -> None:
        """Wait until this checkpoint is the newest commit."""
        wanted = CheckpointId(attempt=attempt, step=step)
        what = f"{wanted.name} is committed"
        self.until(
            lambda: any(s.committed and s.committed.id == wanted for s in self.states()), what
        )

    def end(self, *flush: int) -> None:
        """End the attempt; these steps are stored first."""
        self.operator.order(Hold(attempt=2, flush=flush, flush_seconds=LONG))
        self.until(
            lambda: all(s.held.attempt == 2 and s.phase == "Idle" for s in self.states()), "its end"
        )

    def begin(self, attempt: int, step: int | None = None) -> None:
        """Start an attempt, from this step of the first one."""
        resume = None if step is None else CheckpointId(attempt=1, step=step)
        request = ResolveRequest(attempt=attempt)
        self.operator.order(Hold(attempt=attempt, offer=True, resolve=request))
        lead = self.there[0].config.worker

        def resolved(state: AgentState) -> bool:
            return state.resolution is not None and state.resolution.attempt == attempt

        self.operator.until(resolved, worker=lead, timeout=LONG)
        self.until(lambda: len(self.states()) == 2, "both agents")
        self.operator.order(start(attempt, workers=2, resume=resume))

    def is_committed(self, step: int) -> bool:
        """Whether the first attempt has this checkpoint."""
        return (self._place(step) / "manifest.json").exists()

    def files(self, step: int) -> dict[str, str]:
        """Of a checkpoint of the first attempt, as stored."""
        place = self._place(step)
        found = (path for path in place.glob("worker-*/**/*") if path.is_file())
        return {str(path.relative_to(place)): path.read_text().strip() for path in found}

    def _place(self, step: int) -> Path:
        name = CheckpointId(attempt=1, step=step).name
        return self.workers.storage / "run" / "checkpoints" / name
