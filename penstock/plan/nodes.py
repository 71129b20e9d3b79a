"""The typed plan: the small algebra that Spark's optimizer leaves of any SQL query.

Expressions stay Spark's own and opaque; a node knows only which columns it has, by id.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


@dataclass(frozen=True)
class Attribute:
    """A column of a plan: the id that expressions refer to it by, its name, and Spark's own object."""

    id: int
    name: str
    ref: Any


@dataclass(frozen=True)
class Expression:
    """An expression of Spark's; `text` is for people, and `mark` is the same for the same expression,
    and only for it, in every planning run."""

    ref: Any
    text: str
    mark: str


@dataclass(frozen=True)
class Node:
    """What every node has."""

    output: tuple[Attribute, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return ()

    @property
    def label(self) -> str:
        """The node as a person reads it in `explain`."""
        return type(self).__name__


@dataclass(frozen=True)
class Unary(Node):
    child: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.child,)


@dataclass(frozen=True)
class Scan(Node):
    """All columns of a table or of another view."""

    relation: str

    @property
    def label(self) -> str:
        return f"Scan {self.relation}"


@dataclass(frozen=True)
class Values(Node):
    """Constant rows: VALUES, SELECT without FROM, range()."""

    ref: Any
    text: str


@dataclass(frozen=True)
class Project(Unary):
    expressions: tuple[Expression, ...]

    @property
    def label(self) -> str:
        return f"Project {', '.join(a.name for a in self.output)}"


@dataclass(frozen=True)
class Filter(Unary):
    condition: Expression

    @property
    def label(self) -> str:
        return f"Filter {self.condition.text}"


@dataclass(frozen=True)
class Generate(Unary):
    """explode and its kin; `ref` is Spark's node, to be put on another child."""

    ref: Any
    generator: str
    text: str

    @property
    def label(self) -> str:
        return f"Generate {self.generator}"


@dataclass(frozen=True)
class Expand(Unary):
    """Each row once per grouping set."""

    projections: tuple[tuple[Expression, ...], ...]


@dataclass(frozen=True)
class Union(Node):
    inputs: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return self.inputs


class JoinType(Enum):
    INNER = "inner"
    LEFT = "left outer"
    FULL = "full outer"
    SEMI = "semi"
    ANTI = "anti"
    EXISTENCE = "existence"


@dataclass(frozen=True)
class Join(Node):
    """A right outer join is read as a left one with its sides exchanged.

    `left_keys[i] = right_keys[i]` are the equalities to look up by (none: every pair is a candidate);
    `condition` is the whole condition, equalities included, or None.
    """

    left: Node
    right: Node
    type: JoinType
    left_keys: tuple[Expression, ...]
    right_keys: tuple[Expression, ...]
    condition: Expression | None

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @property
    def label(self) -> str:
        return f"Join {self.type.value}" + (f" on {self.condition.text}" if self.condition else "")


@dataclass(frozen=True)
class Aggregate(Unary):
    """GROUP BY, or a global aggregate if there are no keys.

    `reason` says why the result cannot be kept as sums that a change adds to; None if it can.
    """

    grouping: tuple[Expression, ...]
    expressions: tuple[Expression, ...]
    functions: tuple[str, ...]
    reason: str | None

    @property
    def label(self) -> str:
        keys = ", ".join(e.text for e in self.grouping)
        return f"Aggregate {', '.join(self.functions) or 'distinct'}" + (f" by {keys}" if keys else "")


@dataclass(frozen=True)
class Window(Unary):
    ref: Any
    partition: tuple[Expression, ...]
    functions: tuple[str, ...]
    text: str

    @property
    def label(self) -> str:
        keys = ", ".join(e.text for e in self.partition)
        return f"Window {', '.join(self.functions)} over " + (
            f"partition by {keys}" if keys else "everything"
        )


@dataclass(frozen=True)
class Limit(Unary):
    """ORDER BY ... LIMIT ... OFFSET; `order` holds Spark's SortOrder expressions."""

    order: tuple[Expression, ...]
    limit: int | None
    offset: int

    @property
    def label(self) -> str:
        by = f" by {', '.join(e.text for e in self.order)}" if self.order else ""
        count = "all" if self.limit is None else str(self.limit)
        return f"Limit {count}{f' offset {self.offset}' if self.offset else ''}{by}"
