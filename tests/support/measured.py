"""Which tests measure coverage: those that stand beside what has to be covered whole.

A tracer doubles the time of all others (Python 3.11 has no cheaper way). So it is asked as well
that tests of their own cover the core and the API, and not lives that pass by, nor examples that
are drawn by chance.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

MEASURED = frozenset({"api", "core"})
"""Folders of `tests`."""
UNMEASURED = frozenset({"hypothesis", "slow"})
"""Marks of tests there that try as much as they can, and cover nothing that others do not."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let no tracer look at a test that is not measured, nor at the threads that it starts."""
    trace, in_threads = sys.gettrace(), threading.gettrace()
    if trace is None or _measured(item):
        return (yield)
    sys.settrace(None)
    threading.settrace(None)  # type: ignore[arg-type]  # typeshed knows no None
    try:
        return (yield)
    finally:
        sys.settrace(trace)
        threading.settrace(in_threads)  # type: ignore[arg-type]


def _measured(item: pytest.Item) -> bool:
    folder = item.path.relative_to(item.config.rootpath).parts[1:2]
    return bool(MEASURED & set(folder)) and not UNMEASURED & {m.name for m in item.iter_markers()}
