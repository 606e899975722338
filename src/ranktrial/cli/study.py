"""The commands of the study: run, show, pack, cost and figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ranktrial.cli.console import Commands, err, number_table, out, say, tell
from ranktrial.cli.options import FolderArgument, JsonOption, named, names_in
from ranktrial.paper.study.figures import DrawnStudy, draw_study, untested
from ranktrial.paper.study.folder import FailedTask
from ranktrial.paper.study.pack import pack_study
from ranktrial.paper.study.plan import PRESETS, SYNTHETIC, TRAINED, DataPlan, StudyPlan, read_plan
from ranktrial.paper.study.prepare import Report
from ranktrial.paper.study.run import run_study
from ranktrial.paper.study.summary import DataSummary, StudyCost, StudySummary, study_cost, summarise
from ranktrial.report.theme import FORMATS
from ranktrial.texts import counted

study_app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="The paper's experiments: every method on many pairs of rankers.",
)


@study_app.command()
def run(
    plan: Annotated[str, typer.Argument(help=f"A preset ({', '.join(PRESETS)}) or a TOML file.")],
    folder: Annotated[
        Path,
        typer.Option(
            "--out",
            help="Folder of the study; a started one is continued, and may grow: more pairs, limits or data "
            "sets, or other methods.",
        ),
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="NAME=PATH",
            help="Run on this LETOR/SVMlight file, folder (its training file) or synthetic set (yahoo-like, mslr-like) "
            "instead of the plan's data sets; may be repeated.",
        ),
    ] = None,
    rankers: Annotated[
        list[str] | None,
        typer.Option(
            "--rankers", metavar="NAME=FILE", help="Rankers of data set NAME: a file, or code or paper to train them."
        ),
    ] = None,
    pairs: Annotated[int | None, typer.Option(help="Pairs of rankers on each data set.")] = None,
    limits: Annotated[
        int | None,
        typer.Option(help="Pairs on which to find also the limit of each method, without noise; 0 for none."),
    ] = None,
    queries: Annotated[
        int | None,
        typer.Option(
            help="Size of each data set: distinct queries, of files the first so many. Not how many are shown."
        ),
    ] = None,
    impressions: Annotated[
        int | None,
        typer.Option(help="Impressions (simulated searches) that each method gets on each pair."),
    ] = None,
    checkpoints: Annotated[int | None, typer.Option(help="Log-spaced numbers of impressions to report at.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of rankers and clicks.")] = None,
    simulate: Annotated[
        bool,
        typer.Option("--simulate", help="Simulate single runs, as the paper did, instead of computing their average."),
    ] = False,
    runs: Annotated[
        int | None, typer.Option(help="Number of times to draw the random parts of an expected run, to average over.")
    ] = None,
    taken: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Take over results of the same study from this file that study pack has made, or from all in this folder; "
            "may be repeated.",
        ),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes; results do not depend on it.")] = 1,
    cluster: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Scheduler of a Dask cluster, e.g. tcp://10.0.0.1:8786.")
    ] = None,
) -> None:
    """Run a study, or continue one: killed at any moment and started again it ends with the same results.

    A failed task is named and does not stop the rest; the next run tries it again. Status 1 if any failed.
    """
    chosen = adjusted(
        read_plan(plan),
        data=data or [],
        rankers=rankers or [],
        queries=queries,
        pairs=pairs,
        limits=limits,
        impressions=impressions,
        checkpoints=checkpoints,
        seed=seed,
        runs=1 if simulate and runs is None else runs,
        simulate=simulate or None,
    )
    try:
        with progress_display() as progress:
            done = run_study(chosen, folder, workers=workers, cluster=cluster, taken=taken or [], progress=progress)
    except KeyboardInterrupt:
        err.print("stopped; the same command continues where it was", highlight=False)
        raise typer.Exit(130) from None
    _print_failures(err, done.failures)
    failed = f", [bold red]{len(done.failures)} failed[/]" if done.failures else ""
    err.print(f"ran {counted(done.ran, 'task')} in {duration(done.seconds)}{failed}: {done.results}", highlight=False)
    err.print(f"see them with: ranktrial study show {folder}", highlight=False)
    if done.failures:
        raise typer.Exit(1)


def adjusted(
    plan: StudyPlan, *, data: Sequence[str], rankers: Sequence[str], queries: int | None, **changed: int | None
) -> StudyPlan:
    """The plan with what the command line changes."""
    sets = [_data_plan(text, plan.data, queries) for text in data] or list(plan.data)
    if queries is not None:
        sets = [replace(one, queries=queries) for one in sets]
    for text in rankers:
        name, source = named(text, "--rankers", "NAME=FILE")
        if name not in [one.name for one in sets]:
            raise ValueError(f"--rankers: no data set {name!r}; there are {', '.join(one.name for one in sets)}")
        file = source if source in TRAINED else str(Path(source).expanduser().absolute())
        sets = [replace(one, rankers=file) if one.name == name else one for one in sets]
    changes: dict[str, Any] = {key: value for key, value in changed.items() if value is not None}
    return replace(plan, data=tuple(sets), **changes)


def _data_plan(text: str, known: Sequence[DataPlan], queries: int | None) -> DataPlan:
    name, source = named(text, "--data", "NAME=PATH")
    same = next((one for one in known if one.name == name), None)
    kept: dict[str, Any] = {"rankers": same.rankers if same and same.rankers in TRAINED else "code"}
    if same:
        kept |= {"same_pairs_as": same.same_pairs_as, "k": same.k, "user": same.user}
    if source in SYNTHETIC:
        size = queries or (same.queries if same and same.synthetic else None)
        return DataPlan(name, source, queries=size, **kept)
    path = Path(source).expanduser()
    if not path.exists():
        raise ValueError(f"--data: no file or folder {source!r}, and not one of {', '.join(SYNTHETIC)}")
    return DataPlan(name, str(path.absolute()), **kept)


@contextmanager
def progress_display() -> Iterator[Report]:
    """A bar with the time left on standard error; in a log file, a line every tenth of the way."""
    if not err.is_terminal:
        yield _tenths()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, speed_estimate_period=600) as bars:
        bar = bars.add_task("")
        yield lambda stage, done, total: bars.update(bar, description=escape(stage), completed=done, total=total)


def _tenths() -> Report:
    """Progress for a log file."""
    said = ("", -1)

    def report(stage: str, done: int, total: int) -> None:
        nonlocal said
        tenth = 10 * done // max(total, 1)
        if (stage, tenth) != said:
            said = (stage, tenth)
            say(f"{stage}: {done:,} of {total:,}", of=err)

    return report


def duration(seconds: float) -> str:
    """Seconds as people read them.

    >>> duration(7.25), duration(75), duration(7384)
    ('7.2 s', '1 min 15 s', '2 h 3 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


@study_app.command()
def show(
    folder: FolderArgument,
    as_json: JsonOption = False,
) -> None:
    """Show each method's errors by number of impressions, what users got meanwhile, and what it cost to compute.

    Means over pairs of: the binary error (the estimate points the wrong way), the absolute error of the estimate, and the
    squared error of single impressions. ctr is clicks per impression of what the method showed.
    """
    summary = summarise(folder)
    tell(as_json, summary.to_dict(), *(_table(data, summary) for data in summary.data))
    if as_json:
        return
    if summary.done < summary.total:
        missing = summary.total - summary.done
        out.print(f"{missing:,} of {summary.total:,} tasks have no result yet", style="yellow", highlight=False)
    _print_failures(out, summary.failures)


def _print_failures(console: Console, failures: Sequence[FailedTask]) -> None:
    for failed in failures:
        console.print("[bold red]failed:[/]", Text(str(failed)), highlight=False, soft_wrap=True)


def _table(data: DataSummary, summary: StudySummary) -> Table:
    title = f"{data.data}: rankers get {data.ctr:.3f} clicks per impression, median |Delta| {data.median_delta:.4f}"
    # Three lines a method, so that six numbers of impressions fit into 80 columns.
    table = Table(title=title, title_justify="left", box=box.HORIZONTALS, show_lines=True, pad_edge=False)
    table.add_column("method", overflow="fold", min_width=14)
    table.add_column("error", no_wrap=True)
    for point in summary.impressions:
        table.add_column(_count(point), justify="right", no_wrap=True)
    table.add_column("shown, cost", justify="right", no_wrap=True)
    for one in data.methods:
        binary, absolute, squared = one.errors.values()
        cells = [
            "\n".join([_cell(b, "{:.1%}"), _cell(a, "{:.4f}"), _cell(s, "{:.3g}")])
            for b, a, s in zip(binary, absolute, squared)
        ]
        cost = f"{one.ctr:.3f} ctr\n{one.pairs} pairs\n{one.seconds:.3g} s/task"
        table.add_row(Text(one.method), "binary\nabsolute\nsquared", *cells, cost)
    return table


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _count(number: int) -> str:
    """A number of impressions, short enough for a column.

    >>> _count(103), _count(10_200), _count(3_000_000)
    ('103', '10.2k', '3M')
    """
    if number >= 1_000_000:
        return f"{number / 1e6:.3g}M"
    return f"{number / 1e3:.3g}k" if number >= 1_000 else str(number)


@study_app.command()
def pack(
    folder: FolderArgument,
    file: Annotated[Path, typer.Argument(help="Parquet file to write.")],
    besides: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Leave out what is in this packed file, or in those of this folder; may be repeated."
        ),
    ] = None,
) -> None:
    """Pack what a study has computed into one small file, from which study run --from goes on elsewhere.

    A run is a few numbers: the law of an impression between two fits. Curves at any checkpoints follow from them. What each run
    cost goes along.
    """
    packed = pack_study(folder, file, besides=besides or [])
    err.print(f"{counted(packed, 'run')}, {file.stat().st_size:,} bytes: {file}", highlight=False)


@study_app.command()
def cost(
    folder: Annotated[Path, typer.Argument(help="Folder of a study of which some tasks are done.")],
    pairs: Annotated[
        int | None, typer.Option(min=1, help="Number of pairs on each data set to forecast for; the plan's by default.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that share the work.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Show what tasks have cost so far, and what all of them will: processor time and memory by data set and method.

    Medians over the tasks that are done. memory is the largest peak of a task's process, mapped data included, which workers
    share. "all pairs" is in processor time, shared by the workers; a busy machine takes longer.
    """
    found = study_cost(folder, pairs=pairs, workers=workers)
    tables = [_cost_table(data, found) for data in dict.fromkeys(one.data for one in found.costs)]
    workers_text = counted(found.workers, "worker")
    lines = [f"all together: {_hours(found.hours)} for {found.pairs:,} pairs on {workers_text}"]
    if found.not_measured:
        lines.append(f"not measured yet: {', '.join(found.not_measured)}")
    tell(as_json, found.to_dict(), *tables, *lines)


def _cost_table(data: str, found: StudyCost) -> Table:
    table = number_table(data, "done", "cpu s", "wall s", "memory", "all pairs", text="method", width=20)
    for one in (one for one in found.costs if one.data == data):
        memory = "-" if one.peak_memory is None else f"{one.peak_memory / 1e6:,.0f} MB"
        times = (f"{one.cpu_seconds:.3g}", f"{one.seconds:.3g}")
        table.add_row(Text(one.task), f"{one.done}", *times, memory, _hours(one.hours))
    return table


def _hours(hours: float) -> str:
    """Hours as people read them.

    >>> _hours(0.0004), _hours(3.25), _hours(124.0)
    ('1.4 s', '3.2 h', '124.0 h')
    """
    return f"{hours:,.1f} h" if hours >= 1 else duration(3600 * hours)


@study_app.command()
def figures(
    folder: FolderArgument,
    to: Annotated[
        Path | None, typer.Option("--out", help="Folder to write to; figures in the study's own by default.")
    ] = None,
    formats: Annotated[str, typer.Option("--format", help="Formats of the pictures, with commas between.")] = ",".join(
        FORMATS
    ),
    form: Annotated[str, typer.Option(help="The paper's figures, ours, or both: paper, ours or both.")] = "both",
    simulated: Annotated[
        Path | None, typer.Option(help="Folder of a simulated study of the same sets, to draw its runs beside.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Draw a study: figures with their data, an interactive report to open in a browser, and the paper's claims.

    Each claim of the paper is given with our number, its 95 % interval over pairs, and a verdict.
    """
    drawn = draw_study(folder, to, names_in(formats), form=form, simulated=simulated)
    lacking = [f"not tested: {what}: {', '.join(claims)}" for what, claims in untested(drawn.findings).items()]
    tell(as_json, drawn.to_dict(), _claims(drawn), *lacking, *drawn.files)


def _claims(drawn: DrawnStudy) -> Table:
    table = Table(title="The paper's claims", title_justify="left", box=box.HORIZONTALS, show_lines=True)
    for column in ("", "claim", "data", "paper", "ours", "holds if", "verdict"):
        table.add_column(column, overflow="fold")
    for one in drawn.findings:
        if one.lacking is None:
            cells = (one.number, one.claim, one.data, one.paper, one.text, one.holds_if, one.verdict)
            table.add_row(*map(Text, cells))
    return table
