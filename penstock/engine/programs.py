"""What can be said of a program without running it."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.connectors import create_input
from penstock.engine.difference import Difference, difference
from penstock.engine.fingerprints import Identity, identities
from penstock.engine.relations import Relation, ViewRelation, analyse
from penstock.engine.session import application, circuit_session
from penstock.errors import StateError
from penstock.plan.catalyst import Catalyst
from penstock.plan.explain import FORMATS, explain_whole
from penstock.plan.explain import explain as explain_node
from penstock.sql import Program, parse_program


def relations_of(program: Program) -> dict[str, Relation]:
    """The tables and views of a program, by their lower-case names."""
    spark = application(1, {})
    return analyse(program, Catalyst(circuit_session(spark, 1)))


def check(sql: str) -> None:
    """Raise ProgramError if the program is wrong."""
    _analysed(sql)


def explain(sql: str, view: str | None = None, format: str = "text") -> str:
    """How the views of a program (or one of them) would be kept up to date."""
    relations = _analysed(sql)
    if view is not None:
        return explain_view(relations, view, format)
    views = [r.name for r in relations.values() if isinstance(r, ViewRelation)]
    texts = [explain_view(relations, name, format) for name in views]
    return f"[{', '.join(texts)}]" if format == "json" else "\n\n".join(texts)


def diff(old_sql: str, new_sql: str) -> Difference:
    """What becomes of each table and view when a new program takes the place of an old one."""
    return difference(identified(old_sql), identified(new_sql))


def identified(sql: str) -> dict[str, Identity]:
    """What the tables and views of a program are, to be compared with those of another one."""
    return identities(relations_of(parse_program(sql)))


def explain_view(relations: Mapping[str, Relation], view: str, format: str) -> str:
    """The strategy of each operator of a view, and why."""
    relation = relations.get(view.lower())
    if not isinstance(relation, ViewRelation):
        known = ", ".join(r.name for r in relations.values() if isinstance(r, ViewRelation))
        raise StateError(f"there is no view {view}; the views are: {known}")
    if format not in FORMATS:
        raise StateError(f"unknown format {format!r}; known: {', '.join(FORMATS)}")
    if relation.node is None:
        operators = list(explain_whole(relation.reason or "", relation.reads))
    else:
        operators = list(explain_node(relation.node))
    return FORMATS[format](relation.name, operators)


def _analysed(sql: str) -> dict[str, Relation]:
    program = parse_program(sql)
    for table in program.tables:
        for connector in table.connectors:
            create_input(connector, table).close()
    return relations_of(program)
