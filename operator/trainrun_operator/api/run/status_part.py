"""What all parts of a status share.

Layer: api, leaf.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel


class StatusPart:
    """A part of the status: camelCase outside; what only a newer operator knows is skipped."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        extra="ignore",
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )
