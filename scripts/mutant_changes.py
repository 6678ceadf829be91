"""The small changes that mutation testing makes to a source text.

Texts, log messages below warnings and named constants, whose values are a choice, are left alone.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["Mutant", "mutants_of"]

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    file: in src/tidegate. line: its first line. start, end: what is replaced, in characters. old,
    new: the code before and after. at_import: whether it runs when the file is imported, and not in
    a function. text: the whole first line.
    """

    file: str
    line: int
    start: int
    end: int
    old: str
    new: str
    at_import: bool = False
    text: str = ""

    def key(self, source: str) -> str:
        """A name that changes with the file."""
        text = f"{self.file}\0{self.start}\0{self.end}\0{self.new}\0{source}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def describe(self) -> str:
        """Where and what, in a line."""
        return f"{self.file}:{self.line}  {_short(self.old)}  →  {_short(self.new)}"

    def applied(self, source: str) -> str:
        """The source with the change."""
        return source[: self.start] + self.new + source[self.end :]


def _short(code: str) -> str:
    text = " ".join(code.split())
    return text if len(text) <= 80 else text[:79] + "…"


def mutants_of(source: str, file: str) -> list[Mutant]:
    """All mutants of a source text, in the order of the text. file: its name in the mutants."""
    tree = ast.parse(source)
    starts = [0]
    for text in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(text))
    lines = source.splitlines()

    def position(line: int, column: int) -> int:
        # Columns count bytes.
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    found: dict[tuple[int, int, str], Mutant] = {}
    for node, new, at_import in _changes(tree):
        start = position(node.lineno, node.col_offset)
        end = position(node.end_lineno or node.lineno, node.end_col_offset or 0)
        old = source[start:end]
        if old != new:
            text = lines[node.lineno - 1].strip()
            found[start, end, new] = Mutant(
                file, node.lineno, start, end, old, new, at_import, text
            )
    return sorted(found.values(), key=lambda mutant: (mutant.start, -mutant.end, mutant.new))


def _changes(tree: ast.AST) -> Iterator[tuple[Any, str, bool]]:
    """Nodes, the code to replace each with, and whether it runs at import."""
    pending: list[tuple[ast.AST, bool]] = [(tree, True)]
    while pending:
        node, at_import = pending.pop()
        yield from ((where, new, at_import) for where, new in _of_node(node))
        if isinstance(node, ast.JoinedStr):
            continue  # its parts have no position in the file in Python 3.11
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for name, value in ast.iter_fields(node):
            if name in ("decorator_list", "annotation", "returns"):
                continue
            later = function and name == "body"
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not _is_no_code(child):
                    pending.append((child, at_import and not later))


def _is_no_code(node: ast.AST) -> bool:
    """Whether a node is the list of public names, a constant or a message nobody relies on."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        name = node.targets[0].id
        return name in ("__all__", "log") or name.isupper()
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func) in ("log.debug", "log.info")
    return isinstance(node, ast.Import | ast.ImportFrom)


def _of_node(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    if isinstance(node, ast.Compare):
        for n, operator in enumerate(node.ops):
            swapped = SWAPS[type(operator)]()
            ops = [*node.ops[:n], swapped, *node.ops[n + 1 :]]
            yield node, _code(ast.Compare(node.left, ops, node.comparators))  # type: ignore[arg-type]
    elif isinstance(node, ast.BoolOp):
        yield node, _code(ast.BoolOp(SWAPS[type(node.op)](), node.values))  # type: ignore[arg-type]
    elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
        swapped = SWAPS[type(node.op)]()
        yield node, _code(ast.BinOp(node.left, swapped, node.right))  # type: ignore[arg-type]
    elif isinstance(node, ast.AugAssign) and type(node.op) in SWAPS:
        swapped = SWAPS[type(node.op)]()
        yield node, _code(ast.AugAssign(node.target, swapped, node.value))  # type: ignore[arg-type]
        yield node, "pass"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, _code(node.operand)
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        if not isinstance(node.test, ast.Compare | ast.UnaryOp):  # those have mutants already
            yield node.test, f"(not {ast.unparse(node.test)})"
    elif isinstance(node, ast.Constant):
        yield from ((node, text) for text in _of_constant(node.value))
    elif isinstance(node, ast.Return):
        if node.value is not None and ast.unparse(node.value) != "None":
            yield node, "return None"
    elif isinstance(node, ast.Expr):
        if isinstance(node.value, ast.Call):
            yield node, "pass"
    elif isinstance(node, ast.Assign):
        if all(isinstance(target, ast.Attribute) for target in node.targets):
            yield node, "pass"
    elif isinstance(node, ast.Raise):
        yield node, "pass"
    elif isinstance(node, ast.Break | ast.Continue):
        yield node, "continue" if isinstance(node, ast.Break) else "break"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NAMES:
        yield node.func, NAMES[node.func.id]


def _of_constant(value: object) -> Iterator[str]:
    if isinstance(value, bool):
        yield str(not value)
    elif isinstance(value, int):
        yield str(value + 1)
    elif isinstance(value, float):
        yield repr(2 * value + 1)


def _code(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if isinstance(node, ast.stmt) else f"({text})"
