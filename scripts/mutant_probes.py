"""Calls in the code that tell which of its statements a test executes."""

from __future__ import annotations

import ast

__all__ = ["Probes"]

HEADER = "import builtins; __seen__ = getattr(builtins, '__seen__', id)"
"""A program that a test starts runs the same code and has nobody to tell."""


class Probes:
    """Calls in the code that tell which of its statements run.

    They take far less time than a trace of all calls, and threads need nothing further.
    """

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self._spans: list[tuple[str, int, int]] = []

    def inserted(self, source: str, file: str) -> str:
        """The source with a call before each statement of a function. file: as in `Mutant`."""
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._insert(node, file)
        first = next((n for n, node in enumerate(tree.body) if not _comes_first(node)), 0)
        tree.body[first:first] = ast.parse(HEADER).body
        return ast.unparse(ast.fix_missing_locations(tree))

    def _insert(self, node: ast.AST, file: str) -> None:
        for _, value in ast.iter_fields(node):
            children = value if isinstance(value, list) else []
            if children and all(isinstance(child, ast.stmt) for child in children):
                value[:] = [part for child in children for part in self._with_probe(child, file)]
            for child in children:
                if (
                    isinstance(child, ast.stmt)
                    and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
                ) or isinstance(child, ast.ExceptHandler | ast.match_case):
                    self._insert(child, file)

    def _with_probe(self, node: ast.stmt, file: str) -> list[ast.stmt]:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return [node]  # a docstring stays the first statement
        # Of a block, only what is before the statements in it.
        inside = [child.lineno for child in ast.walk(node) if isinstance(child, ast.stmt)][1:]
        last = node.end_lineno or node.lineno
        if inside and not isinstance(node, ast.Match):
            last = max(node.lineno, min(inside) - 1)
        number = len(self._spans)
        self._spans.append((file, node.lineno, last))
        return [ast.parse(f"__seen__({number})").body[0], node]

    def lines(self) -> set[tuple[str, int]]:
        """Files and lines that ran since `seen` was emptied."""
        spans = [self._spans[number] for number in self.seen]
        return {(file, n) for file, first, last in spans for n in range(first, last + 1)}


def _comes_first(node: ast.stmt) -> bool:
    future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
    return future or isinstance(node, ast.Expr)
