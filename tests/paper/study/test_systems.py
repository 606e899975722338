"""Real systems in a study: run files with judgements, or score files beside a data set, instead of trained rankers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest

from ranktrial.paper.data import read_letor, read_scores
from ranktrial.paper.study import PlanError, StudyPlan, read_plan, run_study
from ranktrial.paper.study.systems import pair_of_ranks, ranked_by_runs, ranked_by_scores, system_pairs
from ranktrial.paper.study.tables import COLUMNS
from ranktrial.paper.study.tasks import open_prepared
from ranktrial.rankings import Pair
from ranktrial.trec import read_qrels, read_run
from ranktrial.trec.qrels import zeta_by_grade
from ranktrial.users import position_based, rank_decay

LENGTHS = {"long": 6, "short": 2, "middle": 4}
GRADES = 2


@pytest.fixture
def trec(tmp_path: Path) -> Path:
    """Three run files with lists of 6, 2 and 4 of 9 documents, the short one without query q4; judgements of q0 to q6."""
    rng = np.random.default_rng(3)
    for name, length in LENGTHS.items():
        lines = [
            f"q{query} Q0 d{document} {rank} {-rank} {name}\n"
            for query in range(8)
            if (name, query) != ("short", 4)
            for rank, document in enumerate(rng.permutation(9)[:length], start=1)
        ]
        (tmp_path / f"{name}.run").write_text("".join(lines))
    judged = [f"q{query} 0 d{d} {rng.integers(GRADES + 1)}\n" for query in range(7) for d in range(8)]
    (tmp_path / "judged.qrels").write_text("".join(judged))
    (tmp_path / "plan.toml").write_text(
        "pairs = 10\nlimits = 2\nimpressions = 500\ncheckpoints = 2\nk = 5\n"
        'methods = ["AB()", "TeamDraft()", \'Counterfactual(logging="uniform")\']\n'
        '[data.trec]\nruns = ["long.run", "short.run", "middle.run"]\nqrels = "judged.qrels"\n'
    )
    return tmp_path


def test_every_pair_of_systems_is_compared_as_compare_does(trec: Path) -> None:
    plan = read_plan(str(trec / "plan.toml"))
    assert StudyPlan.from_dict(plan.to_dict(), "plan.json", Path("/")) == plan
    done = run_study(plan, trec / "study")
    assert (done.ran, done.failures) == (3 * 3, ())
    named = duckdb.execute(f"select a, b from '{trec}/study/pairs.csv' order by pair").fetchall()
    assert {frozenset(pair) for pair in named} == {
        frozenset(pair) for pair in (("long.run", "short.run"), ("long.run", "middle.run"), ("short.run", "middle.run"))
    }

    qrels, theta = read_qrels(trec / "judged.qrels"), rank_decay(5)
    assert qrels.top == GRADES
    for index, names in enumerate(named):
        a, b = (read_run(trec / name).only(qrels.grades) for name in names)
        pair = Pair.from_runs(a, b, 5)
        labels = np.maximum(qrels.labels(pair.queries, pair.offsets, pair.ids), 0)
        expected = pair.ctr(position_based(zeta_by_grade(GRADES)[labels], theta))
        rows = duckdb.execute(
            f"select distinct ctr_a, ctr_b from '{done.results}' where pair = {index} order by all"
        ).fetchall()
        assert rows[0] == pytest.approx(expected)
        assert rows[-1] == pytest.approx(expected)

    limits = duckdb.execute(
        f"""select pair, "limit", delta from '{trec}/study/limits.parquet' where method = 'AB()'"""
    ).fetchall()
    assert [pair for pair, _, _ in limits] == [0, 1, 2]
    assert all(limit == pytest.approx(delta) for _, limit, delta in limits)

    world = open_prepared(str(trec / "study"), plan.digest, "trec")
    assert world.dataset.n_queries == 7
    for index, names in enumerate(named):
        lengths = [LENGTHS[name.removesuffix(".run")] for name in names]
        pair = world.pair(index)
        # No method shows what neither of the two lists, whatever the other systems of the study list.
        assert pair.n_documents < world.dataset.n_documents
        assert sorted({*pair.a.documents.tolist(), *pair.b.documents.tolist()}) == list(range(pair.n_documents))
        assert [int(np.diff(ranker.offsets).max()) for ranker in (pair.a, pair.b)] == lengths


def test_fewer_pairs_are_the_first_of_more(trec: Path) -> None:
    plan = replace(read_plan(str(trec / "plan.toml")), limits=0, methods=("AB()",))
    one, all_of_them = trec / "one", trec / "all"
    assert run_study(replace(plan, pairs=1), one).ran == 1
    begun = (one / "pairs.csv").read_text()
    assert run_study(plan, all_of_them).ran == 3
    assert run_study(plan, one).ran == 2
    assert (one / "pairs.csv").read_text().startswith(begun)
    for name in ("results.parquet", "pairs.csv"):
        assert (one / name).read_bytes() == (all_of_them / name).read_bytes()


def test_score_files_beside_a_data_set(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    data = tmp_path / "train.txt"
    data.write_text("".join(f"{d % 5} qid:{q} 1:{d}\n" for q in range(6) for d in range(7)))
    for name in ("one", "two"):
        (tmp_path / name).write_text("".join(f"{score:.6f}\n" for score in rng.standard_normal(42)))
    (tmp_path / "plan.toml").write_text(
        'pairs = 1\nimpressions = 500\ncheckpoints = 2\nk = 3\nmethods = ["AB()"]\n'
        '[data.set]\nsource = "train.txt"\nqueries = 4\nscores = ["one", "two"]\n'
    )
    done = run_study(read_plan(str(tmp_path / "plan.toml")), tmp_path / "study")
    assert done.failures == ()
    dataset = read_letor(data)
    columns = [read_scores(tmp_path / name, dataset) for name in ("one", "two")]
    first = dataset.take(np.arange(4))
    pair = Pair.from_scores(columns[0][:28], columns[1][:28], first.offsets, 3)
    expected = pair.ctr(position_based(first.zeta(), rank_decay(3)))
    row = dict(zip(COLUMNS, duckdb.execute(f"select * from '{done.results}'").fetchall()[-1]))
    assert (row["ctr_a"], row["ctr_b"]) == pytest.approx(expected)
    assert (tmp_path / "study" / "pairs.csv").read_text() == "data,pair,a,b\nset,0,one,two\n"


def test_ranks_are_lists_and_lists_are_ranks(trec: Path) -> None:
    runs = [read_run(trec / f"{name}.run") for name in LENGTHS]
    qrels = read_qrels(trec / "judged.qrels")
    dataset, ranks = ranked_by_runs(runs, qrels, name="trec", queries=5)
    assert dataset.n_queries == 5
    pair = pair_of_ranks(ranks[0], ranks[1], dataset.offsets, 5)
    judged = {f"q{query}" for query in range(5)}
    same = Pair.from_runs(runs[0].only(judged), runs[1].only(judged), 5)
    assert np.array_equal(pair.offsets, same.offsets)  # documents are numbered in A's order, then B's, both times
    assert np.array_equal(pair.top_a, same.top_a)
    assert np.array_equal(pair.top_b, same.top_b)
    assert len(pair.b[4]) == 0


def test_ties_between_scores_are_broken_alike() -> None:
    offsets = np.array([0, 3, 3, 5])
    ranks = ranked_by_scores([np.zeros(5), np.zeros(5), np.array([1.0, 3, 2, 5, 6])], offsets, seed=1)
    assert np.array_equal(ranks[0], ranks[1])
    assert ranks[2].tolist() == [3, 1, 2, 2, 1]
    pair = pair_of_ranks(ranks[0], ranks[2], offsets, 2)
    assert pair.top_b.tolist() == [[1, 2], [-1, -1], [4, 3]]


def test_pairs_are_all_pairs_once() -> None:
    pairs = system_pairs(5, seed=3)
    assert sorted(pairs) == [(a, b) for a in range(5) for b in range(a + 1, 5)]
    assert pairs == system_pairs(5, seed=3) != system_pairs(5, seed=4)
    assert system_pairs(0, seed=1) == []


MINIMAL = 'pairs = 2\nimpressions = 10\nmethods = ["AB()"]\n[data.d]\n'


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ('runs = ["a", "b"]', "qrels is missing, must come with runs"),
        ('source = "s"\nqrels = "q"', "runs is missing, must come with qrels"),
        ('runs = ["a", "b"]\nqrels = "q"\nsource = "s"', "source is '/s', must be left out where runs are given"),
        ('runs = ["a", "b"]\nqrels = "q"\nrankers = "paper"', "rankers is 'paper', must be left out where runs are"),
        ('runs = ["a"]\nqrels = "q"', "runs is ['/a'], must be two files or more, each once"),
        ('source = "s"\nscores = ["a", "b", "a"]', "scores is ['/a', '/b', '/a'], must be two files or more"),
        ('source = "s"\nscores = []', "scores is [], must be two files or more, each once"),
        ('runs = "a"\nqrels = "q"', "runs is 'a', must be a list of texts"),
        ("queries = 3", "source is missing, must be a text in quotes; or give runs and qrels"),
    ],
)
def test_mistakes_in_a_plan(keys: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(MINIMAL + keys)
    with pytest.raises(PlanError) as caught:
        read_plan(str(file))
    assert str(caught.value).replace(str(tmp_path) + "/", "/").startswith(f"/plan.toml: [data.d] {message}")


def test_mistakes_in_files_leave_no_study(trec: Path) -> None:
    plan = read_plan(str(trec / "plan.toml"))
    (trec / "other.qrels").write_text("x1 0 d1 1\n")
    (trec / "bad.qrels").write_text("q1 0 d1 1\nq1 0 d1 2\n")
    for name, message in (
        ("other", "other.qrels: judges none of the queries of the runs of trec"),
        ("bad", "bad.qrels:2: document 'd1' of query 'q1' is already on line 1"),
        ("no", "data set trec: no file or folder '.*no.qrels'"),
    ):
        wrong = replace(plan, data=(replace(plan.data[0], qrels=str(trec / f"{name}.qrels")),))
        with pytest.raises(ValueError, match=message):
            run_study(wrong, trec / "study")
        assert not (trec / "study" / "plan.json").exists()
