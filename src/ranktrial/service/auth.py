"""Authorization: the dependency that asks a request for a key with a scope."""

from __future__ import annotations

from fastapi import Request

from ranktrial.config import LONGEST_NAME
from ranktrial.service.api_keys import SCOPES, ApiKey, Keys, Scope
from ranktrial.service.middleware.same_origin import foreign
from ranktrial.service.problems import Refusal
from ranktrial.texts import shown


class Needs:
    """FastAPI dependency: the request must carry a key with this scope, if the application has keys at all.

    Args:
        scope: What the request is about to do.
        of_all_trials: Whether that concerns all trials at once: then a key for some of them is not enough.
    """

    def __init__(self, scope: Scope, *, of_all_trials: bool = False) -> None:
        self.scope, self._of_all_trials = scope, of_all_trials

    async def __call__(self, request: Request) -> None:
        keys: Keys | None = request.app.state.keys
        noted = request.scope.setdefault("state", {})
        noted["audited"] = self.scope == "admin"
        if keys is None:
            # A browser asks without a key for whichever page tells it to: none of another site may change anything.
            if self.scope == "admin" and foreign(request.scope):
                raise Refusal(403, "the request comes from a page of another site")
            return
        scheme, _, presented = request.headers.get("authorization", "").partition(" ")
        key = keys.recognise(presented.strip()) if scheme.lower() == "bearer" else None
        if key is None:
            raise Refusal(
                401,
                "no valid API key: send 'Authorization: Bearer KEY'",
                headers={"WWW-Authenticate": "Bearer"},
            )
        noted["key"] = key
        if self.scope not in key.scopes:
            raise Refusal(403, f"key {key.id} may {', '.join(key.scopes)}; this needs {self.scope}")
        name = request.path_params.get("name")
        if key.trials and (self._of_all_trials or (name is not None and not key.may_use(name))):
            raise Refusal(403, f"key {key.id} is for {', '.join(key.trials)} only; this is {name or 'of all trials'}")


def may_use(request: Request, trial: str) -> bool:
    """True if the key of a request, which has been checked, may be used for this trial."""
    key: ApiKey | None = request.scope.get("state", {}).get("key")
    return key is None or key.may_use(trial)


def scopes(request: Request) -> list[Scope]:
    """Scopes of the key of a request; all of them if there are no keys."""
    key: ApiKey | None = request.scope["state"].get("key")
    return list(SCOPES if key is None else key.scopes)


def who(request: Request) -> str:
    """Author of a request for a trial's history: id and name of its key."""
    key: ApiKey | None = request.scope["state"].get("key")
    if key is None:
        return "somebody without a key"
    return f"key {key.id} ({shown(key.name, LONGEST_NAME)})" if key.name else f"key {key.id}"
