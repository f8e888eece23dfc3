"""A checkpoint in the status: the contract's pair, as the resource describes it.

Layer: api.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from trainrun.contract.checkpoint_id import CheckpointId


def _possible(checkpoint: CheckpointId) -> CheckpointId:
    if checkpoint.step < 0 or checkpoint.attempt < 1:
        raise ValueError("a checkpoint has a step from 0 and an attempt from 1")
    return checkpoint


HandedCheckpoint = Annotated[
    CheckpointId,
    AfterValidator(_possible),
    WithJsonSchema(
        {
            "type": "object",
            "required": ["step", "attempt"],
            "properties": {
                "step": {"type": "integer", "minimum": 0, "description": "Its step."},
                "attempt": {
                    "type": "integer",
                    "minimum": 1,
                    "description": "The attempt that saved it.",
                },
            },
        }
    ),
]
"""A checkpoint handed to an attempt: the contract's pair, with what the resource says of it."""
