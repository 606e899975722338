"""What all schemas of a trial share: how they turn to plain values, ids, moments, and the longest texts."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from ranktrial.times import LATEST, seconds

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


class Frozen(BaseModel):
    """A schema that nothing changes and that takes nothing it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not known (infinite, nan) is None."""
        return {name: _plain(value) for name, value in self.model_dump().items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
