"""Middleware of the service, one concern a file: plain ASGI, because every request passes through all of it."""
