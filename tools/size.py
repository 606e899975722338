"""Sizes of the code: lines, files, classes, largest interfaces, names of classes that occur more than once, import contracts.

python tools/size.py              of this checkout
python tools/size.py --of PATH    of another one
python tools/size.py --packages   lines of code of each package, too
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
LARGEST = 5


def code_lines(text: str) -> int:
    """Number of lines that hold more than comments and docstrings."""
    tree = ast.parse(text)
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    first = [node.body[0] for node in ast.walk(tree) if isinstance(node, kinds) and ast.get_docstring(node) is not None]
    docstrings = {line for node in first for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {line for token in tokens if token.type not in SKIPPED for line in range(token.start[0], token.end[0] + 1)}
    return len(lines - docstrings)


def classes(text: str) -> list[tuple[str, int]]:
    """Name and number of methods of every class."""
    functions = ast.FunctionDef, ast.AsyncFunctionDef
    return [
        (node.name, sum(isinstance(one, functions) for one in node.body))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", type=Path, default=Path(__file__).parents[1], help="a checkout")
    parser.add_argument("--packages", action="store_true", help="lines of code of each package, too")
    options = parser.parse_args()
    root = options.of
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((root / "src").rglob("*.py"))}
    found = [one for text in texts.values() for one in classes(text)]
    twice = sum(times > 1 for times in Counter(name for name, _ in found).values())
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    largest = sorted(found, key=lambda one: -one[1])[:LARGEST]
    print(f"lines of code             {sum(map(code_lines, texts.values())):>8,}")
    print(f"files                     {len(texts):>8,}")
    print(f"classes                   {len(found):>8,}")
    print(f"class names used twice    {twice:>8,}")
    print(f"import contracts          {len(settings['tool']['importlinter']['contracts']):>8,}")
    print("largest classes           " + ", ".join(f"{name} {methods}" for name, methods in largest))
    if options.packages:
        by_package: Counter[str] = Counter()
        for path, text in texts.items():
            inside = path.relative_to(root / "src").parts[1:]
            by_package[inside[0] if len(inside) > 1 else "(top level)"] += code_lines(text)
        for package, lines in by_package.most_common():
            print(f"{package:26}{lines:>8,}")


if __name__ == "__main__":
    main()
