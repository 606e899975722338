"""Whatever is sent, valid or not, the answer is one that the OpenAPI document announces, and never a fault of ours."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from live_server import PATIENT
from ranktrial.service import create_app
from ranktrial.trial import Trial

FOLDER = tempfile.TemporaryDirectory()
SHOP = "https://shop.example"
APP = create_app(f"{FOLDER.name}/t.db", limits=PATIENT, origins=[SHOP])
# Not from_asgi: a service that starts while tests are collected has threads, and two threads that make syntax trees at the same
# time end Python 3.11 with "AST constructor recursion depth mismatch".
SCHEMA = schemathesis.openapi.from_dict(APP.openapi())
SCHEMA.app = APP
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]


@pytest.fixture(autouse=True, scope="module")
def a_trial() -> None:
    with Trial.create(f"{FOLDER.name}/t.db", "t", k=3, seed=5, background=False):
        pass


@SCHEMA.parametrize()
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_answer_is_announced(case: schemathesis.Case[Any]) -> None:
    name = case.path_parameters.get("name")
    if isinstance(name, str) and len(name) % 2 and case.method != "PUT":
        case.path_parameters["name"] = "t"
    case.call_and_validate(checks=CHECKS, headers={"Origin": SHOP})
