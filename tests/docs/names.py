"""Whether what a document names is there: fields, commands, names of the library."""

from __future__ import annotations

from pydantic import BaseModel

import trainrun
from trainrun_operator.cli.commands import trainrun as command


def is_field(path: str, model: type[BaseModel]) -> bool:
    """Whether a resource with this spec has it."""
    for step in path.split("."):
        by_alias = {field.alias or name: field for name, field in model.model_fields.items()}
        if step not in by_alias:
            return False
        kind = by_alias[step].annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            model = kind
    return True


def is_command(words: list[str]) -> bool:
    """Whether `trainrun` has it, the verb included."""
    found = command
    for word in words:
        found = getattr(found, "commands", {}).get(word)
        if found is None:
            return False
    return True


def is_attribute(path: str) -> bool:
    """Whether `import trainrun` gives it."""
    found: object = trainrun
    for step in path.split("."):
        fields = getattr(found, "__dataclass_fields__", {})
        if not hasattr(found, step) and step not in fields:
            return False
        found = getattr(found, step, None)
    return True
