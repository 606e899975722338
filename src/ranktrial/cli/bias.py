"""The command `ranktrial bias`: position bias of a log, with errors, and predicted click rates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ranktrial.cli.console import out, plain_table, say
from ranktrial.cli.log_options import reads_log
from ranktrial.cli.options import JsonOption, LogArgument
from ranktrial.formats.bias import DocumentCounts, Jump, held_out, position_bias, predict
from ranktrial.formats.readers import read_source
from ranktrial.position_bias import NotIdentifiable, PositionBias

WIDTH = 40  # characters of the longest bar


@reads_log
def bias_command(
    log: LogArgument,
    query: Annotated[str | None, typer.Option(help="Query of a document whose click rate to predict.")] = None,
    document: Annotated[str | None, typer.Option(help="Document whose click rate to predict.")] = None,
    rank: Annotated[int | None, typer.Option(min=1, help="Rank to predict it at.")] = None,
    test: Annotated[
        bool, typer.Option("--test", help="Fit on half of the queries and predict the other half.")
    ] = False,
    within: Annotated[
        str | None,
        typer.Option(
            metavar="day|week|COLUMN",
            help="Compare a document with itself only within a day (UTC), a week, or one value of a column, such as the "
            "ranker's version. Choose one in which the ranker did not change.",
        ),
    ] = None,
    chart: Annotated[Path | None, typer.Option(help="Also draw a chart: FILE.svg, .png or .pdf.")] = None,
    *,
    reading: dict[str, Any],
    as_json: JsonOption = False,
) -> None:
    """Estimate position bias: how often each rank is looked at, from clicks on documents that stood at several ranks.

    Use the result as theta of a new trial, or with `ranktrial estimate --theta`.

    A ranker that learns from clicks moves documents up that were clicked by chance, so that theta of the whole log is too large
    at low ranks. Theta within periods in which the ranker did not change (--within) is right. `ranktrial check` says whether
    they differ.
    """
    asked = [query, document, rank]
    if any(one is not None for one in asked) and None in asked:
        raise ValueError("a prediction needs all of --query, --document and --rank")
    source = read_source(log, within=within, **reading)
    try:
        bias = position_bias(source)
    except NotIdentifiable as refusal:
        longer = f" (within one {within}; longer periods compare more)" if within else ""
        raise ValueError(f"{log}: position bias cannot be told from relevance: {refusal}{longer}") from refusal
    told: dict[str, object] = bias.to_dict() | {"interval": [list(ends) for ends in bias.confidence_interval()]}
    told |= {"within": within, "periods": source.periods}
    documents = DocumentCounts.of(source) if test or rank is not None else None
    prediction, jumps = None, []
    if documents is not None and query is not None and document is not None and rank is not None:
        prediction = predict(documents, bias, documents.rows(query, document), rank)
        told["prediction"] = asdict(prediction) | {"interval": list(prediction.interval)}
    if documents is not None and test:
        jumps = held_out(documents)
        told["test"] = [asdict(jump) for jump in jumps]
    if chart is not None:
        from ranktrial.cli.drawing import draw_bias  # the extra "charts"

        draw_bias(bias, chart)
    if as_json:
        print(json.dumps(told, indent=2, default=_plain))
        return
    print_bias(bias)
    if within is not None:
        say(f"compared within one {within} only, {source.periods:,} in all", wrap=True)
    say(bias.note, style="dim", wrap=True)
    if prediction is not None:
        low, high = prediction.interval
        seen = "" if np.isnan(prediction.seen) else f"; it had {prediction.seen:.4f} there"
        say(
            f"{document} at rank {rank}: {prediction.rate:.4f} clicks per show (95% {low:.4f} to {high:.4f}), from "
            f"{prediction.clicks:,.0f} clicks in {prediction.shows:,.0f} shows at all ranks{seen}",
            wrap=True,
        )
    if test:
        print_jumps(jumps)


def print_bias(bias: PositionBias) -> None:
    for number, (theta, error, ends) in enumerate(zip(bias.theta, bias.standard_error, bias.confidence_interval()), 1):
        bar = "█" * round(WIDTH * min(theta / bias.theta.max(), 1)) or "▏"
        out.print(f"{number:4d}  {theta:.4f} ± {error:.4f}  {bar}  {ends.low:.3f} to {ends.high:.3f}", highlight=False)
    say(f"theta = {','.join(f'{value:.4g}' for value in np.minimum(bias.theta, 1))}")


def print_jumps(jumps: Sequence[Jump]) -> None:
    table = plain_table("from rank", "to rank", "documents", "actual", "naive", "predicted")
    for jump in jumps:
        rates = (f"{value:.3f}" for value in (jump.actual, jump.naive, jump.predicted))
        table.add_row(str(jump.origin), str(jump.target), f"{jump.documents:,}", *rates)
    out.print(table if jumps else "too few queries or shows to test predictions", highlight=False)


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else str(value)
