"""The command line. A command is imported when it is asked for: `serve` need not wait for what `study` draws with."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

import ranktrial
from ranktrial.cli.console import Commands, out
from ranktrial.extras import MissingExtra

# In the order of the help: the module of each command, and its function (or its own commands) in there.
COMMANDS = {
    "demo": ("demo", "demo_command"),
    "plan": ("plan", "plan_command"),
    "serve": ("serve", "serve_command"),
    "create": ("create", "create_command"),
    "warm": ("warm", "warm_command"),
    "report": ("report", "report_command"),
    "share": ("changes", "share_command"),
    "stop": ("changes", "stop_command"),
    "calibrate": ("calibrate", "calibrate_command"),
    "exclude": ("changes", "exclude_command"),
    "erase": ("changes", "erase_command"),
    "keys": ("serve", "keys_app"),
    "migrate": ("stores", "migrate_command"),
    "backup": ("stores", "backup_command"),
    "restore": ("stores", "restore_command"),
    "export": ("export", "export_command"),
    "estimate": ("estimate", "estimate_command"),
    "import": ("import_log", "import_command"),
    "check": ("check", "check_command"),
    "bias": ("bias", "bias_command"),
    "compare": ("compare", "compare_command"),
    "proof": ("proof", "proof_command"),
    "study": ("study", "study_app"),
    "rankers": ("data", "rankers_command"),
    "data": ("data", "data_command"),
}


class AllCommands(Commands):
    """The commands of the table."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        self.commands = {**dict.fromkeys(COMMANDS), **self.commands}  # type: ignore[dict-item]  # names to suggest
        if cmd_name in COMMANDS and self.commands[cmd_name] is None:
            self.commands[cmd_name] = _load(cmd_name)
        return self.commands.get(cmd_name)


def _load(name: str) -> Any:
    module, attribute = COMMANDS[name]
    group = typer.Typer(add_completion=False)
    try:
        found = getattr(import_module(f"ranktrial.cli.{module}"), attribute)
    except MissingExtra as missing:
        message = str(missing)

        @group.command(
            name,
            short_help=escape(f"{_description(module, attribute)} ({message.partition(': ')[2]})"),
            add_help_option=False,
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        )
        def refuse() -> None:
            raise MissingExtra(message)
    else:
        if isinstance(found, typer.Typer):
            group = found
        else:
            group.command(name)(found)
    command: Any = typer.main.get_command(group)
    command.name = name
    for one in (command, *getattr(command, "commands", {}).values()):
        one.help = _flowing(one.help or "")
    return command


def _flowing(text: str) -> str:
    """A help text whose paragraphs are broken by the terminal, not where the source breaks them; indented lines stay.

    >>> _flowing("One\\nline.\\n\\nTwo:\\n\\n  ranktrial plan")
    'One line.\\n\\nTwo:\\n\\n  ranktrial plan'
    """
    return re.sub(r"(?<=\S)\n(?=\S)", " ", inspect.cleandoc(text))


def _description(module: str, attribute: str) -> str:
    """First line of a command's help, from its source: it cannot be imported without its extra."""
    source = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        match node:
            case ast.FunctionDef(name=name) if name == attribute:
                return (ast.get_docstring(node) or "").partition("\n")[0]
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(keywords=options)) if name == attribute:
                return next(str(ast.literal_eval(option.value)) for option in options if option.arg == "help")
    raise LookupError(f"there is no {attribute} in {module}.py")


app = typer.Typer(
    cls=AllCommands,
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Compare two search rankers by clicks: which gets more, by how much and how surely.",
)


def main() -> None:
    app()


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if show:
        out.print(f"ranktrial {ranktrial.__version__}", highlight=False)
        raise typer.Exit
