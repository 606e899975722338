"""Problem documents (RFC 9457): the answer to every error there is."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from ranktrial.service.report_process import ReportFailed
from ranktrial.store.base import Overloaded, StoreError
from ranktrial.texts import shown

LONGEST_PLACE = 120  # characters of method and path that an answer repeats
MEDIA_TYPE = "application/problem+json"
CLIENT_CLOSED_REQUEST = 499  # as nginx has it; nobody reads the answer but metrics and log
log = logging.getLogger("ranktrial.service")
KINDS = {
    400: "not-json",
    401: "no-key",
    403: "not-allowed",
    404: "not-found",
    405: "wrong-method",
    408: "too-slow",
    409: "conflict",
    413: "too-large",
    414: "too-long",
    415: "not-json",
    422: "invalid",
    429: "overloaded",
    500: "fault",
    503: "not-stored",
}


class Flaw(BaseModel):
    """One thing that is wrong with a request."""

    where: str = Field(examples=["a.3"])
    problem: str = Field(examples=["String should have at most 1000 characters"])


class Problem(BaseModel):
    """A problem document.

    Attributes:
        type: Names the kind of problem, for programs.
        title: The same for people.
        status: Of the answer.
        detail: What happened this time.
        errors: What is wrong with the request, if that is the matter.
    """

    type: str = Field(examples=["urn:ranktrial:problem:not-found"])
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["there is no trial 'shoes'"])
    errors: list[Flaw] = []


class Refusal(Exception):  # noqa: N818 (reads as what it says)
    """Ends a request with a problem document, of the usual kind for its status unless another is named."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        errors: Iterable[Flaw] = (),
        kind: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers, self.errors = status, detail, headers, list(errors)
        self.kind = kind or KINDS.get(status, "other")


def try_again(status: int, detail: str) -> Refusal:
    """429 or 503: try again in a second."""
    return Refusal(status, detail, headers={"Retry-After": "1"})


def invalid(problem: ValidationError | RequestValidationError) -> Refusal:
    """400 or 422: what pydantic has to say, in our words."""
    errors: list[Any] = list(problem.errors())
    flaws = [Flaw(where=".".join(map(str, one["loc"])), problem=one["msg"]) for one in errors[:20]]
    if errors and errors[0]["type"] == "json_invalid":
        return Refusal(400, f"the body is not JSON: {errors[0]['msg']}")
    detail = "; ".join(f"{flaw.where}: {flaw.problem}" for flaw in flaws[:3])
    return Refusal(422, f"the request is not valid: {detail}", errors=flaws)


def response(refusal: Refusal) -> Response:
    """The problem document of a refusal."""
    status = refusal.status
    content = {
        "type": f"urn:ranktrial:problem:{refusal.kind}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": refusal.detail,
        "errors": [flaw.model_dump() for flaw in refusal.errors],
    }
    return Response(to_json(content), status, dict(refusal.headers or {}), MEDIA_TYPE)


async def on_problem(request: Request, problem: Exception) -> Response:
    """The answer to an exception: a problem document. What nobody has foreseen is logged with its traceback.

    A client that did not wait for its answer is no fault.
    """
    path = request.scope["path"]
    match problem:
        case Refusal():
            return response(problem)
        case RequestValidationError():
            return response(invalid(problem))
        case HTTPException(status_code=status):
            place = shown(f"{request.method} {path}", LONGEST_PLACE)
            details = {404: f"there is nothing at {place}", 405: f"{place} is not possible"}
            return response(Refusal(status, details.get(status, str(problem.detail)), headers=problem.headers))
        case ReportFailed():
            return response(Refusal(500, f"there is no report: {problem}"))
        case Overloaded():
            return response(try_again(429, str(problem)))
        case StoreError() | TimeoutError():
            return response(try_again(503, f"not stored: {str(problem) or 'the store did not answer in time'}"))
        case ClientDisconnect():
            return Response(status_code=CLIENT_CLOSED_REQUEST)
    log.error("fault", exc_info=problem, extra={"path": shown(path, 200)})
    return response(Refusal(500, "a fault of the service; its log says more"))


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Responses for OpenAPI: problem documents with these statuses."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}
