"""Packages whose names are loaded at their first use.

Layer: leaf, without `typing`. A script imports trainrun before it knows what it needs, and of a
worker's start most is importing: what an agent may never need must not cost it anything.
"""

from __future__ import annotations

import importlib
import sys

TYPE_CHECKING = False  # as type checkers know it; importing `typing` costs more than all of this
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def names_of(
    package: str, homes: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package; `homes`: its modules and their names.

    No name may be a module's as well: who imports the module would find it under that name.
    """
    module_of = {name: module for module, names in homes.items() for name in names}
    namespace = vars(sys.modules[package])

    def load(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{module_of[name]}"), name)
        namespace[name] = value
        return value

    return load, lambda: sorted({*namespace, *module_of})
