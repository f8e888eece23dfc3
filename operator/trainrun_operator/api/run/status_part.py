"""What all parts of a status share.

Layer: api.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import ConfigDict, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from trainrun_operator.api.descriptions import describe


class StatusPart:
    """A part of the status: camelCase outside; what only a newer operator knows is skipped."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        extra="ignore",
        alias_generator=to_camel,
        populate_by_name=True,
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Write what stands below the fields into the schema."""
        return cls.described(handler(schema), handler)

    @classmethod
    def described(cls, schema: JsonSchemaValue, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The schema with what stands below the fields."""
        names = {name: to_camel(name) for name in getattr(cls, "__dataclass_fields__", {})}
        return describe(cls, names, schema, handler)
