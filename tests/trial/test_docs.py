"""Options and bodies in docs/reference/configuration.md and docs/reference/http.md are those of the code."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from ranktrial.config import TrialConfig
from ranktrial.methods import AB, LogOpt, Method
from ranktrial.metrics import Metric
from ranktrial.service.events import UBIEvent
from ranktrial.service.problems import Problem
from ranktrial.service.requests import ActionEvent, ClickEvent, RankRequest, SeenEvent
from ranktrial.service.trials import TrialInfo

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reference"
CONFIGURATION, SERVICE = ((DOCS / page).read_text(encoding="utf-8") for page in ("configuration.md", "http.md"))


def options() -> list[dict[str, Any]]:
    """The tables of options in docs/reference/configuration.md: name and default."""
    tables = re.findall(r"\| option \| default \| \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", CONFIGURATION)
    rows = [re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", table, re.M) for table in tables]
    assert [len(found) for found in rows] == [table.count("\n") for table in tables]
    return [{name: ast.literal_eval(default) for name, default in found} for found in rows]


def defaults(method: Method) -> dict[str, Any]:
    return {f.name: f.default for f in fields(method)}


def test_options_and_their_defaults_are_listed() -> None:
    configuration, metrics, logopt, ab = options()
    listed = {name: field.default for name, field in TrialConfig.model_fields.items()}
    assert configuration == listed | {"rules": {}, "guards": {}, "segments": {}}  # none
    assert metrics == {f.name: f.default for f in fields(Metric)}
    assert logopt == defaults(LogOpt())
    assert ab == defaults(AB())


# By the field that a body begins with.
MODELS: dict[str, type[BaseModel]] = {
    "method": TrialConfig,
    "query": RankRequest,
    "id": ClickEvent,
    "action_name": UBIEvent,
    "type": Problem,
    "name": TrialInfo,
}


def test_bodies_are_valid() -> None:
    printed = [*re.findall(r"```json\n(.*?)```", SERVICE, re.S), *re.findall(r"-d '(.*?)'", SERVICE, re.S)]
    read = [json.loads(text) for text in printed]
    bodies = [body for one in read for body in (one if isinstance(one, list) else [one])]
    assert {next(iter(body)) for body in bodies} == set(MODELS)
    for body in bodies:
        model = MODELS[next(iter(body))]
        if model is ClickEvent:
            model = SeenEvent if "seen" in body else ActionEvent if "action" in body else ClickEvent
        model.model_validate(body)


@pytest.mark.parametrize("text", re.findall(r'`\{"method": "([^"]+)"\}`', SERVICE))
def test_methods_in_the_text_run_live(text: str) -> None:
    assert TrialConfig.model_validate({"method": text}).comparison.traits.runs_live
