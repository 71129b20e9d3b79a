"""From program text to a program: statements are read one by one, then their names are resolved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from penstock.errors import ProgramError
from penstock.sql.cursor import Cursor
from penstock.sql.index import Index, read_index
from penstock.sql.nearest import suggestion
from penstock.sql.order import CyclicError, dependency_order
from penstock.sql.program import Program, Table, View, ViewKind
from penstock.sql.relations import Relation, relations_read
from penstock.sql.source import Source, Token
from penstock.sql.statement import SUPPORTED, read_create, read_relation_name
from penstock.sql.table import read_table
from penstock.sql.view import read_view


@dataclass(frozen=True)
class _Declared:
    """A table or view and what errors about it need."""

    relation: Table | View
    statement: str


def parse_program(text: str) -> Program:
    """Read a program; the first thing that is wrong in it raises a ProgramError that says where.

    >>> program = parse_program('''
    ...     CREATE TABLE orders (id BIGINT PRIMARY KEY, amount DECIMAL(10, 2));
    ...     CREATE VIEW total AS SELECT sum(amount) AS amount FROM orders;
    ... ''')
    >>> program.tables[0].primary_key, program.views[0].depends_on
    (('id',), ('orders',))
    """
    source = Source(text)
    statements = source.statements()
    if not statements:
        raise ProgramError(f"the program is empty; expected {SUPPORTED}", line=1, column=1)
    declared: dict[str, _Declared] = {}
    indexes: list[Index] = []
    for number, tokens in enumerate(statements, 1):
        cursor = Cursor(source, tokens, f"statement {number}")
        if (index := read_index(cursor)) is not None:
            indexes.append(index)
        else:
            _declare(declared, cursor, tokens[0])
    for index in indexes:
        _attach(index, declared)
    relations = [_resolve(item, declared) for item in declared.values()]
    _check_connectors(relations, declared)
    views = {view.name: view for view in relations if isinstance(view, View)}
    return Program(
        text=text,
        tables=tuple(table for table in relations if isinstance(table, Table)),
        views=tuple(views[name] for name in _order(views, declared)),
    )


def _check_connectors(relations: Iterable[Table | View], declared: Mapping[str, _Declared]) -> None:
    """A connector's name is its own in the whole program: the journal knows it by that name."""
    owners: dict[str, str] = {}
    for relation in relations:
        for connector in relation.connectors:
            owner = owners.setdefault(connector.name, relation.name)
            if owner != relation.name or connector.name == _RESERVED:
                why = "the name is reserved" if connector.name == _RESERVED else f"{owner} has one already"
                raise ProgramError(
                    f"a connector of {relation.name} is called '{connector.name}': {why}; choose another",
                    line=relation.line,
                    column=relation.column,
                    statement=declared[relation.name.lower()].statement,
                )


_RESERVED = "api"


def _declare(declared: dict[str, _Declared], cursor: Cursor, first: Token) -> None:
    kind = read_create(cursor)
    name = read_relation_name(cursor, kind)
    earlier = declared.get(name.text.lower())
    if earlier is not None:
        message = f"duplicate name '{name.text}': it is declared at line {earlier.relation.line} already"
        raise cursor.error(message, name)
    if kind is None:
        relation: Table | View = read_table(cursor, name, first.start)
    else:
        relation = read_view(cursor, name, kind, first.start)
    declared[name.text.lower()] = _Declared(relation, cursor.statement)


def _attach(index: Index, declared: dict[str, _Declared]) -> None:
    """Add an index to its view."""
    error = index.cursor.error
    item = declared.get(index.view.text.lower())
    if item is None:
        known = [found.relation.name for found in declared.values() if isinstance(found.relation, View)]
        hint = suggestion(index.view.text, known, "views")
        raise error(f"unknown view '{index.view.text}'; {hint}", index.view)
    view = item.relation
    if not isinstance(view, View) or view.kind is ViewKind.LOCAL:
        raise error(f"{view.name} has no outputs that an index could be for; expected a view", index.view)
    name = index.name.text.lower()
    if any(name in found.relation.indexes for found in declared.values() if isinstance(found.relation, View)):
        raise error(f"duplicate name '{index.name.text}': there is such an index already", index.name)
    view = replace(view, indexes={**view.indexes, name: index.columns})
    declared[view.name.lower()] = replace(item, relation=view)


def _resolve(item: _Declared, declared: Mapping[str, _Declared]) -> Table | View:
    """The view with the names of what it reads; a table as it is."""
    view = item.relation
    if isinstance(view, Table):
        return view
    reading = relations_read(view.query)
    depends_on: list[str] = []
    for relation in reading.relations:
        target = declared.get(relation.parts[0].lower()) if len(relation.parts) == 1 else None
        if target is None and reading.certain:
            raise _unknown(view, item.statement, relation, declared)
        if target is None or target.relation.name in depends_on:
            continue
        if target is item and not reading.certain:
            # More likely a column with the view's name than a view that reads itself; Spark will tell.
            continue
        depends_on.append(target.relation.name)
    return replace(view, depends_on=tuple(depends_on))


def _order(views: Mapping[str, View], declared: Mapping[str, _Declared]) -> list[str]:
    reads = {view.name: [name for name in view.depends_on if name in views] for view in views.values()}
    try:
        return dependency_order(reads)
    except CyclicError as cause:
        first = views[cause.cycle[0]]
        message = f"views read each other in a cycle: {cause}; expected no view to read itself"
        statement = declared[first.name.lower()].statement
        raise ProgramError(message, line=first.line, column=first.column, statement=statement) from None


def _unknown(
    view: View, statement: str, relation: Relation, declared: Mapping[str, _Declared]
) -> ProgramError:
    line, column = view.locate(*Source(view.query).place(relation.offset))
    name = ".".join(relation.parts)
    if len(relation.parts) > 1 and relation.parts[-1].lower() in declared:
        hint = (
            f"names have one part here: did you mean '{declared[relation.parts[-1].lower()].relation.name}'?"
        )
    else:
        known = [item.relation.name for item in declared.values() if item.relation.name != view.name]
        hint = suggestion(relation.parts[-1], known, "tables and views")
    return ProgramError(
        f"unknown table or view '{name}'; {hint}", line=line, column=column, statement=statement
    )
