"""The two rankers that a command's arguments and options name, labels of their documents, position bias."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ranktrial import checks
from ranktrial.arrays import NO_DOCUMENT, FloatArray
from ranktrial.cli.console import progress_bar
from ranktrial.cli.data import DATA_HELP, PrefixOption, open_data
from ranktrial.cli.options import numbers, takes
from ranktrial.paper.data import Dataset, read_rankers, read_scores, train_rankers
from ranktrial.rankings import Pair
from ranktrial.rankings.lists import MOST_RANKS
from ranktrial.trec import Run, read_qrels, read_run
from ranktrial.trec.qrels import UNJUDGED, zeta_by_grade
from ranktrial.users import User, position_based, rank_decay

CtrOption = Annotated[
    float | None, typer.Option(help="Clicks per page. With labels the click probabilities are scaled to it.")
]


def ranker_options(
    ranker_a: Annotated[
        Path | None,
        typer.Argument(help="Ranker A: a TREC run file; with --data, a file with a score per document and line."),
    ] = None,
    ranker_b: Annotated[Path | None, typer.Argument(help="Ranker B, a file of the same kind.")] = None,
    qrels: Annotated[
        Path | None,
        typer.Option(
            help="Labels for run files: TREC qrels. Documents without a judgement count as label 0, queries without any "
            "are left out."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help=f"Labelled documents. {DATA_HELP} Without score files two rankers are trained on it."),
    ] = None,
    prefix: PrefixOption = None,
    rankers: Annotated[
        Path | None, typer.Option(help="Rankers for --data, as `ranktrial rankers` writes them.")
    ] = None,
    pair: Annotated[str, typer.Option(help="Numbers of A and B among --rankers, counted from 1.")] = "1,2",
    k: Annotated[int | None, typer.Option("--k", min=1, max=MOST_RANKS, help="Results on a page. Default: 10.")] = None,
    theta: Annotated[
        str | None,
        typer.Option(help="Probability that each rank is looked at, from the top: 1,.5,.3. Also sets --k."),
    ] = None,
    eta: Annotated[float, typer.Option(min=0, help="Position bias 1 / rank^eta, if --theta is not given.")] = 1.0,
) -> dict[str, Any]:
    """The arguments of ``read_two_rankers``, from those of a command."""
    return {
        "files": (ranker_a, ranker_b),
        "theta": position_bias(theta, eta, k),
        "data": data,
        "qrels": qrels,
        "prefix": prefix,
        "rankers": rankers,
        "chosen": pair,
    }


names_rankers = takes("rankers", ranker_options)


@dataclass(frozen=True, eq=False)
class TwoRankers:
    """Two rankers that a command was given, and what is known of their documents.

    Attributes:
        pair: The rankers, with the position bias.
        name: Of what they rank.
        zeta: P(click | examined) of each document, from its label; None where there are no labels.
        judged: With qrels, how many of the results that A and that B shows are judged, of how many: a row each.
        unjudged_queries: With qrels, how many queries were left out because they have no judgement.
    """

    pair: Pair
    name: str
    zeta: FloatArray | None = None
    judged: tuple[tuple[int, int], ...] = ()
    unjudged_queries: int = 0

    def user(self, ctr: float | None = None) -> User:
        """Position-based users who click by the labels, as often as ``ctr`` says if it is given."""
        if self.zeta is None:
            raise ValueError("run files say nothing about clicks: give labels with --qrels")
        theta = self.pair.known_theta
        user = position_based(self.zeta, theta)
        if ctr is None:
            return user
        unscaled = float(np.mean(self.pair.ctr(user)))
        most = unscaled / self.zeta.max()
        if not 0 < ctr <= most:
            raise ValueError(
                f"--ctr is {ctr:g}, must be more than 0 and at most {most:.4g} with these labels and position bias"
            )
        return position_based(np.minimum(self.zeta * (ctr / unscaled), 1.0), theta)

    def judged_text(self) -> str:
        """Sentence on the share of the shown results that is judged; empty without qrels."""
        if not self.judged:
            return ""
        a, b = (f"{judged:,} of the {shown:,} results {who} shows" for who, (judged, shown) in zip("AB", self.judged))
        left_out = (
            f" Queries without any judgement, left out: {self.unjudged_queries:,}." if self.unjudged_queries else ""
        )
        return f"Judged are {a} and {b}; the others count as label 0.{left_out}"

    def judged_dict(self) -> dict[str, Any]:
        """Numbers of judged and shown results for JSON; empty without qrels."""
        if not self.judged:
            return {}
        counts = {who: {"judged": judged, "shown": shown} for who, (judged, shown) in zip("ab", self.judged)}
        return {"judged": {**counts, "queries_left_out": self.unjudged_queries}}


def read_two_rankers(
    files: tuple[Path | None, Path | None],
    *,
    theta: FloatArray,
    data: str | None = None,
    qrels: Path | None = None,
    prefix: str | None = None,
    queries: int = 0,
    rankers: Path | None = None,
    chosen: str = "1,2",
    seed: int = 0,
) -> TwoRankers:
    """The two rankers that files and options name.

    Args:
        files: Two run files; with ``data`` two score files, or none.
        theta: Position bias, one number per result on a page.
        data: Labelled documents; see ``open_data``, also for ``prefix`` and ``queries``.
        qrels: Labels for run files.
        rankers: Linear rankers for ``data``; without it, and without score files, two are trained.
        chosen: Which two of them, as in "1,2".
        seed: Of training, and of breaking ties between scores.
    """
    given = [file for file in files if file is not None]
    if len(given) == 1 or (not given and data is None):
        raise ValueError("give two files, one for each ranker, or labelled documents with --data")
    if data is None:
        if rankers is not None:
            raise ValueError("--rankers needs --data, the documents they rank")
        return _from_runs(given, qrels, theta)
    if qrels is not None:
        raise ValueError("--qrels is for run files; --data has labels of its own")
    if rankers is not None and given:
        raise ValueError("give either --rankers or two score files, not both")
    dataset = open_data(data, queries, prefix)
    if given:
        scores = [read_scores(file, dataset) for file in given]
    else:
        scores = _linear_scores(dataset, rankers, chosen, seed)
    pair = Pair.from_scores(scores[0], scores[1], dataset.offsets, len(theta), seed=seed)
    return TwoRankers(pair.knowing(theta=theta), dataset.name, dataset.zeta())


def _from_runs(files: list[Path], qrels: Path | None, theta: FloatArray) -> TwoRankers:
    a, b = map(_read_run, files)
    name = f"{a.tag} and {b.tag}"
    if qrels is None:
        return TwoRankers(Pair.from_runs(a, b, len(theta)).knowing(theta=theta), name)
    judgements = read_qrels(qrels)
    asked = {*a.query_ids, *b.query_ids}
    judged = asked & judgements.grades.keys()
    if not judged:
        raise ValueError(
            f"{qrels}: judges none of the {len(asked):,} queries of {files[0]} and {files[1]}; "
            f"it has queries such as {next(iter(judgements.grades))!r}, they {a.query_ids[0]!r}"
        )
    pair = Pair.from_runs(a.only(judged), b.only(judged), len(theta)).knowing(theta=theta)
    labels = judgements.labels(pair.queries, pair.offsets, pair.ids)
    shown = [labels[table[table != NO_DOCUMENT]] for table in (pair.top_a, pair.top_b)]
    return TwoRankers(
        pair,
        name,
        zeta_by_grade(judgements.top)[np.maximum(labels, 0)],
        tuple((int(np.sum(one != UNJUDGED)), len(one)) for one in shown),
        len(asked) - len(judged),
    )


def _read_run(file: Path) -> Run:
    with progress_bar(f"reading {file.name}") as progress:
        return read_run(file, progress=progress)


def _linear_scores(dataset: Dataset, rankers: Path | None, chosen: str, seed: int) -> list[FloatArray]:
    if rankers is None:
        with progress_bar("training two rankers") as progress:
            found = train_rankers(dataset, 2, seed=seed, progress=progress)
        return [found.scores(dataset, i) for i in range(2)]
    found = read_rankers(rankers, dataset, allow_dropped=True)
    chosen_two = [int(number) for number in numbers(chosen, "--pair")]
    if len(set(chosen_two)) != 2 or len(chosen_two) != 2 or not all(1 <= i <= len(found) for i in chosen_two):
        raise ValueError(f"--pair is {chosen!r}, must name two of the {len(found)} rankers, such as 1,2")
    return [found.scores(dataset, i - 1) for i in chosen_two]


def position_bias(theta: str | None, eta: float, k: int | None) -> FloatArray:
    """P(a rank is examined) as the options --theta, --eta and --k say; one number per result on a page."""
    if theta is None:
        return rank_decay(k or 10, eta)
    bias = checks.probabilities("--theta", numbers(theta, "--theta"))
    if k is not None and k != len(bias):
        raise ValueError(f"--theta has {len(bias)} ranks, --k is {k}: leave one of them out")
    return bias
