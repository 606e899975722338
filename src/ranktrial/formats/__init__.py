"""Log files and data frames: export to Parquet, estimates in SQL, import of other formats, and diagnosis of a log."""

from ranktrial import extras

if refusal := extras.missing("logs", "ranktrial.formats"):
    raise refusal

from ranktrial.formats.bias import DocumentCounts, held_out, position_bias, predict
from ranktrial.formats.database import SQLLog
from ranktrial.formats.doctor import examine
from ranktrial.formats.estimating import SummedEstimate, estimate_sums, fit_bias
from ranktrial.formats.exporting import Exported, export
from ranktrial.formats.item_level import estimate_items
from ranktrial.formats.layout import LogFolder, create_tables
from ranktrial.formats.loading import load_postgres
from ranktrial.formats.pairs import pair_from_frame
from ranktrial.formats.readers import LogSource, read_source, save
from ranktrial.formats.reading import read_log
from ranktrial.formats.results import to_frame

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
    "pair_from_frame",
    "position_bias",
    "predict",
    "read_log",
    "read_source",
    "save",
    "to_frame",
]
