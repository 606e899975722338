"""Reference pages of the documentation site from the code itself, as a Sphinx extension; and the site's llms.txt.

A page of docs/reference/ has lines such as ``<!-- generated: commands -->``. When the site is built each becomes the Markdown
that the function of that name makes here: from the command line's own parser, the service's OpenAPI, the columns of a log.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from docutils import nodes
from fastapi.routing import APIRoute
from prometheus_client.parser import text_string_to_metric_families
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import ranktrial
from ranktrial.cli import app as command_line
from ranktrial.formats.layout import TABLES
from ranktrial.formats.readers import NEEDED
from ranktrial.formats.readers.common import OTHER_NAMES
from ranktrial.service import create_app
from ranktrial.service.auth import Needs
from ranktrial.service.metrics import Metrics

ROOT = Path(__file__).resolve().parents[1]
COPIES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md", "examples/README.md": "examples.md"}
MARKER = re.compile(r"^<!-- generated: (\w+)(?: (\S+))? -->$", re.M)


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table; text of cells that would end a cell or a line is kept inside it."""
    lines = [head, tuple("---" for _ in head), *(tuple(_cell(cell) for cell in row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def code(text: str) -> str:
    """Text as it is typed, between as many backticks as it takes."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def in_markdown(docstring: str) -> str:
    """A docstring's text as Markdown: names in double backticks become code."""
    return inspect.cleandoc(docstring).replace("``", "`")


# Commands


def commands() -> str:
    """Every command with its arguments and options, as the command line's own parser knows them."""
    root = typer.main.get_command(command_line)
    return "\n".join(_command(root, "ranktrial", None))


def _command(command: Any, name: str, parent: Any) -> Iterator[str]:
    context = command.context_class(command, info_name=name, parent=parent)
    inner = sorted(command.list_commands(context)) if hasattr(command, "list_commands") else []
    if parent is not None:
        yield f"## {context.command_path}\n"
        yield _help(command.help or "") + "\n"
    if parent is not None and not inner:
        yield f"    {command.get_usage(context).removeprefix('Usage: ')}\n"
        records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
        rows = [(code(record[0]), record[1] or "") for record in records if record and not record[0].endswith("--help")]
        yield table(("argument or option", ""), rows)
    for inside in inner:
        yield from _command(command.get_command(context, inside), inside, context)


def _help(text: str) -> str:
    """Help as Markdown: what is indented is typed, so it stays as it is."""
    parts = re.split(r"\n\s*\n", inspect.cleandoc(text).replace("\b\n", ""))
    return "\n\n".join(re.sub(r"^ *", "    ", part, flags=re.M) if part.startswith(" ") else part for part in parts)


# Notebooks


def notebook(name: str) -> str:
    """A notebook of examples/notebooks/ with the outputs it was saved with."""
    cells = json.loads((ROOT / f"examples/notebooks/{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(part for cell in cells for part in _cell_parts(cell)) + "\n"


def _cell_parts(cell: dict[str, Any]) -> Iterator[str]:
    """Markdown of a cell; code is followed by what it printed and showed."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "text/html" in data:
            yield f"````{{raw}} html\n{''.join(data['text/html'])}\n````"
        else:
            yield f"```text\n{''.join(output.get('text') or data['text/plain']).rstrip()}\n```"


# Endpoints


def endpoints() -> str:
    """Every endpoint of the service, from its OpenAPI description."""
    app = create_app("not-opened.db")
    whole = app.openapi()
    scopes = {
        (route.path, method): need.dependency.scope
        for route in app.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
        for need in route.dependencies
        if isinstance(need.dependency, Needs)
    }
    parts = []
    for path, methods in whole["paths"].items():
        for method, told in methods.items():
            scope = scopes.get((path, method.upper()))
            parts += [f"## {method.upper()} {path}\n", in_markdown(told.get("description", told["summary"])) + "\n"]
            parts.append(f"Scope: `{scope}`\n" if scope else "Needs no key.\n")
            if "requestBody" in told:
                content = told["requestBody"]["content"]["application/json"]
                parts.append(f"Takes {_kind(content['schema'])}, for example `{json.dumps(content['example'])}`\n")
            answers = [_answer(status, answer) for status, answer in sorted(told["responses"].items()) if status < "4"]
            errors = ", ".join(status for status in sorted(told["responses"]) if status >= "4")
            parts.append(f"Answers {'; '.join(answers)}. Errors are a [Problem](#problem): {errors}.\n")
    return "\n".join(parts)


def _answer(status: str, answer: dict[str, Any]) -> str:
    kinds = [content.get("schema", {}) for content in answer.get("content", {}).values()]
    said = answer["description"].replace("Successful Response", "")
    return " ".join([f"`{status}`", *filter(None, [said, *(f"({_kind(kind)})" for kind in kinds if kind)])])


def _kind(schema: dict[str, Any]) -> str:
    """A type in words, objects as links to their own tables."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return "[low, high]" if name == "Interval" else f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        first, *others = schema["anyOf"]
        if others and first.get("items", {}).get("anyOf") == others:
            return f"{_kind({'anyOf': others})}, or a list of them"
        return " or ".join(dict.fromkeys(filter(None, map(_kind, schema["anyOf"]))))
    if "enum" in schema or "const" in schema:
        return ", ".join(code(json.dumps(value)) for value in schema.get("enum", [schema.get("const")]))
    named = schema.get("type", "")
    if isinstance(named, list):
        return " or ".join(named)
    if named == "array":
        kinds = [_kind(schema["items"])] if "items" in schema else [_kind(one) for one in schema.get("prefixItems", [])]
        return f"list of {' and '.join(dict.fromkeys(kinds))}" if any(kinds) else "list"
    return str(named)


def objects() -> str:
    """Every object that goes into the service or comes out of it, field by field, from its OpenAPI description."""
    schemas = create_app("not-opened.db").openapi()["components"]["schemas"]
    parts = []
    for name, schema in sorted(schemas.items()):
        if not schema.get("properties"):
            continue
        said, _, attributes = schema.get("description", "").partition("Attributes:")
        told = dict(re.findall(r"^ {4}(\w+): (.*(?:\n {8,}.*)*)", attributes, re.M))
        rows = [
            (code(field), _field(one), in_markdown(told.get(field, one.get("description", ""))))
            for field, one in schema["properties"].items()
        ]
        parts += [f"### {name}\n", in_markdown(said) + "\n", table(("field", "type", ""), rows)]
    return "\n".join(parts)


def _field(schema: dict[str, Any]) -> str:
    kind = _kind(schema)
    bounds = {"minimum": "from", "maximum": "to", "exclusiveMinimum": "above", "exclusiveMaximum": "below"}
    inside = [schema, *schema.get("anyOf", [])]
    told = [f"{word} {one[name]:g}" for one in inside for name, word in bounds.items() if name in one]
    if schema.get("default") is not None:
        told.append(f"default {code(json.dumps(schema['default']))}")
    return ", ".join([kind, *told])


# Columns and metrics


def columns() -> str:
    """Columns of the two tables of a log."""
    parts = []
    for name, told in TABLES.items():
        rows = [(code(column), kind, text) for column, (kind, text) in told.items()]
        parts += [f"### {name}\n", table(("column", "type", ""), rows)]
    return "\n".join(parts)


def formats() -> str:
    """Columns that each format of other people's logs must have, and the names by which columns are known."""
    needed = [(code(name), ", ".join(map(code, columns))) for name, columns in NEEDED.items()]
    names = [(code(ours), ", ".join(map(code, theirs))) for ours, theirs in OTHER_NAMES.items()]
    return f"{table(('format', 'must have'), needed)}\n{table(('column', 'may be called'), names)}"


def metrics() -> str:
    """Every metric of the service, from its own registry, after one of everything that is counted."""
    counted = Metrics(lambda: 0)
    counted.requests("GET", "/", 200).inc()
    counted.seconds("/").observe(0.0)
    counted.searches("trial").inc()
    counted.fallbacks("trial", "reason").inc()
    counted.outside("trial").inc()
    counted.events("counted").inc()
    rows = []
    for family in text_string_to_metric_families(counted.text().decode()):
        labels = dict.fromkeys(label for sample in family.samples for label in sample.labels if label != "le")
        name = f"{family.name}_total" if family.type == "counter" else family.name
        rows.append((code(name), family.type, ", ".join(map(code, labels)), family.documentation))
    return table(("metric", "kind", "labels", ""), rows)


# The Python interface


def python(package: str) -> str:
    """Names that a package exports: of the front door all, of others those that are not at the front door."""
    module = import_module(package)
    names = [name for name in module.__all__ if package == "ranktrial" or name not in ranktrial.__all__]
    lines = [f".. currentmodule:: {package}", ""]
    for name in names:
        thing = getattr(module, name)
        kind = "class" if inspect.isclass(thing) else "function" if callable(thing) else "data"
        kind = "exception" if kind == "class" and issubclass(thing, Exception) else kind
        lines += [f".. auto{kind}:: {package}.{name}", "   :members:" if kind == "class" else "", ""]
    return "\n".join(["```{eval-rst}", *lines, "```", ""])


def file(path: str) -> str:
    """A page of the repository that stands outside docs/, its links as seen from there."""
    text = re.sub(r"\]\((?:\.\./)?docs/", "](/", (ROOT / path).read_text(encoding="utf-8"))
    folder = Path("..", path).parent.as_posix()  # from docs/; what is left are files beside the page, to download
    return re.sub(r"\]\((?=\w+\.(?:py|mjs|js|json)\))", f"]({folder}/", text)


PARTS: dict[str, Callable[..., str]] = {
    part.__name__: part for part in (commands, endpoints, objects, columns, formats, metrics, python, file, notebook)
}


def generated(text: str) -> str:
    """A page with what is generated in the place of its markers, and links to pages outside docs/ to their copies."""
    for outside, copy in COPIES.items():
        text = re.sub(rf"\]\((?:\.\./)+{re.escape(outside)}", f"](/{copy}", text)
    return MARKER.sub(lambda found: PARTS[found[1]](*filter(None, [found[2]])), text)


# The extension


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", lambda app, name, source: source.__setitem__(0, generated(source[0])))
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True}


def finish(app: Sphinx, problem: Exception | None) -> None:
    """Write llms.txt: what there is, with links to the pages as Markdown, generated parts included."""
    if problem is not None or app.builder.format != "html":
        return
    sources = Path(app.outdir, "_sources")
    for copy in sources.rglob("*.md.txt"):
        copy.write_text(generated(copy.read_text(encoding="utf-8")), encoding="utf-8")
    env = app.env
    lines = [f"# {app.config.project}", "", f"> {first_sentence(env, 'index')}", ""]
    for section in env.toctree_includes["index"]:
        lines += [f"## {env.titles[section].astext()}", ""]
        for page in dict.fromkeys([section, *env.toctree_includes.get(section, ())]):
            lines.append(f"- [{env.titles[page].astext()}](_sources/{page}.md.txt): {first_sentence(env, page)}")
        lines.append("")
    Path(app.outdir, "llms.txt").write_text("\n".join(lines), encoding="utf-8")


def first_sentence(env: BuildEnvironment, page: str) -> str:
    """The first sentence of a page."""
    paragraphs = (
        one for one in env.get_doctree(page).findall(nodes.paragraph) if isinstance(one.parent, nodes.section)
    )
    return re.split(r"(?<=[.:!?])\s", " ".join(next(paragraphs).astext().split()))[0]
