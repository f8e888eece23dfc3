"""Imported before Lightning: its torchmetrics then leaves out packages that only lie beside it.

A third of the time that each process takes to import Lightning.
"""

from __future__ import annotations

from lightning_utilities.core.imports import RequirementCache

UNNEEDED = ("scipy", "transformers")


def _is_there(self: RequirementCache) -> bool:
    return not str(self.requirement or self.module).startswith(UNNEEDED) and _found(self)


_found = RequirementCache.__bool__
RequirementCache.__bool__ = _is_there
