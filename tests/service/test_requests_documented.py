"""The OpenAPI document refers to nothing that it does not describe."""

from __future__ import annotations

import json
import re

from ranktrial.service import create_app


def test_every_reference_leads_somewhere() -> None:
    document = create_app("not-opened.db").openapi()
    referred = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    assert referred
    assert referred <= document["components"]["schemas"].keys()


def test_an_answer_by_a_metric_has_the_roles_that_there_are_and_numbers_that_may_be_unknown() -> None:
    described = create_app("not-opened.db").openapi()["components"]["schemas"]["MetricAnswer"]["properties"]
    assert described["role"]["enum"] == ["primary", "secondary", "guard"]
    assert described["value"]["type"] == ["number", "null"]
