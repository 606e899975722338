"""The live trial over HTTP (extra ``serve``): ``create_app`` makes the application, ``ranktrial serve`` runs it."""

from ranktrial import extras

if refusal := extras.missing("serve", "the service"):
    raise refusal

from ranktrial.service.app import create_app
from ranktrial.service.limits import Limits

__all__ = ["Limits", "create_app"]
