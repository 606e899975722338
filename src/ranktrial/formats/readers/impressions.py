"""Reader of files with a search in each row: both lists, the ids shown and clicked, as in ``Log.from_records``."""

from __future__ import annotations

import json
from difflib import SequenceMatcher

import duckdb
import numpy as np

from ranktrial.formats.layout import make_table, quoted
from ranktrial.formats.readers.common import (
    NO_TEXT,
    OTHER_NAMES,
    TRIAL,
    Columns,
    Made,
    covariate_values,
    depth,
    list_problems,
    make_impressions,
)
from ranktrial.methods import Method
from ranktrial.rankings import Pair

NEEDED = ("query", "a", "b", "shown", "clicked")
KEYS = (*NEEDED, "rankings", "split", "arm", "unit", "time")  # of a row, as of a record of ``Log.from_records``
# Empty they mean: no clicks, A's list or B's, half of the searches each.
MAY_BE_EMPTY = "clicked", "rankings", "split", "arm"
NOTHING = "'', '[]', '0', '0.0', 'false', '{}'"  # SQL of values that say nothing
ALIKE = 0.75  # how like one another two names are of which one may be a misspelt other, from 0 to 1
TOPS = "list_transform(could, lambda one: one.ids)"
# SQL of the rankings that could be shown, from pairs of ids and probability in JSON.
COULD = """list_transform(CAST({} AS JSON[]), lambda one: {{
    'ids': CAST(one -> '$[0]' AS VARCHAR[])[1:{}], 'p': CAST(one ->> '$[1]' AS DOUBLE)}})"""


def read_impressions(columns: Columns, k: int | None, skip: bool, method: Method | None = None) -> Made:
    """Read a log of two rankers (both lists, ids shown and clicked) into the tables of impressions and designs.

    What it was made of stays in the table ``draft``, by which events find their search.
    """
    table, db = columns.table, columns.table.connection
    skipped = _draft(columns, skip)
    deepest = depth(db, "len(shown)", k)
    for name in ("a", "b", "shown"):
        db.execute(f"UPDATE draft SET {name} = {name}[1:{deepest}] WHERE len({name}) > {deepest}")
    db.execute(f"""ALTER TABLE draft ADD COLUMN could STRUCT(ids VARCHAR[], p DOUBLE)[];
        UPDATE draft SET could = TRY({COULD.format("rankings", deepest)}) WHERE rankings IS NOT NULL""")
    if method is not None:
        _drawn_by(db, method, deepest)
    total = "list_sum(list_transform(could, lambda one: one.p))"
    pairs = 'rankings must be pairs of ids and probability, such as [[["x", "y"], 0.5], [["y", "x"], 0.5]]'
    possible = "could be shown" if method is None else f"{method} could show"
    problems = {
        "no_rankings OR rankings IS NOT NULL AND (could IS NULL OR len(could) = 0)": quoted(pairs),
        f"could IS NOT NULL AND coalesce(abs({total} - 1), 1) > 1e-9":
            f"'the probabilities of its rankings sum to ' || coalesce(CAST({total} AS VARCHAR), 'nothing') || ', not to 1'",
        f"could IS NOT NULL AND NOT list_contains({TOPS}, shown)": quoted(f"shown is none of the rankings that {possible}"),
        "could IS NULL AND shown <> a AND shown <> b":
            f"'shown is neither the first {deepest} of a nor of b, and there are no rankings'",
        "could IS NULL AND arm IS NULL AND a = b": "'both lists are the same: arm must say whose was shown'",
        "could IS NULL AND (arm = 'a' AND shown <> a OR arm = 'b' AND shown <> b)":
            "'arm is ' || arm || ', but shown is not the list of that ranker'",
    }  # fmt: skip
    skipped += table.refuse(problems, within="draft", skip=skip)
    design = "md5(CAST([[query], a, b, [CAST(split AS VARCHAR), rankings]] AS VARCHAR))"
    ranks = "list_transform(documents, lambda id: coalesce(list_position({}, id), 0)) AS rank_{}"
    make_table(db, "designs", f"""
        WITH one AS (SELECT DISTINCT query, a, b, split, rankings, could FROM draft),
        rows AS (SELECT *, CASE WHEN could IS NULL THEN [a, b] ELSE {TOPS} END AS tops,
            CASE WHEN could IS NULL THEN [split, 1 - split] ELSE list_transform(could, lambda r: r.p) END AS probabilities
            FROM one),
        every AS (SELECT *, list_concat(a, b, flatten(tops)) AS ids FROM rows),
        named AS (SELECT *, list_filter(ids, lambda id, n: list_position(ids, id) = n) AS documents FROM every)
        SELECT 1 AS version, {design} AS design, query, a, b, documents, {ranks.format("a", "a")}, {ranks.format("b", "b")},
            flatten(list_transform(tops, lambda top: list_transform(range(1, {deepest + 1}),
                lambda r: coalesce(list_position(documents, top[r]), 0)))) AS rankings,
            probabilities, could IS NULL AS plain FROM named""")  # fmt: skip
    of_b = "(arm = 'b' OR shown <> a)"
    make_impressions(columns, f"""query, {design} AS design, shown, covariates,
        CASE WHEN could IS NOT NULL THEN list_position({TOPS}, shown) - 1 WHEN {of_b} THEN 1 ELSE 0 END AS place,
        CASE WHEN could IS NULL THEN CASE WHEN {of_b} THEN 'b' ELSE 'a' END END AS arm,
        list_transform(shown, lambda id: CAST(list_contains(clicked, id) AS INTEGER)) AS clicked""")  # fmt: skip
    return Made(TRIAL, deepest, skipped)


def _draft(columns: Columns, skip: bool) -> int:
    """Make the draft of searches; the number of wrong rows that were left out."""
    table, db = columns.table, columns.table.connection
    covariates, problems = covariate_values(columns)
    skipped = table.refuse(problems, skip=skip) if problems else 0
    lists = ", ".join(f"{table.ids(columns[name])} AS {name}" for name in ("a", "b", "shown"))
    split, could, no_rankings = "CAST(0.5 AS DOUBLE)", "CAST(NULL AS JSON)", "false"
    if "split" in columns:
        split = f"CASE WHEN {columns.text('split')} IS NULL THEN 0.5 ELSE {table.number(columns['split'])} END"
    if "rankings" in columns:
        could = table.json(columns["rankings"])
        no_rankings = f"{could} IS NULL AND {columns.text('rankings')} IS NOT NULL"
    clicked, ids = columns.text("clicked"), table.ids(columns["clicked"])
    db.execute(f"""CREATE TABLE draft AS SELECT line, {columns.text("impression")} AS page, {columns.text("query")} AS query,
        {lists}, CASE WHEN {clicked} IS NULL THEN CAST([] AS VARCHAR[]) ELSE {ids} END AS clicked,
        CASE WHEN {ids} IS NULL THEN {clicked} END AS no_list, {no_rankings} AS no_rankings,
        lower({columns.text("arm")}) AS arm, {split} AS split, nullif(CAST({could} AS VARCHAR), 'null') AS rankings,
        {_misspelt(columns)} AS misspelt, {covariates} AS covariates, {columns.common()} FROM raw""")
    strange, name = "list_filter(clicked, lambda id: NOT list_contains(shown, id))", columns["clicked"]
    problems = {
        "query IS NULL": "'query is missing'",
        **list_problems("a", "b", "shown"),
        "len(shown) = 0": "'shown is empty: a page without results says nothing'",
        "split IS NULL OR split <= 0 OR split >= 1": "'split must be a probability of A strictly between 0 and 1'",
        "arm IS NOT NULL AND arm NOT IN ('a', 'b')": "'arm is ' || arm || ', must be a or b'",
        **columns.problems,
    }
    if "unit" in columns:
        problems["unit IS NULL"] = quoted(f"{columns['unit']} is missing")
    problems |= {
        "misspelt IS NOT NULL": "misspelt",
        "no_list IS NOT NULL": f"{quoted(f'{name} is ')} || left(no_list, 60) || ', must be a list of ids'",
        "len(clicked) <> len(list_filter(clicked, lambda id: id <> ''))": quoted(f"{name} has an empty id"),
        f"len({strange}) > 0": f"'clicked ' || {strange}[1] || ' is not among the ' || len(shown) || ' results shown'",
    }
    return skipped + table.refuse(problems, within="draft", skip=skip)


def _misspelt(columns: Columns) -> str:
    """SQL of the refusal of a row that lacks a value and has one in a column of nearly that name; null of other rows.

    Columns that are like none of ours are the site's own, and so is one beside ours that is filled.
    """
    table = columns.table
    used = {columns[name] for name in KEYS if name in columns} | set(columns.covariates) | {"line"}
    found = []
    for ours in (one for one in MAY_BE_EMPTY if one in columns):
        name = columns[ours]
        for other in (column for column in table.types if column not in used):
            alike = max(SequenceMatcher(None, other.lower(), one.lower()).ratio() for one in (name, ours))
            if alike >= ALIKE or other.lower() in OTHER_NAMES.get(ours, ()):
                given = f"coalesce(lower({table.text(other)}), '') NOT IN ({NOTHING})"
                found.append(
                    f"WHEN {table.text(name)} IS NULL AND {given} THEN {quoted(f'{name} is missing, but {other} is ')} "
                    f"|| left({table.text(other)}, 60) || {quoted(f': must be given as {name}')}"
                )
    return f"CASE {' '.join(found)} END" if found else NO_TEXT


def _drawn_by(db: duckdb.DuckDBPyConnection, method: Method, k: int) -> None:
    """Fill in the rankings that could have been shown and their probabilities, from the displays of a method."""
    drawn = []
    for a, b in db.execute("SELECT DISTINCT a, b FROM draft WHERE could IS NULL").fetchall():
        pair = Pair.from_lists([a], [b], k)
        mixture = method.displays(pair).mixture
        chances: dict[tuple[int, ...], float] = {}
        for ranking, weight in zip(mixture.rankings.tolist(), mixture.weights.tolist()):
            chances[tuple(ranking)] = chances.get(tuple(ranking), 0.0) + weight
        could = [[[pair.ids[d] for d in ranking if d >= 0], chance] for ranking, chance in chances.items()]
        drawn.append([json.dumps(one) for one in (a, b, could)])
    columns = np.array(drawn, object).reshape(-1, 3).T
    db.register("drawn", dict(zip(("a", "b", "told"), columns)))
    db.execute(f"""UPDATE draft SET rankings = told, could = {COULD.format("told", k)}
        FROM drawn WHERE draft.could IS NULL AND draft.a = CAST(CAST(drawn.a AS JSON) AS VARCHAR[])
        AND draft.b = CAST(CAST(drawn.b AS JSON) AS VARCHAR[])""")
    db.unregister("drawn")
