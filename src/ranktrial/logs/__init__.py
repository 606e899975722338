"""Logs: export to Parquet, estimates where the data is, other people's logs, what is wrong with a log."""

from ranktrial.logs.estimating import SQLLog, SummedEstimate, estimate_sums, fit_bias
from ranktrial.logs.export import Exported, export
from ranktrial.logs.layout import LogFolder, create_tables
from ranktrial.logs.reading import read_folder

__all__ = [
    "Exported",
    "LogFolder",
    "SQLLog",
    "SummedEstimate",
    "create_tables",
    "estimate_sums",
    "export",
    "fit_bias",
    "read_folder",
]
