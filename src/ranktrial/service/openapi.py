"""The OpenAPI description of the service, from the models that check and answer requests."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ranktrial.config import TrialConfig
from ranktrial.service.events import UBIEvent
from ranktrial.service.problems import Problem
from ranktrial.service.requests import (
    ActionEvent,
    ClickEvent,
    Erasure,
    Exclusion,
    NewShare,
    RankRequest,
    SeenEvent,
    Stop,
)

REF = "#/components/schemas/{model}"
# Bodies are read by the endpoints themselves, in one step from bytes to a checked object, so FastAPI does not see them.
READ = (RankRequest, ClickEvent, ActionEvent, SeenEvent, UBIEvent, TrialConfig, Exclusion, Erasure, Stop, NewShare)
# In these a number that is not known yet is null.
OPEN_NUMBERS = (
    "Report",
    "Decision",
    "Guardrail",
    "Forecast",
    "Lift",
    "Pace",
    "Theta",
    "BandPoint",
    "Contributor",
    "Part",
    "Everyone",
    "Interval",
    "EstimateRow",
    "MetricAnswer",
    "Visitors",
)


def body_of(
    models: type[BaseModel] | tuple[type[BaseModel], ...], example: Any, *, required: bool = True
) -> dict[str, Any]:
    """A request body in OpenAPI: one model; or one of several, or a list of them."""
    if isinstance(models, tuple):
        one = {"anyOf": [_ref(model) for model in models]}
        schema: dict[str, Any] = {"anyOf": [{"type": "array", "items": one, "maxItems": 1000}, *one["anyOf"]]}
    else:
        schema = _ref(models)
    content = {"application/json": {"schema": schema, "example": example}}
    return {"requestBody": {"required": required, "content": content}}


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": REF.format(model=model.__name__)}


def documented_schema(app: FastAPI) -> dict[str, Any]:
    """The whole description, made once."""
    if app.openapi_schema is None:
        whole = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        read = models_json_schema([(model, "validation") for model in (*READ, Problem)], ref_template=REF)[1]["$defs"]
        schemas = whole.setdefault("components", {}).setdefault("schemas", {})
        schemas.update(read)
        for name in OPEN_NUMBERS:
            schemas[name] = _nullable(schemas[name])
        whole["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        app.openapi_schema = whole
    return app.openapi_schema


def _nullable(schema: Any) -> Any:
    if isinstance(schema, dict):
        parts = {name: _nullable(part) for name, part in schema.items()}
        return {**parts, "type": ["number", "null"]} if schema.get("type") == "number" else parts
    return [_nullable(part) for part in schema] if isinstance(schema, list) else schema
