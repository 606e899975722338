"""Incremental export of a trial's log to a folder of Parquet: the rows that are new since the last run, each once.

Rows are those that ``Trial.log`` counts: impressions that are sound and not void, with the clicks that came in time. A click
(or a void) that arrives after its impression was exported changes that row: the file that holds it is written anew. Events,
and clicks with their times, are rows of their own, which find their impression when they are read. Rows pass through a DuckDB
file on disk, so memory does not grow with the log.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ranktrial.config import TrialConfig
from ranktrial.covariates import as_json, unpacked
from ranktrial.formats.layout import DESIGNS, IMPRESSIONS, LogFolder, confine, literal, make_table, open_duckdb, quoted
from ranktrial.log.designs import Design, sound_designs
from ranktrial.metrics import CLICK
from ranktrial.store.base import ClickRow, ConfigVersion, EventRow, ImpressionRow, LogRow, VoidRow
from ranktrial.store.protocols import Store
from ranktrial.trial.history import excluded_units

BLOCK = 20_000  # rows of the store at a time
MEMORY = "1GB"
NOTHING = 255
WAITING = "waiting"  # folder of clicks and voids whose impression is not there (yet)
Progress = Callable[[int], object]


@dataclass(frozen=True)
class Exported:
    """Numbers of rows and files that an export added to a folder.

    Attributes:
        impressions: New rows.
        rewritten: Files written anew, for clicks and voids of impressions that had been exported.
        designs: New designs.
        events: New events; times of clicks are not counted.
        damaged: New impressions that were left out, because what they showed cannot be read.
        waiting: Clicks and voids whose impression is not in the store (yet).
        erased: Impressions of units that were erased from the store since the folder was begun. Those that had been exported
            are still in it.
    """

    impressions: int = 0
    rewritten: int = 0
    designs: int = 0
    events: int = 0
    damaged: int = 0
    waiting: int = 0
    erased: int = 0

    def __add__(self, other: Exported) -> Exported:
        return Exported(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


def export(
    store: Store,
    trial: str,
    folder: str | Path,
    *,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.time,
) -> Exported:
    """Add to a folder what a trial has logged since the last run, all versions.

    A run that is killed leaves the folder as it was, or completes at the next run. The trial may be running; what is stored
    after this began may be left for the next run. ``clock`` tells until when events are known.
    """
    place = LogFolder(folder)
    done = Exported()
    with place.writing():
        state = place.state
        known = state.setdefault("trial", trial)
        if known != trial:
            raise ValueError(f"{folder} holds the log of trial {known!r}, not of {trial!r}: give each trial a folder")
        now = round(clock() * 1e6)
        for version in store.trials.versions(trial):
            with _NewRows(place, version, state) as stage:
                stage.position["read_at"] = now
                stage.read(store, progress)
                done += stage.write()
        gone = sum(row.impressions for row in store.eraser.erasures(trial) if row.earlier_than is None)
        done += Exported(erased=gone - state.setdefault("erased", 0 if state["runs"] else gone))
        state["excluded"] = sorted(excluded_units(store, trial))
        state["runs"] += 1
        place.commit(state)
    return done


class _NewRows:
    """New rows of one version, in a DuckDB file beside the files to be committed."""

    def __init__(self, folder: LogFolder, version: ConfigVersion, state: dict[str, Any]) -> None:
        config = TrialConfig.stored(version.config)
        self.folder, self.version, self.k, self.run = folder, version, config.k, state["runs"] + 1
        self.plain = any(config.comparison.traits.ab_shares)
        about = {"k": config.k, "method": config.method, "impression": 0, "click": 0, "void": 0, "event": 0}
        self.position = state["versions"].setdefault(str(version.number), about)
        self.segments, self.told = config.segmented, cache(self._values)
        self.position["segments"] = dict(self.segments.attributes)
        self.covariates = self.position["covariates"] = list(config.covariates)
        self.file = folder.aside / f"stage-{version.number}.duckdb"
        self.db = open_duckdb(self.file)
        self.db.execute(f"SET memory_limit = {quoted(MEMORY)}; SET preserve_insertion_order = false")
        self.db.execute("SET temp_directory = " + quoted(folder.aside / "spill"))
        confine(self.db, folder.path)
        # Clicks; a document of null says that the impression is void.
        self.db.execute("CREATE TABLE clicks (impression VARCHAR, document VARCHAR)")
        self.db.execute("CREATE VIEW voids AS SELECT impression FROM clicks WHERE document IS NULL")
        self.db.execute("CREATE TABLE late (impression VARCHAR, filename VARCHAR)")
        self.db.execute(
            "CREATE TABLE fresh (id BIGINT, impression VARCHAR, design_id BIGINT, place INTEGER, unit BIGINT, time BIGINT, "
            "segment VARCHAR, covariates VARCHAR)"
        )
        make_table(self.db, "events")
        make_table(self.db, "designs", id="BIGINT")

    def __enter__(self) -> _NewRows:
        return self

    def __exit__(self, *_: object) -> None:
        self.db.close()
        self.file.unlink(missing_ok=True)

    # --- out of the store ---------------------------------------------------------------------------------------------

    def read(self, store: Store, progress: Progress | None) -> None:
        """Clicks and events first: an impression that is stored before them is then never missed."""
        if (waiting := self._waiting).exists():
            table = f"read_parquet({quoted(literal(waiting))})"  # where a path such as a/day=1 adds a column
            self.db.execute(f"INSERT INTO clicks SELECT impression, document FROM {table}")
        for clicks in self._new("click", ClickRow, store):
            in_time = [row for row in clicks if not row.late]
            self._add("clicks", impression=_ids(in_time), document=[row.document for row in in_time])
            self._add_events([(row.key, row.document, CLICK, 0, row.time) for row in in_time if row.time])
        for events in self._new("event", EventRow, store):
            self._add_events([row[1:] for row in events])
        for voids in self._new("void", VoidRow, store):
            self._add("clicks", impression=_ids(voids))
        for rows in self._new("impression", ImpressionRow, store):
            columns = {name: [getattr(row, name) for row in rows] for name in ("id", "place", "unit", "time")}
            if self.segments:
                columns["segment"] = [self.told(row.segment) for row in rows]
            if self.covariates:
                known = unpacked([row.covariates for row in rows], len(self.covariates))
                columns["covariates"] = as_json(self.covariates, known)
            self._add("fresh", impression=_ids(rows), design_id=[row.design for row in rows], **columns)
            self._add_designs(store, {row.design for row in rows})
            if progress is not None:
                progress(len(rows))

    def _new(self, what: str, kind: type[LogRow], store: Store) -> Iterator[list[LogRow]]:
        """Rows of the store since the last run, in blocks."""
        rows = iter(store.rows(kind, self.version.id, self.position[what]))
        while block := list(islice(rows, BLOCK)):
            self.position[what] = block[-1].id
            yield block

    def _add_events(self, rows: list[tuple[Any, ...]]) -> None:
        """Rows of key, document, action, amount and time."""
        if rows:
            key, document, action, amount, moment = map(list, zip(*rows))
            self._add(
                "events", version=[self.version.number] * len(rows), impression=[one.hex() for one in key],
                document=document, action=action, amount=amount, time=moment,
            )  # fmt: skip

    def _values(self, code: int) -> str:
        """Attributes and values that a code stands for, as JSON."""
        return json.dumps(self.segments.decoded(code if code < self.segments.size else 0))

    def _add_designs(self, store: Store, ids: set[int]) -> None:
        """Designs that are not there yet; impressions of unsound ones are counted as damaged."""
        stored = {id for (id,) in self._rows("SELECT id FROM designs WHERE id IN (SELECT unnest(?))", [sorted(ids)])}
        sound = sound_designs(store.designs(sorted(ids - stored)))
        texts = [(id, *map(str, design_columns(design, self.k))) for id, design in sound.items()]
        if texts:
            names = ("id", *(name for name in DESIGNS if name not in ("version", "plain")))
            self._add("designs", **{name: list(column) for name, column in zip(names, zip(*texts))})

    def _add(self, table: str, **columns: list[Any]) -> None:
        """Rows given by column; lists of designs are given as JSON."""
        self.db.register("block", {name: _array(values) for name, values in columns.items()})
        casts = {name: DESIGNS[name][0] for name in columns if table == "designs" and name in DESIGNS}
        values = ", ".join(
            f"CAST(CAST({name} AS JSON) AS {casts[name]}) AS {name}" if casts.get(name, "").endswith("[]") else name
            for name in columns
        )
        self.db.execute(f"INSERT INTO {table} BY NAME SELECT {values} FROM block")
        self.db.unregister("block")

    # --- into the folder ----------------------------------------------------------------------------------------------

    def write(self) -> Exported:
        """Files of the next commit."""
        number, k = self.version.number, self.k
        self.db.execute(f"UPDATE designs SET version = {number}, plain = {str(self.plain).lower()}")
        self.db.execute(
            "CREATE TABLE clicked AS SELECT impression, list(DISTINCT document) AS documents FROM clicks "
            "WHERE document IS NOT NULL GROUP BY impression"
        )
        arm = "CASE len(d.probabilities) - f.place WHEN 2 THEN 'a' WHEN 1 THEN 'b' END" if self.plain else "NULL"
        self.db.execute(f"""
            CREATE VIEW added AS
            SELECT {number} AS version, CAST(make_timestamp(f.time) AS DATE) AS day, f.time, f.impression, f.unit, d.query,
                d.design, f.place, {arm} AS arm,
                list_transform(list_filter(d.rankings[f.place * {k} + 1 : f.place * {k} + {k}], lambda s: s > 0),
                    lambda s: d.documents[s]) AS shown,
                list_transform(shown, lambda id: CAST(coalesce(list_contains(c.documents, id), false) AS INTEGER)) AS clicked,
                f.segment, f.covariates
            FROM fresh f JOIN designs d ON d.id = f.design_id LEFT JOIN clicked c ON c.impression = f.impression
            WHERE f.place >= 0 AND f.place < len(d.probabilities) AND d.probabilities[f.place + 1] > 0
                AND f.impression NOT IN (SELECT impression FROM voids)""")
        aside = self.folder.aside
        name = f"{self.run:06}-{number}"
        added = self._one("SELECT count(*) FROM added")
        if added:
            by_day = f", PARTITION_BY (day), FILENAME_PATTERN '{name}-{{i}}', OVERWRITE_OR_IGNORE"
            self._copy(f"SELECT {', '.join(IMPRESSIONS)} FROM added", aside / "impressions", by_day)
        rewritten = self._rewrite()
        known = f"SELECT design FROM {self.folder.scan('designs')} WHERE version = {number}"
        new = f"""SELECT DISTINCT ON (design) {", ".join(DESIGNS)} FROM designs
            WHERE design IN (SELECT design FROM added) AND design NOT IN ({known})"""
        designs = self._one(f"SELECT count(*) FROM ({new})")
        if designs:
            self._copy(new, aside / "designs" / f"{name}.parquet")
        events = self._one(f"SELECT count(*) FILTER (action <> {quoted(CLICK)}) FROM events")
        if self._one("SELECT count(*) FROM events"):
            self._copy("FROM events", aside / "events" / f"{name}.parquet")
        damaged = self._one(
            "SELECT count(*) FROM fresh WHERE impression NOT IN (SELECT impression FROM added) "
            "AND impression NOT IN (SELECT impression FROM voids)"
        )
        return Exported(added, rewritten, designs, events, damaged, self._keep_waiting())

    def _rewrite(self) -> int:
        """Files with impressions that clicks or voids came for later."""
        if not self._one("SELECT count(*) FROM clicks"):
            return 0
        self.db.execute(
            f"INSERT INTO late SELECT impression, filename FROM {self.folder.scan('impressions', everyone=True)} "
            f"WHERE version = {self.version.number} AND impression IN (SELECT impression FROM clicks)"
        )
        files = [file for (file,) in self._rows("SELECT DISTINCT filename FROM late ORDER BY 1")]
        stay = ", ".join(f"o.{name}" for name in IMPRESSIONS if name not in ("day", "clicked"))
        for file in files:
            rows = f"""SELECT {stay}, list_transform(o.shown, lambda id, n: greatest(o.clicked[n],
                CAST(coalesce(list_contains(c.documents, id), false) AS INTEGER))) AS clicked
                FROM read_parquet({quoted(literal(file))}, hive_partitioning = false) o
                LEFT JOIN clicked c USING (impression) WHERE o.impression NOT IN (SELECT impression FROM voids)"""
            self._copy(rows, self.folder.aside / Path(file).relative_to(self.folder.path))
        return len(files)

    @property
    def _waiting(self) -> Path:
        return self.folder.path / WAITING / f"{self.version.number}.parquet"

    def _keep_waiting(self) -> int:
        """Clicks and voids of impressions that are in no file, for the next run."""
        known = "SELECT impression FROM fresh UNION ALL SELECT impression FROM late"
        rows = f"SELECT DISTINCT * FROM clicks WHERE impression NOT IN ({known})"
        count = self._one(f"SELECT count(*) FROM ({rows})")
        if count or self._waiting.exists():
            self._copy(rows, self.folder.aside / WAITING / self._waiting.name)
        return count

    def _copy(self, rows: str, target: Path, more: str = "") -> None:
        """Write rows as a file of Parquet, or as several with more options."""
        target.parent.mkdir(parents=True, exist_ok=True)
        self.db.execute(f"COPY ({rows}) TO {quoted(target)} (FORMAT parquet, COMPRESSION zstd{more})")

    def _rows(self, statement: str, values: list[Any] | None = None) -> list[Any]:
        return self.db.execute(statement, values or []).fetchall()

    def _one(self, statement: str) -> int:
        return int(self._rows(statement)[0][0])


def design_columns(design: Design, k: int) -> Iterator[Any]:
    """Design, query, a, b, documents, rank_a, rank_b, rankings, probabilities; lists as JSON."""
    documents = design.documents
    yield from (design.digest.hex(), design.query)
    for slots in (design.a, design.b):
        yield json.dumps([documents[slot] for slot in slots[:k].tolist()])
    yield json.dumps(documents)
    for slots in (design.a, design.b):
        rank = dict(zip(slots[:k].tolist(), range(1, k + 1)))
        yield [rank.get(slot, 0) for slot in range(len(documents))]
    table = design.rankings.astype(np.int64)
    yield np.where(table == NOTHING, 0, table + 1).ravel().tolist()
    yield design.weights.tolist()


def _ids(rows: list[Any]) -> list[str]:
    """Ids of the impressions of rows."""
    return [row.key.hex() for row in rows]


def _array(values: list[Any]) -> Any:
    return np.array(values, object if values and isinstance(values[0], str | None) else np.int64)
