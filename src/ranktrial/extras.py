"""Optional dependencies (extras), and the error that says how to install a missing one."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

MODULES = {
    "serve": ("fastapi", "uvicorn", "prometheus_client"),
    "postgres": ("psycopg",),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "logs": ("duckdb", "sqlglot"),
    "frames": ("narwhals", "pyarrow", "duckdb", "sqlglot"),
    "charts": ("altair", "vl_convert"),
    "study": ("altair", "vl_convert", "duckdb", "sqlglot", "scipy"),
    "cluster": ("distributed",),
}


class MissingExtra(ImportError):  # noqa: N818 (reads as what it says)
    """Error for a missing optional dependency; its message names the extra of ranktrial that installs it."""


def missing(extra: str, what: str, needed: Sequence[str] | None = None) -> MissingExtra | None:
    """The refusal to raise where packages of an extra are not installed.

    Args:
        extra: Its name.
        what: What needs them.
        needed: Those that it needs, all of the extra's by default.
    """
    names = [name for name in needed or MODULES[extra] if not _is_there(name)]
    return MissingExtra(f"{what} needs {', '.join(names)}: pip install 'ranktrial[{extra}]'") if names else None


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # nor is the package that it is in
        return False
