"""Reader of files with a search in each row: both lists, the ids shown and clicked, as in ``Log.from_records``."""

from __future__ import annotations

import json
from difflib import SequenceMatcher

import duckdb
import numpy as np

from ranktrial.formats.layout import DESIGNS, IMPRESSIONS, quoted
from ranktrial.formats.readers.common import (
    DAY,
    IMPRESSION,
    MICROSECONDS,
    OTHER_NAMES,
    TRIAL,
    Columns,
    common,
    common_problems,
    depth,
    number_units,
    ordered,
)
from ranktrial.formats.tables import identifier
from ranktrial.methods import Method
from ranktrial.rankings import Pair

NEEDED = ("query", "a", "b", "shown", "clicked")
KEYS = (
    *NEEDED,
    "rankings",
    "split",
    "arm",
    "unit",
    "time",
)  # of a row, as of a record of ``Log.from_records``
# Empty they mean: no clicks, A's list or B's, half of the searches each.
MAY_BE_EMPTY = "clicked", "rankings", "split", "arm"
NOTHING = "'', '[]', '0', '0.0', 'false', '{}'"  # SQL of values that say nothing
ALIKE = 0.75  # how like one another two names are of which one may be a misspelt other, from 0 to 1


def read_impressions(columns: Columns, k: int | None, skip: bool, method: Method | None = None) -> tuple[str, int, int]:
    """Read a log of two rankers (both lists, ids shown and clicked) into the tables of impressions and designs.

    What it was made of stays in the table ``draft``, by which events find their search.
    """
    table, db = columns.table, columns.table.connection
    skipped = table.refuse(columns.covariate_problems, skip=skip) if columns.covariate_problems else 0
    page = table.text(columns["impression"]) if columns.has("impression") else "CAST(NULL AS VARCHAR)"
    lists = ", ".join(f"{table.ids(columns[name])} AS {name}" for name in ("a", "b", "shown"))
    arm = f"lower({table.text(columns['arm'])})" if columns.has("arm") else "CAST(NULL AS VARCHAR)"
    split = "CAST(0.5 AS DOUBLE)"
    if columns.has("split"):
        name = columns["split"]
        split = f"CASE WHEN {table.text(name)} IS NULL THEN 0.5 ELSE {table.number(name)} END"
    could = "CAST(NULL AS JSON)"
    if columns.has("rankings"):
        kind, name = table.types[columns["rankings"]], columns["rankings"]
        could = (
            f"TRY_CAST({table.text(name)} AS JSON)" if kind in ("JSON", "VARCHAR") else f"to_json({identifier(name)})"
        )
    clicked = table.text(columns["clicked"])
    no_rankings = (
        f"{could} IS NULL AND {table.text(columns['rankings'])} IS NOT NULL" if columns.has("rankings") else "false"
    )
    db.execute(f"""CREATE TABLE draft AS SELECT line, {page} AS page, {table.text(columns["query"])} AS query, {lists},
        CASE WHEN {clicked} IS NULL THEN CAST([] AS VARCHAR[]) ELSE {table.ids(columns["clicked"])} END AS clicked,
        CASE WHEN {table.ids(columns["clicked"])} IS NULL THEN {clicked} END AS no_list, {no_rankings} AS no_rankings,
        {arm} AS arm, {split} AS split, nullif(CAST({could} AS VARCHAR), 'null') AS rankings,
        {_misspelt(columns)} AS misspelt, {columns.known} AS covariates, {common(columns)} FROM raw""")
    strange = "list_filter(clicked, lambda id: NOT list_contains(shown, id))"
    problems = [("query IS NULL", "'query is missing'")]
    for name in ("a", "b", "shown"):
        problems.append((f"{name} IS NULL", quoted(f'{name} must be a list of ids, such as ["x", "y"] or x|y')))
        problems.append(
            (f"len({name}) <> len(list_distinct({name}))", quoted(f"{name} has an id twice, or an empty one"))
        )
    problems += [
        ("len(shown) = 0", "'shown is empty: a page without results says nothing'"),
        ("split IS NULL OR split <= 0 OR split >= 1", "'split must be a probability of A strictly between 0 and 1'"),
        ("arm IS NOT NULL AND arm NOT IN ('a', 'b')", "'arm is ' || arm || ', must be a or b'"),
        *common_problems(columns),
        *([("unit IS NULL", quoted(f"{columns['unit']} is missing"))] if columns.has("unit") else []),
        ("misspelt IS NOT NULL", "misspelt"),
        (
            "no_list IS NOT NULL",
            f"{quoted(columns['clicked'] + ' is ')} || left(no_list, 60) || ', must be a list of ids'",
        ),
        (
            "len(clicked) <> len(list_filter(clicked, lambda id: id <> ''))",
            quoted(f"{columns['clicked']} has an empty id"),
        ),
        (
            f"len({strange}) > 0",
            f"'clicked ' || {strange}[1] || ' is not among the ' || len(shown) || ' results shown'",
        ),
    ]
    skipped += table.refuse(problems, within="draft", skip=skip)
    deepest = depth(db, table, "len(shown)", k)
    for name in ("a", "b", "shown"):
        db.execute(f"UPDATE draft SET {name} = {name}[1:{deepest}] WHERE len({name}) > {deepest}")
    db.execute("ALTER TABLE draft ADD COLUMN could STRUCT(ids VARCHAR[], p DOUBLE)[]")
    db.execute(f"""UPDATE draft SET could = TRY(list_transform(CAST(rankings AS JSON[]), lambda one: {{
        'ids': CAST(one -> '$[0]' AS VARCHAR[])[1:{deepest}], 'p': CAST(one ->> '$[1]' AS DOUBLE)}}))
        WHERE rankings IS NOT NULL""")
    total = "list_sum(list_transform(could, lambda one: one.p))"
    if method is not None:
        _drawn_by(db, method, deepest)
    skipped += table.refuse(
        [
            (
                "no_rankings OR rankings IS NOT NULL AND (could IS NULL OR len(could) = 0)",
                quoted('rankings must be pairs of ids and probability, such as [[["x", "y"], 0.5], [["y", "x"], 0.5]]'),
            ),
            (
                f"could IS NOT NULL AND coalesce(abs({total} - 1), 1) > 1e-9",
                f"'the probabilities of its rankings sum to ' || coalesce(CAST({total} AS VARCHAR), 'nothing') || ', not to 1'",
            ),
            (
                "could IS NOT NULL AND NOT list_contains(list_transform(could, lambda one: one.ids), shown)",
                quoted(
                    f"shown is none of the rankings that {'could be shown' if method is None else f'{method} could show'}"
                ),
            ),
            (
                "could IS NULL AND shown <> a AND shown <> b",
                f"'shown is neither the first {deepest} of a nor of b, and there are no rankings'",
            ),
            ("could IS NULL AND arm IS NULL AND a = b", "'both lists are the same: arm must say whose was shown'"),
            (
                "could IS NULL AND (arm = 'a' AND shown <> a OR arm = 'b' AND shown <> b)",
                "'arm is ' || arm || ', but shown is not the list of that ranker'",
            ),
        ],
        within="draft",
        skip=skip,
    )
    number_units(db)
    db.execute(f"""CREATE TABLE designs AS
        WITH one AS (SELECT DISTINCT query, a, b, split, rankings, could FROM draft),
        rows AS (SELECT *, CASE WHEN could IS NULL THEN [a, b] ELSE list_transform(could, lambda r: r.ids) END AS tops,
            CASE WHEN could IS NULL THEN [split, 1 - split] ELSE list_transform(could, lambda r: r.p) END AS probabilities
            FROM one),
        every AS (SELECT *, list_concat(a, b, flatten(tops)) AS ids FROM rows),
        named AS (SELECT *, list_filter(ids, lambda id, n: list_position(ids, id) = n) AS documents FROM every)
        SELECT 1 AS version, {_design_id("")} AS design, query, a, b, documents,
            list_transform(documents, lambda id: coalesce(CAST(list_position(a, id) AS INTEGER), 0)) AS rank_a,
            list_transform(documents, lambda id: coalesce(CAST(list_position(b, id) AS INTEGER), 0)) AS rank_b,
            flatten(list_transform(tops, lambda top: list_transform(range(1, {deepest + 1}),
                lambda r: coalesce(CAST(list_position(documents, top[r]) AS INTEGER), 0)))) AS rankings,
            probabilities, could IS NULL AS plain FROM named""")
    db.execute(f"""CREATE TABLE impressions AS SELECT 1 AS version, {DAY} AS day, {MICROSECONDS} AS time,
        {IMPRESSION} AS impression, u.number AS unit, d.query, {_design_id("d.")} AS design,
        CASE WHEN could IS NOT NULL THEN list_position(list_transform(could, lambda one: one.ids), shown) - 1
            WHEN arm = 'b' OR shown <> a THEN 1 ELSE 0 END AS place,
        CASE WHEN could IS NULL THEN CASE WHEN arm = 'b' OR shown <> a THEN 'b' ELSE 'a' END END AS arm, shown,
        list_transform(shown, lambda id: CAST(list_contains(clicked, id) AS INTEGER)) AS clicked, segment, covariates,
        period FROM draft d JOIN units u USING (line)""")
    ordered(db, "impressions", IMPRESSIONS | columns.kept)
    ordered(db, "designs", DESIGNS)
    return TRIAL, deepest, skipped


def _misspelt(columns: Columns) -> str:
    """SQL of the refusal of a row that lacks a value and has one in a column of nearly that name; null of other rows.

    Columns that are like none of ours are the site's own, and so is one beside ours that is filled.
    """
    table = columns.table
    used = {columns[name] for name in KEYS if columns.has(name)} | set(columns.covariates)
    found = []
    for ours in MAY_BE_EMPTY:
        if not columns.has(ours):
            continue
        name = columns[ours]
        for other in (column for column in table.types if column not in used | {"line"}):
            if _alike(other, name) or _alike(other, ours) or other.lower() in OTHER_NAMES.get(ours, ()):
                given = f"coalesce(lower({table.text(other)}), '') NOT IN ({NOTHING})"
                found.append(
                    f"WHEN {table.text(name)} IS NULL AND {given} THEN {quoted(f'{name} is missing, but {other} is ')} "
                    f"|| left({table.text(other)}, 60) || {quoted(f': must be given as {name}')}"
                )
    return f"CASE {' '.join(found)} END" if found else "CAST(NULL AS VARCHAR)"


def _alike(one: str, other: str) -> bool:
    return SequenceMatcher(None, one.lower(), other.lower()).ratio() >= ALIKE


def _drawn_by(db: duckdb.DuckDBPyConnection, method: Method, k: int) -> None:
    """Fill in the rankings that could have been shown and their probabilities, from the displays of a method."""
    pairs = db.execute("SELECT DISTINCT a, b FROM draft WHERE could IS NULL").fetchall()
    texts = []
    for a, b in pairs:
        pair = Pair.from_lists([a], [b], k)
        mixture = method.displays(pair).mixture
        chances: dict[tuple[int, ...], float] = {}
        for ranking, weight in zip(mixture.rankings.tolist(), mixture.weights.tolist()):
            chances[tuple(ranking)] = chances.get(tuple(ranking), 0.0) + weight
        could = [[[pair.ids[d] for d in ranking if d >= 0], chance] for ranking, chance in chances.items()]
        texts.append(json.dumps(could))
    lists = [[json.dumps(one) for one in column] for column in zip(*pairs)] if pairs else [[], []]
    db.register("drawn", {name: np.array(column, object) for name, column in zip(("a", "b", "told"), (*lists, texts))})
    db.execute("""UPDATE draft SET rankings = told, could = list_transform(CAST(told AS JSON[]), lambda one: {
        'ids': CAST(one -> '$[0]' AS VARCHAR[]), 'p': CAST(one ->> '$[1]' AS DOUBLE)})
        FROM drawn WHERE draft.could IS NULL AND draft.a = CAST(CAST(drawn.a AS JSON) AS VARCHAR[])
        AND draft.b = CAST(CAST(drawn.b AS JSON) AS VARCHAR[])""")
    db.unregister("drawn")


def _design_id(table: str) -> str:
    return (
        f"md5(CAST([[{table}query], {table}a, {table}b, [CAST({table}split AS VARCHAR), {table}rankings]] AS VARCHAR))"
    )
