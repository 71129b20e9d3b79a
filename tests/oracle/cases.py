"""Reads the SQL case files: `-- name: ...`, then the query, ended by `;`.

A case may declare helper views: every statement of a case but the last is a CREATE VIEW. A line
that ends with `;` ends a statement; other comments are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

FIXTURES = Path(__file__).parent.parent / "fixtures"

_NAME = re.compile(r"^-- name: *(.+?) *$")
_HELPER = re.compile(r"^CREATE\s+((MATERIALIZED|LOCAL)\s+)?VIEW\s+(?P<name>\w+)", re.IGNORECASE)


@dataclass(frozen=True)
class Case:
    """One named query, and the views it needs."""

    topic: str
    name: str
    query: str
    helpers: tuple[str, ...] = ()

    @property
    def slug(self) -> str:
        """The name as a word: `left join on two keys` -> `left_join_on_two_keys`."""
        return re.sub(r"\W+", "_", self.name.lower()).strip("_")

    @property
    def view(self) -> str:
        """The name of the view that holds the case's result."""
        return f"{self.topic}_{self.slug}"

    @property
    def helper_names(self) -> tuple[str, ...]:
        """The names of the helper views, in order of declaration."""
        return tuple(_helper_name(helper) for helper in self.helpers)

    @property
    def statements(self) -> str:
        """The case as a piece of a Penstock program."""
        views = [*self.helpers, f"CREATE VIEW {self.view} AS\n{self.query}"]
        return "".join(f"{view};\n" for view in views)

    @property
    def temporary_helpers(self) -> tuple[str, ...]:
        """The helper views as Spark's own statements."""
        return tuple(
            _HELPER.sub(r"CREATE OR REPLACE TEMPORARY VIEW \g<name>", helper) for helper in self.helpers
        )


def _helper_name(statement: str) -> str:
    match = _HELPER.match(statement)
    if match is None:
        raise ValueError(f"expected CREATE VIEW, found: {statement}")
    return match["name"]


def _statements(text: str) -> list[str]:
    """Split at lines that end with `;`, drop comment lines."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    pieces = re.split(r";[ \t]*(?:\n|$)", "\n".join(lines))
    return [piece.strip() for piece in pieces if piece.strip()]


def parse_cases(topic: str, text: str) -> Iterator[Case]:
    """The cases of one file, in order."""
    name: str | None = None
    body: list[str] = []
    for line in [*text.splitlines(), "-- name: end"]:
        match = _NAME.match(line)
        if match is None:
            body.append(line)
            continue
        if name is not None:
            *helpers, query = _statements("\n".join(body))
            yield Case(topic, name, query, tuple(helpers))
        name, body = match[1], []


def load_cases(directory: Path = FIXTURES / "sql") -> list[Case]:
    """Every case of every topic, by topic."""
    files = sorted(path for path in directory.glob("*.sql") if path.name != "schema.sql")
    return [case for path in files for case in parse_cases(path.stem, path.read_text())]


def load_queries(directory: Path) -> list[Case]:
    """A directory with one query per file (TPC-H, Nexmark): `q01.sql`, `q02.sql`, ..."""
    cases = []
    for path in sorted(directory.glob("q*.sql")):
        *helpers, query = _statements(path.read_text())
        cases.append(Case(directory.name, path.stem, query, tuple(helpers)))
    return cases


def load_schema(directory: Path = FIXTURES / "sql") -> str:
    """The CREATE TABLE statements that the cases of a directory read."""
    return (directory / "schema.sql").read_text()


def program_of(schema: str, cases: Sequence[Case]) -> str:
    """One program with the tables and a view per case."""
    return schema + "\n" + "\n".join(case.statements for case in cases)
