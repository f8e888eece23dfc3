"""What an attempt needs of its agent.

Layer: agent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from trainrun._common.kernel import OomCounter
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.agent.faults import Faults
from trainrun.agent.folder.notes import FolderMemory
from trainrun.agent.processes.environment import Folders
from trainrun.agent.processes.output import Sink
from trainrun.agent.processes.standbys import Standbys
from trainrun.contract.agent_config import AgentConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptContext:
    """The parts of an agent that outlive its attempts."""

    config: AgentConfig
    folders: Folders
    storage: AsyncRunStore
    sink: Sink
    oom: OomCounter
    standbys: Standbys
    faults: Faults
    news: Callable[[], None]
    """Called when something changed that the operator waits for."""
    progress: Callable[[], None]
    """Called when steps or metrics changed."""
    memory: FolderMemory = field(default_factory=FolderMemory)
