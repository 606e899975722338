"""SQL that adds up a log where it is: the sums behind an estimate, an interval and a fit of position bias.

Queries are written once, in DuckDB's words, and translated (sqlglot). They use nothing but arithmetic, CASE, joins, GROUP BY,
elements of arrays and one window function. With W_d(r) the weight of a click on document d at rank r (see
``rankings.values``) and one guess zh of all relevances, an impression is worth

    x = zh * shift + hit,    hit = sum of W over its clicks,    shift = sum_d lambda_d - sum_r W_{R_r}(r) theta_r:

shift and W belong to a ranking of a design, so they are worked out there and joined once to each impression; and sums of
products of shift, hit and 1 over units are enough for any guess, which need not be known before.
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
MOMENTS = ("impressions", "shift", "hit")
ARMS = ("n_a", "y_a", "n_b", "y_b")  # impressions and clicks of plain A/B traffic


def translated(query: str, dialect: str, impressions: str = "impressions", designs: str = "designs") -> str:
    """A query for another engine, with its own names of the two tables (or subqueries in brackets).

    >>> print(translated("SELECT ARRAY_LENGTH(a) FROM log_designs AS d WHERE a[n + 1] > CAST(0.5 AS DOUBLE)", "postgres"))
    SELECT ARRAY_LENGTH(a, 1) FROM designs AS d WHERE a[n + 1] > CAST(0.5 AS DOUBLE PRECISION)
    """
    text = query if dialect == "duckdb" else _in_dialect(query, dialect)
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


def _in_dialect(query: str, dialect: str) -> str:
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
        for select in tree.find_all(exp.Select):  # it would call a column "d.design" where two tables have one
            named = [
                exp.alias_(one, one.name) if isinstance(one, exp.Column) and one.table else one
                for one in select.expressions
            ]
            select.set("expressions", named)
    # ClickHouse reads a name as an alias of the same select, and plans every use of a table in WITH anew.
    more = (
        " SETTINGS prefer_column_name_to_alias = 1, query_plan_max_optimizations_to_apply = 1000000"
        if dialect == "clickhouse"
        else ""
    )
    return tree.sql(dialect=dialect) + more


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

    def _cells(self) -> list[str]:
        """What stands where: rankings rank by rank, candidates one by one, P(candidate at rank)."""
        k = self.k
        used = f"SELECT design FROM log_impressions AS l WHERE version = {self.version}"
        return [
            f"design AS (SELECT * FROM log_designs AS d WHERE version = {self.version} AND design IN ({used}))",
            _numbers("ranked", "r", 1, k),
            _numbers("placed", "place", 0, self.rankings - 1),
            _numbers("slotted", "slot", 1, self.documents),
            f"""cell AS (SELECT d.design, p.place, r.r, d.rankings[p.place * {k} + r.r] AS slot,
                d.probabilities[p.place + 1] AS probability FROM design AS d CROSS JOIN placed AS p CROSS JOIN ranked AS r
                WHERE p.place < ARRAY_LENGTH(d.probabilities) AND d.rankings[p.place * {k} + r.r] > 0)""",
            """candidate AS (SELECT d.design, d.lists, d.query, s.slot, d.documents[s.slot] AS document,
                d.rank_a[s.slot] AS rank_a, d.rank_b[s.slot] AS rank_b FROM design AS d CROSS JOIN slotted AS s
                WHERE s.slot <= ARRAY_LENGTH(d.documents))""",
            "placement AS (SELECT design, slot, r, sum(probability) AS p FROM cell GROUP BY design, slot, r)",
        ]

    def _worth(self, thetas: Sequence[FloatArray], guess: float | None, direct: bool) -> list[str]:
        """The weight of a click on each rank of each ranking, and its shift, for each of several thetas (numbered t)."""
        bias, useful = np.concatenate(thetas), np.ones(self.k * len(thetas))
        if guess is not None:
            useful = np.concatenate([(1 - theta.max() * guess) / (1 - theta * guess) for theta in thetas])
        columns = ", ".join(
            f"[{', '.join(map(_double, values.tolist()))}][m.t * {self.k} + r.r] AS {name}"
            for name, values in (("theta", bias), ("useful", useful))
        )
        ctes = [
            _numbers("made", "t", 0, len(thetas) - 1),
            f"bias AS (SELECT m.t, r.r, {columns} FROM made AS m CROSS JOIN ranked AS r)",
        ]
        zero = _double(0.0)
        ctes.append(
            f"""gap AS (SELECT n.t, c.design, c.slot, c.rank_a, c.rank_b,
                coalesce(a.theta, {zero}) - coalesce(b.theta, {zero}) AS lam
                FROM candidate AS c CROSS JOIN made AS n
                LEFT JOIN bias AS a ON a.t = n.t AND a.r = c.rank_a LEFT JOIN bias AS b ON b.t = n.t AND b.r = c.rank_b)"""
        )
        if direct:
            stands = ", ".join(  # at no rank: need not be seen
                f"""CASE WHEN l.rank_{side} = 0 THEN {_double(1.0)}
                ELSE sum(CASE WHEN p.r = l.rank_{side} THEN p.p ELSE {zero} END) END AS at_{side}"""
                for side in "ab"
            )
            seen = f"""SELECT l.t, l.design, l.slot, {stands}
                FROM gap AS l JOIN placement AS p ON p.design = l.design AND p.slot = l.slot
                GROUP BY l.t, l.design, l.slot, l.rank_a, l.rank_b"""
            both = f"CASE WHEN at_a > 0 AND at_b > 0 THEN {_double(1.0)} ELSE {zero} END"
            seen = f"SELECT t, design, slot, at_a, at_b, {both} AS rho FROM ({seen}) AS s"
            matters = "l.rank_a <> l.rank_b"
            weight, also = zero, ", l.rank_a, l.rank_b, coalesce(e.at_a, 0) AS at_a, coalesce(e.at_b, 0) AS at_b"
        else:
            seen = """SELECT b.t, p.design, p.slot, sum(p.p * b.theta * b.useful) AS rho
                FROM placement AS p JOIN bias AS b ON b.r = p.r GROUP BY b.t, p.design, p.slot"""
            matters = "l.lam <> 0"
            weight, also = f"CASE WHEN {matters} AND coalesce(e.rho, 0) > 0 THEN l.lam / e.rho ELSE {zero} END", ""
        ctes.append(f"exposure AS ({seen})")
        ctes.append(
            f"""weight AS (SELECT l.t, l.design, l.slot, {weight} AS w, coalesce(e.rho, 0) AS rho{also},
                CASE WHEN {matters} AND NOT coalesce(e.rho, 0) > 0 THEN 1 ELSE 0 END AS unseen,
                CASE WHEN {matters} AND NOT coalesce(e.rho, 0) > 0 THEN {zero} ELSE l.lam END AS lam
                FROM gap AS l LEFT JOIN exposure AS e ON e.t = l.t AND e.design = l.design AND e.slot = l.slot)"""
        )
        by_rank = ", ".join(
            f"sum(CASE WHEN v.r = {r} THEN v.value ELSE {zero} END) AS w{r}" for r in range(1, self.k + 1)
        )
        ctes += [
            f"""valued AS (SELECT w.t, c.design, c.place, c.r, b.theta, {self._value(direct)} AS value
                FROM cell AS c JOIN bias AS b ON b.r = c.r
                JOIN weight AS w ON w.t = b.t AND w.design = c.design AND w.slot = c.slot)""",
            "listed AS (SELECT t, design, sum(lam) AS lam FROM weight GROUP BY t, design)",
            f"""display AS (SELECT v.t, v.design, v.place, max(a.lam) - sum(v.value * v.theta) AS shift, {by_rank}
                FROM valued AS v JOIN listed AS a ON a.t = v.t AND a.design = v.design GROUP BY v.t, v.design, v.place)""",
        ]
        return ctes

    def _value(self, direct: bool) -> str:
        """The weight of a click on candidate w at rank b.r."""
        if not direct:
            return "w.w * b.useful"
        zero = _double(0.0)
        return f"""CASE WHEN w.rank_a = w.rank_b OR w.rho = 0 THEN {zero} WHEN w.rank_a = b.r THEN 1 / w.at_a
            WHEN w.rank_b = b.r THEN -1 / w.at_b ELSE {zero} END"""

    def _clicks(self, term: str = "d.w{r}") -> str:
        """The sum of a term over the clicked ranks of an impression l."""
        return " + ".join(
            f"CASE WHEN l.clicked[{r}] = 1 THEN {term.format(r=r)} ELSE {_double(0.0)} END"
            for r in range(1, self.k + 1)
        )

    def _fold(self, folds: int) -> str:
        """The fold of each unit, in the order in which they first came."""
        if folds == 1:
            return f"fold AS (SELECT unit, 0 AS fold, count(*) AS n FROM {self._log()} AS l GROUP BY unit)"
        return f"""fold AS (SELECT unit, (row_number() OVER (ORDER BY began, foremost) - 1) % {folds} AS fold FROM (
            SELECT unit, min(time) AS began, min(impression) AS foremost FROM {self._log()} AS l GROUP BY unit) AS u)"""

    def moments(
        self, theta: FloatArray, *, folds: int, guess: float | None = None, direct: bool = False, arms: bool = False
    ) -> str:
        """For each fold of units: how many, and sums over units of products of impressions, shift and hit, and of clicks.

        ``guess`` makes weights rank-aware; ``direct`` those of the direct estimate; ``arms`` adds plain A/B traffic.
        """
        names = (*MOMENTS, *ARMS) if arms else MOMENTS
        sums, products = _sums_and_products(names)
        plain = f", {self._arms()}" if arms else ""
        order = ", min(l.time) AS began, min(l.impression) AS foremost" if folds > 1 else ""
        fold = f"(row_number() OVER (ORDER BY began, foremost) - 1) % {folds}" if folds > 1 else "0"
        ctes = [
            *self._cells(),
            *self._worth([theta], guess, direct),
            f"""unit_sum AS (SELECT l.unit, {_count()} AS impressions, sum(d.shift) AS shift, sum({self._clicks()}) AS hit,
                sum({self._clicks("abs(d.w{r})")}) AS heavy, sum({self._clicks("d.w{r} * d.w{r}")}) AS squares{order}{plain}
                FROM {self._log()} AS l JOIN display AS d ON d.design = l.design AND d.place = l.place GROUP BY l.unit)""",
            f"numbered AS (SELECT *, {fold} AS fold FROM unit_sum)",
        ]
        return _with(
            ctes,
            f"""SELECT fold, {_count()} AS units, {sums}, {products}, sum(heavy) AS heavy, sum(squares) AS squares,
            {_double_of("sum(CASE WHEN heavy > 0 THEN 1 ELSE 0 END)")} AS clickers FROM numbered GROUP BY fold ORDER BY fold""",
        )

    def largest(self, theta: FloatArray, *, guess: float | None = None, direct: bool = False) -> str:
        """The largest weight that a click can have, and how many candidates that matter cannot be seen, with one of them."""
        value = "abs(w)" if not direct else "0"
        ctes = [*self._cells(), *self._worth([theta], guess, direct)]
        biggest = "(SELECT max(abs(value)) FROM valued)" if direct else f"(SELECT max({value}) FROM weight)"
        return _with(
            ctes,
            f"""SELECT {biggest} AS largest, {_double_of("sum(w.unseen)")} AS unseen,
            min(CASE WHEN w.unseen = 1 THEN c.query END) AS query, min(CASE WHEN w.unseen = 1 THEN c.document END) AS document
            FROM weight AS w JOIN candidate AS c ON c.design = w.design AND c.slot = w.slot""",
        )

    def shows(self, folds: int) -> str:
        """How often each rank was shown and clicked, in each fold of units."""
        columns = ", ".join(
            f"{_double_of(f'sum(CASE WHEN ARRAY_LENGTH(l.shown) >= {r} THEN 1 ELSE 0 END)')} AS shown{r}, "
            f"{_double_of(f'sum(CASE WHEN l.clicked[{r}] = 1 THEN 1 ELSE 0 END)')} AS clicked{r}"
            for r in range(1, self.k + 1)
        )
        ctes = [self._fold(folds)]
        return _with(
            ctes,
            f"SELECT f.fold, {_count()} AS impressions, {columns} FROM {self._log()} AS l JOIN fold AS f ON f.unit = l.unit "
            "GROUP BY f.fold ORDER BY f.fold",
        )

    def _tally(self, groups: int, guesses: Sequence[float] | None) -> list[str]:
        """Impressions and clicks of each ranking by group of units; and the same of each candidate and rank.

        With ``guesses``, one for each fold, impressions count as often as their fold's guess says (``nz``).
        """
        clicks = ", ".join(
            f"{_double_of(f'sum(CASE WHEN l.clicked[{r}] = 1 THEN 1 ELSE 0 END)')} AS c{r}"
            for r in range(1, self.k + 1)
        )
        group, ctes, nz, joined = _group("l.unit", groups), [], _double(0.0), ""
        if guesses is not None and len(guesses) == 1:
            nz = f"count(*) * {_double(guesses[0])}"
        elif guesses is not None:
            ctes = [self._fold(len(guesses))]
            cases = " ".join(f"WHEN {fold} THEN {_double(guess)}" for fold, guess in enumerate(guesses))
            nz, joined = f"sum(CASE f.fold {cases} END)", " JOIN fold AS f ON f.unit = l.unit"
        at_rank = " ".join(f"WHEN {r} THEN t.c{r}" for r in range(1, self.k + 1))
        return [
            *ctes,
            f"""tally AS (SELECT l.design, l.place, {group} AS grp, {_count()} AS n, {nz} AS nz, {clicks}
                FROM {self._log()} AS l{joined} GROUP BY l.design, l.place, {group})""",
            f"""stood AS (SELECT c.design, c.slot, c.r, t.grp, sum(t.n) AS shown, sum(t.nz) AS nz,
                sum(CASE c.r {at_rank} END) AS clicked FROM tally AS t
                JOIN cell AS c ON c.design = t.design AND c.place = t.place GROUP BY c.design, c.slot, c.r, t.grp)""",
            "times AS (SELECT design, grp, sum(n) AS n, sum(nz) AS nz FROM tally GROUP BY design, grp)",
        ]

    def counts(self, groups: int) -> str:
        """Shows, clicks and expected shows of each candidate that was ever clicked, by rank and group of units.

        A candidate is a document within one query and pair of lists.
        """
        zero = _double(0.0)
        ctes = [
            *self._cells(),
            *self._tally(groups, None),
            f"""meant AS (SELECT p.design, p.slot, p.r, t.grp, {zero} AS shown, {zero} AS clicked, p.p * t.n AS expected
                FROM placement AS p JOIN times AS t ON t.design = p.design)""",
            """label AS (SELECT design, slot, dense_rank() OVER (ORDER BY lists, document) AS number,
                dense_rank() OVER (ORDER BY query) AS asked FROM candidate)""",
            """ever AS (SELECT DISTINCT a.number FROM stood AS s JOIN label AS a ON a.design = s.design AND a.slot = s.slot
                WHERE s.clicked > 0)""",
            """used AS (SELECT a.design, a.slot, a.number, a.asked FROM label AS a JOIN ever AS e ON e.number = a.number)""",
            f"""both_ways AS (SELECT design, slot, r, grp, shown, clicked, {zero} AS expected FROM stood
                UNION ALL SELECT design, slot, r, grp, shown, clicked, expected FROM meant)""",
        ]
        return _with(
            ctes,
            """SELECT a.number AS candidate, max(a.asked) AS query, s.r AS r, s.grp AS grp, sum(s.shown) AS shown,
            sum(s.clicked) AS clicked, sum(s.expected) AS expected
            FROM both_ways AS s JOIN used AS a ON a.design = s.design AND a.slot = s.slot GROUP BY a.number, s.r, s.grp""",
        )

    def replicates(
        self,
        thetas: Sequence[FloatArray],
        groups: int,
        *,
        guesses: Sequence[float],
        guess: float | None = None,
        direct: bool = False,
    ) -> str:
        """Sums of x for several thetas: of the whole log (grp -1), of group t - 1 with theta number t, of all with theta 0.

        ``thetas`` are that of the whole log and those without each group; ``guesses`` those of each fold. What is linear in
        impressions and clicks needs no impression: candidates and ranks are enough.
        """
        value = self._value(direct)
        ctes = [*self._cells(), *self._worth(thetas, guess, direct), *self._tally(groups, guesses)]
        ctes += [
            """altogether AS (SELECT design, slot, r, sum(nz) AS nz, sum(clicked) AS clicked FROM stood
                GROUP BY design, slot, r)""",
            "everything AS (SELECT design, sum(nz) AS nz FROM times GROUP BY design)",
        ]
        surprise = f"sum(({value}) * (s.clicked - b.theta * s.nz))"
        weighted = "JOIN weight AS w ON w.t = b.t AND w.design = s.design AND w.slot = s.slot"
        parts = [
            f"SELECT w.t AS t, -1 AS grp, {surprise} AS x FROM altogether AS s JOIN bias AS b ON b.r = s.r {weighted} "
            "GROUP BY w.t",
            "SELECT w.t AS t, -1 AS grp, sum(w.lam * s.nz) AS x FROM everything AS s JOIN listed AS w ON w.design = s.design "
            "GROUP BY w.t",
        ]
        for theta in ("0", "s.grp + 1"):  # of the whole log, and the one without this group
            parts += [
                f"SELECT w.t AS t, s.grp AS grp, {surprise} AS x FROM stood AS s JOIN bias AS b ON b.r = s.r AND b.t = {theta} "
                f"{weighted} GROUP BY w.t, s.grp",
                "SELECT w.t AS t, s.grp AS grp, sum(w.lam * s.nz) AS x FROM times AS s JOIN listed AS w "
                f"ON w.design = s.design AND w.t = {theta} GROUP BY w.t, s.grp",
            ]
        return _with(ctes, f"SELECT t, grp, sum(x) AS x FROM ({' UNION ALL '.join(parts)}) AS u GROUP BY t, grp")

    def group_sizes(self, groups: int) -> str:
        """Impressions of each group of units, and those and clicks of plain A/B traffic."""
        group = _group("l.unit", groups)
        return f"SELECT {group} AS grp, {_count()} AS n, {self._arms()} FROM {self._log()} AS l GROUP BY {group}"

    def arms(self) -> str:
        """Sums over units of products of impressions and clicks in A's plain lists and in B's."""
        sums, products = _sums_and_products(ARMS)
        return f"""SELECT {_count()} AS units, {sums}, {products} FROM (
            SELECT l.unit, {self._arms()} FROM {self._log()} AS l WHERE l.arm IS NOT NULL GROUP BY l.unit) AS u"""

    def _arms(self) -> str:
        """Impressions and clicks of plain A/B traffic, added up over impressions l."""
        clicks = " + ".join(f"CASE WHEN l.clicked[{r}] = 1 THEN 1 ELSE 0 END" for r in range(1, self.k + 1))
        return ", ".join(
            f"{_double_of(f'sum(CASE WHEN l.arm = {arm} THEN {what} ELSE 0 END)')} AS {name}_{letter}"
            for arm, letter in (("'a'", "a"), ("'b'", "b"))
            for name, what in (("n", "1"), ("y", f"({clicks})"))
        )


def _sums_and_products(names: Sequence[str]) -> tuple[str, str]:
    """Sums of columns, and of products of any two."""
    products = (f"sum({one} * {two}) AS {one}_{two}" for at, one in enumerate(names) for two in names[at:])
    return ", ".join(f"sum({name}) AS {name}" for name in names), ", ".join(products)


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
