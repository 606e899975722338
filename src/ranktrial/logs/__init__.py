"""Logs: export to Parquet, estimates where the data is, other people's logs, what is wrong with a log."""

from ranktrial import extras

if refusal := extras.missing("logs", "ranktrial.logs"):
    raise refusal

from ranktrial.logs.bias import DocumentCounts, held_out, position_bias, predict
from ranktrial.logs.database import SQLLog
from ranktrial.logs.doctor import examine
from ranktrial.logs.estimating import SummedEstimate, estimate_sums, fit_bias
from ranktrial.logs.exporting import Exported, export
from ranktrial.logs.formats import LogSource, read_source, save
from ranktrial.logs.item_level import estimate_items
from ranktrial.logs.layout import LogFolder, create_tables
from ranktrial.logs.loading import load_postgres
from ranktrial.logs.reading import read_folder, read_log

__all__ = [
    "DocumentCounts",
    "Exported",
    "LogFolder",
    "LogSource",
    "SQLLog",
    "SummedEstimate",
    "create_tables",
    "estimate_items",
    "estimate_sums",
    "examine",
    "export",
    "fit_bias",
    "held_out",
    "load_postgres",
    "position_bias",
    "predict",
    "read_folder",
    "read_log",
    "read_source",
    "save",
]
