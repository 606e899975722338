"""Base class and field types of all schemas of a trial: ids, times, and limits of lengths."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from ranktrial.texts import json_values
from ranktrial.times import LATEST, seconds, span

LONGEST_TEXT = 1000  # characters of a document's id, and of a query or a unit that comes in over HTTP
LONGEST_LIST = 1000  # ids of one ranker that come in over HTTP
Id = Annotated[str, Field(max_length=LONGEST_TEXT)] | Annotated[int, Field(ge=-(2**63), lt=2**63, strict=True)]

Moment = Annotated[
    float,
    BeforeValidator(partial(seconds, "it")),
    WithJsonSchema(
        {
            "anyOf": [{"type": "number", "exclusiveMaximum": LATEST}, {"type": "string", "format": "date-time"}],
            "description": "Seconds since 1970, not milliseconds; or a date and time, UTC unless it says otherwise.",
        }
    ),
]

Span = Annotated[
    float,
    BeforeValidator(partial(span, "it")),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "exclusiveMaximum": LATEST},
                {"type": "string", "pattern": r"^\s*[0-9]+\.?[0-9]*\s*(s|min|h|d|w)\s*$"},
            ],
            "description": "Seconds, or a number and s, min, h, d or w, such as 7d.",
        }
    ),
]


class Frozen(BaseModel):
    """Immutable model that rejects unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not known (infinite, nan) is None."""
        return {name: json_values(value) for name, value in self.model_dump().items()}
