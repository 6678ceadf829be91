"""Finds words and turns of phrase that the project's prose does without.

``python -m tests.docs.prose [PATH…]`` prints each place, and fails if there is one. It reads
Markdown outside of code blocks, every string and comment of Python files (docstrings, help and
error messages among them), and the dashboard's scripts and pages.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

MANNERISMS = {
    r"so many": "a number, or the parameter's name",
    r"so long": "a duration, or the parameter's name",
    r"wish(es|ed)?": "target, request, recommendation",
    r"(fore)?(told|tells?|telling)": "says, reports, shows, returns, forecasts",
    r"lots?|by lot|draws? lots": "random, at random",
    r"books?|booked|bookkeeping": "accounting, entries, totals",
    r"ledgers?": "audit, claims, log",
    r"thereof": "of it",
    r"of (its|their|one's|your) own": "own, separate, dedicated",
    r"one's own": "your own",
    r"in vain": "without effect",
    r"whoever|whosoever": "the caller, the reader",
    r"let loose": "allowed to act",
    r"heed(s|ed|ing)?": "apply, follow",
    r"what (would have )?(comes?|came) of": "the result of",
    r"(comes?|came) to nothing": "has no effect",
    r"for people|for machines": "as text, as JSON",
    r"has? a word|the last word": "takes precedence",
    r"said aloud": "stated",
    r"given up": "abandoned",
    r"superfluous": "no longer needed",
    r"beside": "next to, in addition to, compared with",
    r"anew": "again",
    r"dials?": "live settings",
    r"two cooks": "two autoscalers",
}
"""What not to write, as a regular expression, with what to write in its place."""

PATTERN = re.compile(
    r"\b(" + "|".join(f"(?:{words})" for words in MANNERISMS) + r")\b", re.IGNORECASE
)


@dataclass(frozen=True)
class Finding:
    """One mannerism."""

    path: Path
    line: int
    words: str

    def __str__(self) -> str:
        place = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        remedy = next(
            better
            for words, better in MANNERISMS.items()
            if re.fullmatch(words, self.words, re.IGNORECASE)
        )
        return f"{place}:{self.line}: “{self.words}”; write {remedy}"


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file that are prose, with their numbers."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.STRING, tokenize.COMMENT):
                # In code within docstrings and in names there may be any word.
                for offset, line in enumerate(token.string.split("\n")):
                    if not re.match(r"\s*(>>>|\.\.\.)", line):
                        yield token.start[0] + offset, re.sub(r"`[^`]*`", "", line)
        return
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if path.suffix == ".md" and line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, re.sub(r"`[^`]*`", "", line)


def findings(paths: list[Path]) -> list[Finding]:
    """All mannerisms in these files and folders."""
    files: list[Path] = []
    for path in paths:
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        files += [f for f in inside if f.suffix in (".py", ".md", ".js", ".html")]
    return [
        Finding(file, number, match.group(0))
        for file in files
        for number, line in prose_of(file)
        for match in PATTERN.finditer(line)
    ]


PLACES = [
    ROOT / name
    for name in (
        "README.md", "CONTRIBUTING.md", "SCOPE.md", "docs", "designs", "src", "examples"
    )
]  # fmt: skip
"""Where the project speaks to its users."""

if __name__ == "__main__":
    found = findings([Path(word).resolve() for word in sys.argv[1:]] or PLACES)
    print("\n".join(map(str, found)))
    print(f"{len(found)} mannerisms")
    sys.exit(bool(found))
