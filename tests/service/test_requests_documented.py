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
