"""SQL for the sums behind an estimate, an interval and a fit of position bias, computed where the log is.

Queries are written once, in DuckDB's words, and translated (sqlglot). They use nothing but arithmetic, CASE, joins, GROUP BY,
elements of arrays and one window function. With W_d(r) the weight of a click on document d at rank r (see
``rankings.values``) and one number zh for all relevances, the value of an impression is

    x = zh * shift + hit,    hit = sum of W over its clicks,    shift = sum_d lambda_d - sum_r W_{R_r}(r) theta_r:

shift and W belong to a ranking of a design, so they are worked out there and joined once to each impression; and sums of
products of shift, hit and 1 over units are enough for any zh, which need not be known before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import sqlglot
from sqlglot import expressions as exp

from ranktrial.arrays import FloatArray

DIALECTS = ("duckdb", "postgres", "clickhouse", "bigquery", "snowflake")
FROM_ZERO = ("bigquery", "snowflake")  # dialects whose arrays count from 0
ONCE = "enable_materialized_cte"  # of ClickHouse, where it is new enough
ARMS = ("n_a", "y_a", "n_b", "y_b")  # impressions and clicks of A/B traffic
MOMENTS = ("impressions", "shift", "hit", *ARMS)  # of a unit
SUMS = (
    *MOMENTS, "heavy", "squares", "clicks", "seen", "seen_twice", "for_a", "for_b", "apart", "results_a", "results_b", "plain",
    "clickers",
)  # fmt: skip


def translated(
    query: str, dialect: str, impressions: str = "impressions", designs: str = "designs", *, once: bool = True
) -> str:
    """A query for another engine, with its own names of the two tables (or subqueries in brackets).

    ``once`` is for ClickHouse: whether it knows how to make a table in WITH once for all uses of it.

    >>> print(translated("SELECT ARRAY_LENGTH(a) FROM log_designs AS d WHERE a[n + 1] > CAST(0.5 AS DOUBLE)", "postgres"))
    SELECT ARRAY_LENGTH(a, 1) FROM designs AS d WHERE a[n + 1] > CAST(0.5 AS DOUBLE PRECISION)
    """
    text = query if dialect == "duckdb" else _in_dialect(query, dialect, once)
    text = re.sub(r"\blog_numbers_(\d+)_(\d+)\b", lambda ends: _series(dialect, int(ends[1]), int(ends[2])), text)
    return re.sub(
        r"\blog_(impressions|designs)\b", lambda name: impressions if name[1] == "impressions" else designs, text
    )


def _series(dialect: str, first: int, last: int) -> str:
    """A table of whole numbers n."""
    count = last - first + 1
    return {
        "clickhouse": f"(SELECT toInt32(number) AS n FROM numbers({first}, {count}))",
        "bigquery": f"(SELECT n FROM UNNEST(GENERATE_ARRAY({first}, {last})) AS n)",
        "snowflake": f"(SELECT ROW_NUMBER() OVER (ORDER BY 1) + {first - 1} AS n FROM TABLE(GENERATOR(ROWCOUNT => {count})))",
    }.get(dialect, f"(SELECT generate_series AS n FROM generate_series({first}, {last}))")


def _in_dialect(query: str, dialect: str, once: bool) -> str:
    tree = sqlglot.parse_one(query, read="duckdb")
    if dialect in FROM_ZERO:
        for element in list(tree.find_all(exp.Bracket)):
            (index,) = element.expressions
            if not isinstance(index, exp.Literal):  # sqlglot moves those itself
                element.set("expressions", [exp.Sub(this=exp.paren(index.copy()), expression=exp.Literal.number(1))])
            element.set("offset", 0)
            element.set("safe", True)  # past the end of a page is nothing, and no error
    if dialect == "clickhouse":
        for kind in tree.find_all(exp.DataType):
            kind.set("nullable", False)
        for table in tree.find_all(exp.CTE):
            table.set("materialized", once or None)
        for select in tree.find_all(exp.Select):  # it would call a column "d.design" where two tables have one
            named = [
                exp.alias_(one, one.name) if isinstance(one, exp.Column) and one.table else one
                for one in select.expressions
            ]
            select.set("expressions", named)
        # It reads a name as an alias of the same select, and else makes a table in WITH anew for every use of it.
        uses = f"{ONCE} = 1" if once else "query_plan_max_optimizations_to_apply = 1000000"
        return f"{tree.sql(dialect=dialect)} SETTINGS prefer_column_name_to_alias = 1, {uses}"
    return tree.sql(dialect=dialect)


@dataclass(frozen=True)
class Sums:
    """The queries of one version of a log, which is in tables ``log_impressions`` and ``log_designs``.

    Attributes:
        version: Of the configuration.
        k: Ranks that count.
        rankings: The most that any design has.
        documents: The most candidates that any design has.
    """

    version: int
    k: int = 1
    rankings: int = 1
    documents: int = 1

    @property
    def sizes(self) -> str:
        """The query for k, rankings and documents."""
        return (
            "SELECT max(ARRAY_LENGTH(rankings) / ARRAY_LENGTH(probabilities)) AS k, "
            "max(ARRAY_LENGTH(probabilities)) AS most_rankings, max(ARRAY_LENGTH(documents)) AS most_documents "
            f"FROM log_designs AS d WHERE version = {self.version}"
        )

    def _log(self) -> str:
        return f"(SELECT * FROM log_impressions AS l WHERE version = {self.version})"

    def _each(self, term: str, between: str = ", ") -> str:
        """A term for every rank r."""
        return between.join(term.format(r=r) for r in range(1, self.k + 1))

    def _at(self, rank: str, term: str) -> str:
        """The term of one rank, nothing at rank 0."""
        return f"CASE {rank} {self._each(f'WHEN {{r}} THEN {term}', ' ')} ELSE {_double(0.0)} END"

    def _cells(self, *, drawn: bool = False) -> list[str]:
        """SQL tables of documents by rank of each ranking (``display``) and of candidates (``item``), both numbered.

        Joins are on single numbers: planners take conditions on several columns for rare, and then loop over all pairs.
        ``drawn`` leaves out designs without impressions.
        """
        k, used = self.k, f"SELECT design FROM log_impressions AS l WHERE version = {self.version}"
        return [
            f"""design AS (SELECT design, query, documents, rank_a, rank_b, rankings, probabilities,
                row_number() OVER (ORDER BY design) - 1 AS number
                FROM log_designs AS d WHERE version = {self.version}{f" AND design IN ({used})" if drawn else ""})""",
            _numbers("ranked", "r", 1, k),
            _numbers("placed", "place", 0, self.rankings - 1),
            _numbers("slotted", "slot", 1, self.documents),
            f"""cell AS (SELECT d.number AS number, d.number * {self.rankings} + p.place AS display, r.r AS r,
                d.number * {self.documents} + d.rankings[p.place * {k} + r.r] AS item,
                d.probabilities[p.place + 1] AS probability FROM design AS d CROSS JOIN placed AS p CROSS JOIN ranked AS r
                WHERE p.place < ARRAY_LENGTH(d.probabilities) AND d.rankings[p.place * {k} + r.r] > 0)""",
            f"""candidate AS (SELECT d.number AS number, d.number * {self.documents} + s.slot AS item, d.query,
                d.documents[s.slot] AS document, d.rank_a[s.slot] AS rank_a, d.rank_b[s.slot] AS rank_b
                FROM design AS d CROSS JOIN slotted AS s WHERE s.slot <= ARRAY_LENGTH(d.documents))""",
        ]

    def _weights(self, thetas: Sequence[FloatArray], *, both: bool = False) -> list[str]:
        """The weight of a click on each candidate, and what it adds to Delta, for each of several thetas (numbered t).

        With ``both`` it adds to the clicks of pages that are half A's and half B's instead of to what A has more than B.
        """
        zero = _double(0.0)
        rows = []
        for t, theta in enumerate(thetas):
            told = ", ".join(f"{_double(value)} AS theta{r}" for r, value in enumerate(theta.tolist(), 1))
            rows.append(f"SELECT {t} AS t, {told}")
        placement = self._each(f"sum(CASE WHEN r = {{r}} THEN probability ELSE {zero} END) AS p{{r}}")
        rho = self._each(f"coalesce(p.p{{r}}, {zero}) * b.theta{{r}}", " + ")
        in_a, in_b = (self._at(f"c.rank_{side}", "b.theta{r}") for side in "ab")
        lam = f"({in_a} + {in_b}) / 2" if both else f"{in_a} - {in_b}"
        return [
            f"bias AS ({' UNION ALL '.join(rows)})",
            f"placement AS (SELECT item, {placement} FROM cell GROUP BY item)",
            f"""exposed AS (SELECT b.t AS t, c.number AS number, c.item AS item, {lam} AS lam, {rho} AS rho,
                abs({in_a} - {in_b}) AS away, {in_a} + {in_b} AS total
                FROM candidate AS c LEFT JOIN placement AS p ON p.item = c.item CROSS JOIN bias AS b)""",
            f"""weight AS (SELECT t, number, item, away, total, CASE WHEN rho > 0 THEN lam / rho ELSE {zero} END AS w,
                CASE WHEN rho > 0 THEN lam ELSE {zero} END AS lam,
                CASE WHEN lam <> 0 AND NOT rho > 0 THEN 1 ELSE 0 END AS unseen FROM exposed AS e)""",
            """listed AS (SELECT t, number, sum(lam) AS lam, sum(away) AS away, sum(total) AS total
                FROM weight GROUP BY t, number)""",
        ]

    def _displays(self, theta: FloatArray, both: bool) -> list[str]:
        """SQL tables of each ranking: its shift, the weight of a click at each rank, its examinations, its results.

        ``for_a`` and ``for_b`` are what clicks on all results that count for one ranker add; ``apart`` is the exposure
        disagreement of the two lists.
        """
        zero = _double(0.0)
        by_rank = self._each(f"sum(CASE WHEN c.r = {{r}} THEN w.w ELSE {zero} END) AS w{{r}}")
        for_a, for_b = (f"sum(greatest({sign}w.w, {zero}))" for sign in ("", "-"))
        return [
            *self._cells(),
            *self._weights([theta], both=both),
            f"""valued AS (SELECT c.number AS number, c.display AS display, {by_rank}, {_count()} AS results,
                {for_a} AS for_a, {for_b} AS for_b, sum({self._at("c.r", "b.theta{r}")}) AS seen,
                sum({self._at("c.r", "b.theta{r} * b.theta{r}")}) AS seen_twice
                FROM cell AS c JOIN weight AS w ON w.item = c.item CROSS JOIN bias AS b GROUP BY c.number, c.display)""",
            f"""display AS (SELECT d.design AS design, v.display - v.number * {self.rankings} AS place, v.seen, v.seen_twice,
                v.results, v.for_a, v.for_b, CASE WHEN a.total > 0 THEN a.away / a.total ELSE {zero} END AS apart,
                a.lam - ({self._each("v.w{r} * b.theta{r}", " + ")}) AS shift, {self._each("v.w{r} AS w{r}")}
                FROM valued AS v JOIN design AS d ON d.number = v.number JOIN listed AS a ON a.number = v.number
                CROSS JOIN bias AS b)""",
        ]

    def _clicks(self, term: str = "d.w{r}") -> str:
        """The sum of a term over the clicked ranks of an impression l."""
        return self._each(f"CASE WHEN l.clicked[{{r}}] = 1 THEN {term} ELSE {_double(0.0)} END", " + ")

    def moments(self, theta: FloatArray, *, folds: int, both: bool = False) -> str:
        """SQL of the sums of each fold of units, in the order in which they first came: ``SUMS``, and products of ``MOMENTS``.

        ``both`` is for the clicks of pages that are half A's and half B's.
        """
        products = (f"sum({one} * {two}) AS {one}_{two}" for at, one in enumerate(MOMENTS) for two in MOMENTS[at:])
        added = ", ".join(f"sum({name}) AS {name}" for name in ("seen", "seen_twice", "for_a", "for_b", "apart"))
        ctes = [
            *self._displays(theta, both),
            f"""unit_sum AS (SELECT l.unit, {_count()} AS impressions, sum(d.shift) AS shift, sum({self._clicks()}) AS hit,
                sum({self._clicks("abs(d.w{r})")}) AS heavy, sum({self._clicks("d.w{r} * d.w{r}")}) AS squares,
                sum({self._clicks(_double(1.0))}) AS clicks, {added}, {self._arms()}, {self._arms("results", "d.results")},
                min(l.time) AS began, min(l.impression) AS foremost
                FROM {self._log()} AS l JOIN display AS d ON d.design = l.design AND d.place = l.place GROUP BY l.unit)""",
            f"""numbered AS (SELECT *, (row_number() OVER (ORDER BY began, foremost) - 1) % {folds} AS fold,
                CASE WHEN n_a + n_b > 0 THEN 1 ELSE 0 END AS plain, CASE WHEN heavy > 0 THEN 1 ELSE 0 END AS clickers
                FROM unit_sum)""",
        ]
        sums = ", ".join(f"{_double_of(f'sum({name})')} AS {name}" for name in SUMS)
        return _with(
            ctes,
            f"SELECT fold, {_count()} AS units, {sums}, {', '.join(products)} FROM numbered GROUP BY fold ORDER BY fold",
        )

    def largest(self, theta: FloatArray, *, both: bool = False) -> str:
        """The largest weight that a click can have, and how many candidates that matter cannot be seen, with one of them."""
        return _with(
            [*self._cells(drawn=True), *self._weights([theta], both=both)],
            f"""SELECT max(abs(w.w)) AS largest, {_double_of("sum(w.unseen)")} AS unseen,
            min(CASE WHEN w.unseen = 1 THEN c.query END) AS query, min(CASE WHEN w.unseen = 1 THEN c.document END) AS document
            FROM weight AS w JOIN candidate AS c ON c.item = w.item""",
        )

    def _tally(self, groups: int, predictions: Sequence[float] = ()) -> list[str]:
        """Impressions and clicks of each ranking by group of units, in one pass over the log; and impressions of each design.

        With ``predictions``, one for each fold of ``moments``, impressions count as often as that of their fold says (``nz``).
        """
        clicks = self._each(f"{_double_of('sum(CASE WHEN l.clicked[{r}] = 1 THEN 1 ELSE 0 END)')} AS c{{r}}")
        group, ctes, nz, joined = _group("l.unit", groups), [], _double(0.0), ""
        if predictions:
            ctes = [
                f"""fold AS (SELECT unit, (row_number() OVER (ORDER BY began, foremost) - 1) % {len(predictions)} AS fold FROM (
                SELECT unit, min(time) AS began, min(impression) AS foremost FROM {self._log()} AS l GROUP BY unit) AS u)"""
            ]
            cases = " ".join(f"WHEN {fold} THEN {_double(prediction)}" for fold, prediction in enumerate(predictions))
            nz, joined = f"sum(CASE f.fold {cases} END)", " JOIN fold AS f ON f.unit = l.unit"
        return [
            *ctes,
            f"""summed AS (SELECT l.design, l.place, {group} AS grp, {_count()} AS n, {nz} AS nz, {clicks}
                FROM {self._log()} AS l{joined} GROUP BY l.design, l.place, {group})""",
            f"""tally AS (SELECT d.number AS number, d.number * {self.rankings} + l.place AS display, l.grp, l.n, l.nz,
                {self._each("l.c{r} AS c{r}")} FROM summed AS l JOIN design AS d ON d.design = l.design)""",
            "times AS (SELECT number, grp, sum(n) AS n, sum(nz) AS nz FROM tally GROUP BY number, grp)",
        ]

    def counts(self, groups: int) -> str:
        """Shows, clicks and expected shows of each candidate that was ever clicked, by rank and group of units.

        A candidate is a document of one design: what was learnt between two designs sorts documents by their luck, so nothing
        is compared across them.
        """
        zero = _double(0.0)
        ctes = [
            *self._cells(),
            *self._tally(groups),
            f"""stood AS (SELECT c.item AS item, c.r AS r, t.grp AS grp, sum(t.n) AS shown,
                sum({self._at("c.r", "t.c{r}")}) AS clicked
                FROM tally AS t JOIN cell AS c ON c.display = t.display GROUP BY c.item, c.r, t.grp)""",
            "placement AS (SELECT number, item, r, sum(probability) AS p FROM cell GROUP BY number, item, r)",
            "ever AS (SELECT DISTINCT item FROM stood WHERE clicked > 0)",
            """used AS (SELECT c.item AS item, row_number() OVER (ORDER BY c.item) - 1 AS candidate,
                dense_rank() OVER (ORDER BY c.query) - 1 AS query FROM candidate AS c JOIN ever AS e ON e.item = c.item)""",
            f"""both_ways AS (SELECT item, r, grp, shown, clicked, {zero} AS expected FROM stood UNION ALL
                SELECT p.item AS item, p.r AS r, t.grp AS grp, {zero} AS shown, {zero} AS clicked, p.p * t.n AS expected
                FROM placement AS p JOIN times AS t ON t.number = p.number)""",
        ]
        return _with(
            ctes,
            """SELECT a.candidate AS candidate, max(a.query) AS query, s.r AS r, s.grp AS grp, sum(s.shown) AS shown,
            sum(s.clicked) AS clicked, sum(s.expected) AS expected
            FROM both_ways AS s JOIN used AS a ON a.item = s.item GROUP BY a.candidate, s.r, s.grp""",
        )

    def replicates(self, thetas: Sequence[FloatArray], groups: int, predictions: Sequence[float]) -> str:
        """Impressions and sums of x: of the whole log (grp -1) with each theta, of each group with theta 0 and group + 1.

        ``thetas`` are that of the whole log and those without each group; ``predictions`` those of each fold. What is linear in
        impressions and clicks needs no impression: candidates and ranks are enough.
        """
        many, zero = len(thetas), _double(0.0)
        ranks = self._each("z{r}") + ", " + self._each("c{r}")
        added = ", ".join(f"sum({name.strip()}) AS {name.strip()}" for name in ranks.split(","))
        own = "CROSS JOIN (SELECT 0 AS refitted UNION ALL SELECT 1 AS refitted) AS m"  # theta as it is, and without the group
        surprise = self._each("w.w * (s.c{r} - b.theta{r} * s.z{r})", " + ")
        ctes = [
            *self._cells(),
            *self._weights(thetas),
            *self._tally(groups, predictions),
            f"""stood AS (SELECT c.item AS item, t.grp AS grp,
                {self._each(f"sum(CASE WHEN c.r = {{r}} THEN t.nz ELSE {zero} END) AS z{{r}}")},
                {self._each(f"sum(CASE WHEN c.r = {{r}} THEN t.c{{r}} ELSE {zero} END) AS c{{r}}")}
                FROM tally AS t JOIN cell AS c ON c.display = t.display GROUP BY c.item, t.grp)""",
            f"""piece AS (SELECT s.item AS item, s.grp AS grp, m.refitted * (s.grp + 1) AS t, {ranks} FROM stood AS s {own}
                UNION ALL SELECT s.item AS item, -1 AS grp, b.t AS t, {ranks}
                FROM (SELECT item, {added} FROM stood GROUP BY item) AS s CROSS JOIN bias AS b)""",
            f"""part AS (SELECT s.number AS number, s.grp AS grp, m.refitted * (s.grp + 1) AS t, s.n AS n, s.nz AS nz
                FROM times AS s {own} UNION ALL SELECT s.number AS number, -1 AS grp, b.t AS t, s.n AS n, s.nz AS nz
                FROM (SELECT number, sum(n) AS n, sum(nz) AS nz FROM times GROUP BY number) AS s CROSS JOIN bias AS b)""",
        ]
        return _with(
            ctes,
            f"""SELECT t, grp, sum(n) AS n, sum(x) AS x FROM (
            SELECT s.t AS t, s.grp AS grp, {zero} AS n, sum({surprise}) AS x FROM piece AS s
            JOIN weight AS w ON w.item * {many} + w.t = s.item * {many} + s.t JOIN bias AS b ON b.t = s.t GROUP BY s.t, s.grp
            UNION ALL SELECT s.t AS t, s.grp AS grp, sum(s.n) AS n, sum(a.lam * s.nz) AS x FROM part AS s
            JOIN listed AS a ON a.number * {many} + a.t = s.number * {many} + s.t GROUP BY s.t, s.grp) AS u GROUP BY t, grp""",
        )

    def group_sizes(self, groups: int) -> str:
        """Impressions of each group of units, and those and clicks of A/B traffic."""
        group = _group("l.unit", groups)
        return f"SELECT {group} AS grp, {_count()} AS n, {self._arms()} FROM {self._log()} AS l GROUP BY {group}"

    def _arms(self, *named: str) -> str:
        """Impressions and clicks of A/B traffic, or one named number of a page, added up over impressions l."""
        clicks = " + ".join(f"CASE WHEN l.clicked[{r}] = 1 THEN 1 ELSE 0 END" for r in range(1, self.k + 1))
        columns = [named] if named else [("n", "1"), ("y", f"({clicks})")]
        sums = [
            (f"sum(CASE WHEN l.arm = '{arm}' THEN {what} ELSE 0 END)", f"{name}_{arm}")
            for arm in "ab"
            for name, what in columns
        ]
        return ", ".join(f"{_double_of(total)} AS {name}" for total, name in sums)


def _with(ctes: Sequence[str], select: str) -> str:
    return f"WITH {', '.join(ctes)} {select}"


def _numbers(table: str, column: str, first: int, last: int) -> str:
    return f"{table} AS (SELECT g.n AS {column} FROM log_numbers_{first}_{last} AS g)"


def _double(value: float) -> str:
    return f"CAST({np.float64(value)!s} AS DOUBLE)" if value >= 0 else f"-CAST({-np.float64(value)!s} AS DOUBLE)"


def _double_of(expression: str) -> str:
    return f"CAST({expression} AS DOUBLE)"


def _count() -> str:
    return _double_of("count(*)")


def _group(unit: str, groups: int) -> str:
    """The number of a unit, read as one without sign, modulo the number of groups: as ``Log.parts`` has it."""
    more = groups + 2**64 % groups
    return f"(CASE WHEN {unit} < 0 THEN ({unit} % {groups} + {more}) % {groups} ELSE {unit} % {groups} END)"
