"""TREC runs and judgements, read from text files whose errors name the file and the line."""

from __future__ import annotations

from ranktrial.trec.files import FormatError
from ranktrial.trec.qrels import Qrels, read_qrels
from ranktrial.trec.runs import Run, read_run

__all__ = [
    "FormatError",
    "Qrels",
    "Run",
    "read_qrels",
    "read_run",
]
