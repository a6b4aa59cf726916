"""Which functions of a walk could be moved into their callers: those with one use, and few lines.

Uses are counted by name in ``agent/``, ``master/`` and ``penstock/``: each mention of a name, with or without an object
before it. So functions of one name share their uses, and one use may be an entry of a table or call several subclasses.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.walk.tracer import ROOT

#: A function with one use may have as many lines as this; a longer one keeps its caller readable.
SHORT_LINES = 4
_PACKAGES = ("agent", "master", "penstock")


@dataclass(frozen=True)
class Uses:
    """Of a program: the lines of each function's body without its docstring, and the number of uses of each name."""

    lines: dict[str, int] = field(default_factory=dict)  # by path:function, as in a walk
    by_name: Counter[str] = field(default_factory=Counter)

    def add(self, path: str, source: str) -> None:
        """Count a file."""
        tree = ast.parse(source)
        self._define(tree, f"{path}:")
        for node in ast.walk(tree):
            if isinstance(node, ast.Name | ast.Attribute):
                self.by_name[node.id if isinstance(node, ast.Name) else node.attr] += 1

    def _define(self, node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                body = child.body[1:] if ast.get_docstring(child, clean=False) is not None else child.body
                self.lines[prefix + child.name] = sum((each.end_lineno or 0) - each.lineno + 1 for each in body)
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self._define(child, f"{prefix}{child.name}.")
            else:
                self._define(child, prefix)


@dataclass(frozen=True)
class Sharing:
    """The numbers of some functions: of those with several uses, and of the longer and the shorter ones with one.

    ``unnamed`` have none by their name: lambdas, special methods, what libraries call, and the stand-ins of a walk.
    ``lines`` are those of all bodies.
    """

    shared: int
    long: int
    short: int
    unnamed: int
    lines: int

    def __str__(self) -> str:
        return (
            f"{self.shared} functions used from several places; {self.long} from one place, of more than {SHORT_LINES} "
            f"lines; {self.short} from one place, of up to {SHORT_LINES} lines; {self.unnamed} not by their name; "
            f"{self.lines} lines (uses are counted by name)"
        )


def product() -> Uses:
    """Read the whole product."""
    uses = Uses()
    for package in _PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            uses.add(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    return uses


def sharing(functions: Iterable[str], uses: Uses) -> Sharing:
    """Sort functions by their uses."""
    kinds, lines = Counter[str](), 0
    for function in functions:
        name = function.rpartition(":")[2].rpartition(".")[2]
        own_lines = uses.lines.get(function)
        lines += own_lines or 0
        if own_lines is None or name.startswith("__") or not uses.by_name[name]:
            kinds["unnamed"] += 1
        elif uses.by_name[name] > 1:
            kinds["shared"] += 1
        else:
            kinds["long" if own_lines > SHORT_LINES else "short"] += 1
    return Sharing(kinds["shared"], kinds["long"], kinds["short"], kinds["unnamed"], lines)
