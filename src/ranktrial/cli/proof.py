"""The command `ranktrial proof`: that interleaving can prefer the wrong ranker, worked out exactly."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from ranktrial.cli.console import err, out, say
from ranktrial.cli.options import JsonOption, named, names_in, number, numbers
from ranktrial.methods import Method, TooManyDisplaysError, parse_method
from ranktrial.paper.proof import Case, appendix_a, compared_methods, work_out


def proof_command(
    as_json: JsonOption = False,
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
        for at, case in enumerate(cases, 1):
            print_case(at, case)
    for line in skipped:
        say(line, of=err, style="yellow")


def own_cases(methods: Sequence[Method], given: dict[str, str]) -> tuple[list[Case], list[str]]:
    """The case for each method asked for; or for all that can work it out, and a line for each that cannot."""
    lists = [_documents(given["--ranker-a"]), _documents(given["--ranker-b"])]
    theta = numbers(given["--theta"], "--theta")
    zeta = {}
    for part in given["--zeta"].split(","):
        name, value = named(part, "--zeta", "A=0.5")
        if name in zeta:
            raise ValueError(f"--zeta: document {name!r} is given twice")
        zeta[name] = number(value, "--zeta")
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
    return list(names_in(text) if "," in text else text.strip())


def print_case(at: int, case: Case) -> None:
    zeta = ", ".join(f"{name}={value:g}" for name, value in case.zeta.items())
    lists = " against ".join(" ".join(ranker) for ranker in (case.ranker_a, case.ranker_b))
    out.print(f"[bold]{at}. {escape(str(case.method))}[/]  {escape(lists)}", highlight=False)
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
