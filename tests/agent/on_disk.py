"""The configuration of an agent whose storage, cache and files are in one folder on this disk."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainrun.contract.agent_config import AgentConfig, StorageConfig
from trainrun.contract.answer import RunSettings

if TYPE_CHECKING:
    from pathlib import Path


def a_config(folder: Path, **fields: Any) -> AgentConfig:
    """Of slot 0 of the run `run`, with nobody to call."""
    defaults = AgentConfig(
        run="run",
        run_uid="uid-1",
        slot=0,
        worker="run-0-1",
        operator_url="http://127.0.0.1:1",
        directory=str(folder / "node"),
        cache=str(folder / "cache"),
        settings=RunSettings(on_notice="Auto"),
        storage=StorageConfig(uri=f"file://{folder}/storage", run_name="run"),
    )
    return replace(defaults, **fields)
