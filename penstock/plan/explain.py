"""Say how each operator of a view is kept up to date, and why not more cheaply."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import Enum

from penstock.plan import nodes
from penstock.plan.nodes import JoinType, Node


class Strategy(Enum):
    """From the cheapest to the dearest."""

    SOURCE = "source"
    LINEAR = "linear"
    DELTA_JOIN = "delta-join"
    GROUP_DELTA = "group-delta"
    REDERIVE_GROUPS = "rederive-groups"
    REDERIVE_ALL = "rederive-all"


@dataclass(frozen=True)
class Explained:
    """One operator; `depth` is its place in the tree, the result of the view being 0."""

    operator: str
    strategy: str
    reason: str
    hint: str
    depth: int


def explain(node: Node, depth: int = 0) -> Iterator[Explained]:
    """The operators of a plan, from the result down to the tables."""
    strategy, reason, hint = _judge(node)
    yield Explained(_readable(node.label), strategy.value, reason, hint, depth)
    for child in node.children:
        yield from explain(child, depth + 1)


def explain_whole(reason: str, reads: tuple[str, ...]) -> Iterator[Explained]:
    """A view that is computed anew from everything it reads."""
    yield Explained(
        "Whole view",
        Strategy.REDERIVE_ALL.value,
        f"{reason}: the view is computed again from all rows whenever something it reads changes",
        "put that part into a view of its own, so that only it is computed again",
        0,
    )
    for name in reads:
        yield Explained(f"Scan {name}", Strategy.SOURCE.value, "", "", 1)


def _judge(node: Node) -> tuple[Strategy, str, str]:
    match node:
        case nodes.Scan() | nodes.Values():
            return Strategy.SOURCE, "", ""
        case nodes.Join():
            return _judge_join(node)
        case nodes.Aggregate(reason=None):
            return Strategy.GROUP_DELTA, "", ""
        case nodes.Aggregate(grouping=()):
            return (
                Strategy.REDERIVE_ALL,
                f"{node.reason}, and without GROUP BY the group is everything",
                "group by a column first and aggregate that view: only the changed groups are then read",
            )
        case nodes.Aggregate():
            return Strategy.REDERIVE_GROUPS, node.reason or "", _aggregate_hint(node)
        case nodes.Window(partition=()):
            return (
                Strategy.REDERIVE_ALL,
                "without PARTITION BY one window spans all rows",
                "add PARTITION BY: only the partitions that change are then computed again",
            )
        case nodes.Window():
            return Strategy.REDERIVE_GROUPS, "a window's rows depend on each other within a partition", ""
        case nodes.Limit():
            return (
                Strategy.REDERIVE_ALL,
                "which rows are among the first depends on all rows",
                "rank within groups, row_number() OVER (PARTITION BY ...) <= n, or sort when reading",
            )
        case _:
            return Strategy.LINEAR, "", ""


def _judge_join(node: nodes.Join) -> tuple[Strategy, str, str]:
    reason, hint = "", ""
    if not node.left_keys:
        reason = "no equality to look up by: each changed row meets all rows of the other side"
        hint = "add an equality to the join condition"
    elif node.type is not JoinType.INNER:
        reason = "kept with the number of matches of each row"
    return Strategy.DELTA_JOIN, reason, hint


def _aggregate_hint(node: nodes.Aggregate) -> str:
    reason = node.reason or ""
    if "drift" in reason:
        return "a DECIMAL column adds up exactly and is updated from the change alone"
    if "distinct" in reason:
        return "group by the value too in a view below, and count its rows"
    return ""


_PLACE = re.compile(r"\$[\d.]+")


def _readable(label: str) -> str:
    return _PLACE.sub("", label)


def to_text(view: str, operators: list[Explained]) -> str:
    """A tree for a person."""
    lines = [view]
    for item in operators:
        lines.append(f"{'  ' * (item.depth + 1)}{item.operator}  [{item.strategy}]")
        margin = "  " * (item.depth + 3)
        if item.reason:
            lines.append(f"{margin}why: {item.reason}")
        if item.hint:
            lines.append(f"{margin}cheaper: {item.hint}")
    return "\n".join(lines)


def to_json(view: str, operators: list[Explained]) -> str:
    """For a program."""
    return json.dumps({"view": view, "operators": [asdict(item) for item in operators]}, indent=2)


def to_mermaid(view: str, operators: list[Explained]) -> str:
    """A flowchart, data flowing from tables to the view."""
    lines = ["flowchart BT", f'  result["{view}"]']
    parents: list[str] = ["result"]
    for number, item in enumerate(operators):
        del parents[item.depth + 1 :]
        name = f"n{number}"
        label = item.operator.replace('"', "'")
        lines.append(f'  {name}["{label}<br/>{item.strategy}"] --> {parents[-1]}')
        parents.append(name)
    return "\n".join(lines)


FORMATS = {"text": to_text, "json": to_json, "mermaid": to_mermaid}
