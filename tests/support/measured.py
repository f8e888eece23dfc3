"""Which tests measure coverage: those that stand beside what has to be covered whole.

A tracer doubles the time of all others (Python 3.11 has no cheaper way). So it is asked as well
that tests of their own cover the core and the API, and not lives that pass by.
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let no tracer look at a test of another folder, nor at the threads that it starts."""
    trace, in_threads = sys.gettrace(), threading.gettrace()
    if trace is None or MEASURED & set(item.path.relative_to(item.config.rootpath).parts[1:2]):
        return (yield)
    sys.settrace(None)
    threading.settrace(None)  # type: ignore[arg-type]  # typeshed knows no None
    try:
        return (yield)
    finally:
        sys.settrace(trace)
        threading.settrace(in_threads)  # type: ignore[arg-type]
