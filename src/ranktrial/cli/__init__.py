"""The command line."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

import ranktrial
from ranktrial.cli.backup import backup_command, restore_command
from ranktrial.cli.bias import bias_command
from ranktrial.cli.check import check_command
from ranktrial.cli.compare import compare_command
from ranktrial.cli.console import err, out, plain_errors, progress_bar
from ranktrial.cli.data_source import DataOption, PrefixOption, open_data, read_source
from ranktrial.cli.demo import demo_command
from ranktrial.cli.erase import erase_command
from ranktrial.cli.estimate import estimate_command
from ranktrial.cli.exclude import exclude_command
from ranktrial.cli.export import export_command
from ranktrial.cli.import_log import import_command
from ranktrial.cli.migrate import migrate_command
from ranktrial.cli.plan import plan_command
from ranktrial.cli.report import report_command
from ranktrial.cli.serve import keys_app, serve_command
from ranktrial.cli.study import study_app
from ranktrial.data import train_rankers, write_rankers
from ranktrial.methods import Method, TooManyDisplaysError, parse_method
from ranktrial.methods.proof import Case, appendix_a, compared_methods, work_out

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Which of two rankers gets more clicks, by how much and how surely.",
)

app.add_typer(study_app, name="study")
app.add_typer(keys_app, name="keys")
app.command("serve")(serve_command)
app.command("plan")(plan_command)
app.command("compare")(compare_command)
app.command("demo")(demo_command)
app.command("report")(report_command)
app.command("exclude")(exclude_command)
app.command("erase")(erase_command)
app.command("migrate")(migrate_command)
app.command("backup")(backup_command)
app.command("restore")(restore_command)
app.command("export")(export_command)
app.command("estimate")(estimate_command)
app.command("import")(import_command)
app.command("check")(check_command)
app.command("bias")(bias_command)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of tables.")]


def main() -> None:
    app()


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if show:
        out.print(f"ranktrial {ranktrial.__version__}", highlight=False)
        raise typer.Exit


@app.command()
def proof(
    as_json: Json = False,
    ranker_a: Annotated[
        str | None, typer.Option(help="Ranker A's list: letters (ABC), or ids with commas (x1,x2).")
    ] = None,
    ranker_b: Annotated[str | None, typer.Option(help="Ranker B's list.")] = None,
    theta: Annotated[
        str | None, typer.Option(help="P(examined) per rank, with commas; as many ranks are shown: 1,.9,.8")
    ] = None,
    zeta: Annotated[str | None, typer.Option(help="P(click | examined) per document: A=.1,B=0,C=1")] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Method of your own case, e.g. 'Probabilistic(tau=3)'; may be repeated. Default: all."),
    ] = None,
) -> None:
    """Show that interleaving can prefer the wrong ranker, exactly.

    Without options: Appendix A of the LogOpt paper, with its two slips named. With --ranker-a, --ranker-b, --theta and
    --zeta: the same for a small case of your own. Delta is the true difference in clicks per impression; the expected
    outcome is what a method converges to however much data it gets.
    """
    own = {"--ranker-a": ranker_a, "--ranker-b": ranker_b, "--theta": theta, "--zeta": zeta}
    with plain_errors():
        given = {name: text for name, text in own.items() if text is not None}
        skipped: list[str] = []
        if not given and not method:
            cases = appendix_a()
        elif len(given) < len(own):
            missing = ", ".join(name for name in own if name not in given)
            raise ValueError(f"a case of your own needs all of {', '.join(own)}; missing: {missing}")
        else:
            cases, skipped = own_cases([parse_method(text) for text in method or []], given)
    if as_json:
        print(json.dumps([case.to_dict() for case in cases], indent=2))
    else:
        for number, case in enumerate(cases, 1):
            print_case(number, case)
    for line in skipped:
        err.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)


def own_cases(methods: Sequence[Method], given: dict[str, str]) -> tuple[list[Case], list[str]]:
    """The case for each method asked for; or for all that can work it out, and a line for each that cannot."""
    lists = [_documents(given["--ranker-a"]), _documents(given["--ranker-b"])]
    theta = [_number(text, "--theta") for text in given["--theta"].split(",")]
    zeta = {}
    for part in given["--zeta"].split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"--zeta: {part!r} must look like A=0.5")
        if name.strip() in zeta:
            raise ValueError(f"--zeta: document {name.strip()!r} is given twice")
        zeta[name.strip()] = _number(value, "--zeta")
    cases, skipped = [], []
    for method in methods or compared_methods():
        try:
            cases.append(work_out(method, lists[0], lists[1], theta, zeta))
        except TooManyDisplaysError as problem:
            if methods:
                raise
            skipped.append(f"left out {method}: {problem}")
    return cases, skipped


def _documents(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")] if "," in text else list(text.strip())


def _number(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{option}: {text!r} is not a number") from None


def print_case(number: int, case: Case) -> None:
    zeta = ", ".join(f"{name}={value:g}" for name, value in case.zeta.items())
    lists = " against ".join(" ".join(ranker) for ranker in (case.ranker_a, case.ranker_b))
    out.print(f"[bold]{number}. {escape(str(case.method))}[/]  {escape(lists)}", highlight=False)
    out.print(f"   theta {', '.join(f'{t:g}' for t in case.theta)}   zeta {escape(zeta)}", highlight=False)
    table = Table("display", "probability", box=None, padding=(0, 2), pad_edge=True)
    signs = case.displays[0].added_by_a is not None
    table.add_column("P(a click counts for ranker A), by rank" if signs else "credit of a click, by rank")
    for display in case.displays:
        credit = display.added_by_a if display.added_by_a is not None else display.credit
        ranking = "   " + escape(" ".join(display.ranking))
        table.add_row(ranking, f"{display.probability:.4f}", " ".join(f"{c:7.4f}" for c in credit))
    out.print(table)
    verdict = "[bold red]WRONG SIGN[/]" if case.wrong_sign else "[green]right sign[/]"
    if not case.has_difference:
        verdict = "[yellow]no difference to find[/]"
    elif not case.sees_difference:
        verdict = "[yellow]sees no difference[/]"
    out.print(
        f"   Delta {case.delta:+.4f}   expected outcome {case.expected_outcome:+.4f}   {verdict}", highlight=False
    )
    if case.note:
        out.print(Padding(f"[italic]{case.note}[/]", (0, 0, 0, 3)), highlight=False)
    out.print()


@app.command()
def rankers(
    output: Annotated[Path, typer.Argument(help="File to write; .gz compresses.")],
    data: DataOption = "mslr-like",
    prefix: PrefixOption = None,
    queries: Annotated[int, typer.Option(min=200, help="Queries of a synthetic set.")] = 2000,
    count: Annotated[int, typer.Option(min=1, help="How many rankers.")] = 1000,
    kind: Annotated[
        str,
        typer.Option(
            help="paper: weights only on a random half of the features; code: as the paper's authors' code does it, "
            "random weights on the other half."
        ),
    ] = "paper",
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same file.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Cores to use; the file does not depend on it.")] = 1,
) -> None:
    """Train linear rankers with LambdaLoss on 100 queries each, and write them in the paper's file format."""
    with plain_errors():
        if kind not in ("paper", "code"):
            raise ValueError(f"--kind is {kind!r}, must be paper or code")
        if output.is_dir():
            raise ValueError(f"cannot write {output}: it is a folder")
        if not output.absolute().parent.is_dir():
            raise ValueError(f"cannot write {output}: its folder does not exist")
        dataset = open_data(data, queries, prefix)
        start = time.perf_counter()
        with progress_bar("training rankers") as progress:
            trained = train_rankers(dataset, count, seed=seed, rankers=kind, workers=workers, progress=progress)  # type: ignore[arg-type]
        write_rankers(output, trained)
    out.print(
        f"wrote {count:,} rankers with {dataset.n_features} features to {output} "
        f"({time.perf_counter() - start:.1f} s on {dataset.name})",
        highlight=False,
    )


@app.command()
def data(
    path: Annotated[
        Path, typer.Argument(help="A LETOR/SVMlight file (plain or .gz), or a folder with train/vali/test.")
    ],
    as_json: Json = False,
    prefix: PrefixOption = None,
) -> None:
    """Read a learning-to-rank data set and say what is in it; errors name file and line."""
    rows = []
    with plain_errors():
        if not path.exists():
            raise ValueError(f"no file or folder {str(path)!r}")
        start = time.perf_counter()
        with progress_bar(f"reading {path.name}") as progress:
            splits = read_source(path, prefix, progress)
        elapsed = time.perf_counter() - start
        for split, dataset in splits.items():
            grades, counts = np.unique(dataset.labels, return_counts=True)
            rows.append(
                {
                    "split": split,
                    "queries": dataset.n_queries,
                    "documents": dataset.n_documents,
                    "features": dataset.n_features,
                    "labels": {int(grade): int(count) for grade, count in zip(grades, counts)},
                }
            )
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table("split", "queries", "documents", "features", "documents per label")
    for row in rows:
        labels = row["labels"]
        assert isinstance(labels, dict)
        table.add_row(
            *(f"{row[c]:,}" if c != "split" else str(row[c]) for c in ("split", "queries", "documents", "features")),
            "  ".join(f"{grade}: {count:,}" for grade, count in labels.items()),
        )
    out.print(table)
    out.print(f"read in {elapsed:.2f} s; later reads come from the cache", style="dim", highlight=False)
