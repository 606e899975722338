"""A search in each row: both lists, what was shown, what was clicked. A log of two rankers, as in ``Log.from_records``."""

from __future__ import annotations

import json

import duckdb
import numpy as np

from ranktrial.logs.formats.common import (
    DAY,
    IMPRESSION,
    MICROSECONDS,
    TRIAL,
    Columns,
    common,
    common_problems,
    depth,
    number_units,
    ordered,
)
from ranktrial.logs.layout import DESIGNS, IMPRESSIONS, quoted
from ranktrial.logs.tables import identifier
from ranktrial.methods import Method
from ranktrial.rankings import Pair


def read_impressions(columns: Columns, k: int | None, skip: bool, method: Method | None = None) -> tuple[str, int, int]:
    """Both lists, what was shown and what was clicked: the two tables of a log of two rankers."""
    table, db = columns.table, columns.table.connection
    lists = ", ".join(f"{table.ids(columns[name])} AS {name}" for name in ("a", "b", "shown"))
    arm = f"lower({table.text(columns['arm'])})" if columns.has("arm") else "CAST(NULL AS VARCHAR)"
    split = f"coalesce({table.number(columns['split'])}, 0.5)" if columns.has("split") else "CAST(0.5 AS DOUBLE)"
    could = "CAST(NULL AS JSON)"
    if columns.has("rankings"):
        kind, name = table.types[columns["rankings"]], columns["rankings"]
        could = (
            f"TRY_CAST({table.text(name)} AS JSON)" if kind in ("JSON", "VARCHAR") else f"to_json({identifier(name)})"
        )
    db.execute(f"""CREATE TABLE draft AS SELECT line, {table.text(columns["query"])} AS query, {lists},
        coalesce({table.ids(columns["clicked"])}, CAST([] AS VARCHAR[])) AS clicked, {arm} AS arm, {split} AS split,
        nullif(CAST({could} AS VARCHAR), 'null') AS rankings, {common(columns)} FROM raw""")
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
        (
            f"len({strange}) > 0",
            f"'clicked ' || {strange}[1] || ' is not among the ' || len(shown) || ' results shown'",
        ),
    ]
    skipped = table.refuse(problems, within="draft", skip=skip)
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
                "rankings IS NOT NULL AND (could IS NULL OR len(could) = 0)",
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
        named AS (SELECT *, list_distinct(list_concat(a, b, flatten(tops))) AS documents FROM rows)
        SELECT 1 AS version, {_design_id("")} AS design, query, md5(CAST([[query], a, b] AS VARCHAR)) AS lists, a, b, documents,
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
        list_transform(shown, lambda id: CAST(list_contains(clicked, id) AS INTEGER)) AS clicked, period
        FROM draft d JOIN units u USING (line)""")
    ordered(db, "impressions", IMPRESSIONS | columns.kept)
    ordered(db, "designs", DESIGNS)
    return TRIAL, deepest, skipped


def _drawn_by(db: duckdb.DuckDBPyConnection, method: Method, k: int) -> None:
    """What could have been shown and with what probability, where a method's own displays say so."""
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
