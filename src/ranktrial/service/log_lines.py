"""Lines of the service's log: JSON for programs, text for people in front of a terminal."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


def details(record: logging.LogRecord) -> dict[str, Any]:
    """Extra fields of a log record, by name."""
    return {name: value for name, value in vars(record).items() if name not in STANDARD}


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object a line: time, level, logger, event, and what belongs to it."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **details(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """Formats a record as a line of text: the time of day, the event, what belongs to it; a traceback below."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s  %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (a name of the standard library)
        told = (f"{name.replace('_', ' ')} {value}" for name, value in details(record).items())
        return "; ".join([super().formatMessage(record), *told])
