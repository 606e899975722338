"""Authorization: the dependency that asks a request for a key with a scope."""

from __future__ import annotations

from fastapi import Request

from ranktrial.live.api_keys import KeyFile, Scope
from ranktrial.live.service.problems import Refusal


class Needs:
    """FastAPI dependency: the request must carry a key with this scope, if the application has keys at all."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    async def __call__(self, request: Request) -> None:
        keys: KeyFile | None = request.app.state.keys
        if keys is None:
            return
        scheme, _, presented = request.headers.get("authorization", "").partition(" ")
        key = keys.recognise(presented.strip()) if scheme.lower() == "bearer" else None
        if key is None:
            raise Refusal(
                401,
                "there is no key that is known: send 'Authorization: Bearer KEY'",
                headers={"WWW-Authenticate": "Bearer"},
            )
        if self.scope not in key.scopes:
            raise Refusal(403, f"key {key.id} may {', '.join(key.scopes)}; this needs {self.scope}")
