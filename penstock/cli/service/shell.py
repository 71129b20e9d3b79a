"""`penstock shell`: a prompt for SQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Group

from penstock.cli.exit_codes import ExitCode
from penstock.cli.service.drawing import table, text
from penstock.cli.service.output import draw
from penstock.cli.service.prompt import Prompt
from penstock.cli.service.querying import ResultForm, answer
from penstock.cli.service.refusals import CommandError
from penstock.cli.service.session import Name, Session, service_command
from penstock.cli.service.statements import split

_HELP = r"""A statement ends with ; and may have several lines.
\d          tables and views
\d NAME     columns of one of them
\q, Ctrl-D  leave
Ctrl-C      give up the statement, or the query that runs"""

_WORDS = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "JOIN", "LEFT JOIN", "ON", "AS",
    "AND", "OR", "NOT", "NULL", "COUNT", "SUM", "AVG", "MIN", "MAX", "DISTINCT", "INSERT INTO", "VALUES",
)  # fmt: skip


def add_commands(app: typer.Typer) -> None:
    service_command(app, "shell", "echo 'SELECT * FROM by_region;' | penstock shell shop")(shell)


def shell(
    session: Session,
    name: Name,
    form: Annotated[
        ResultForm, typer.Option("--format", help="text draws tables; json is a JSON object in each line.")
    ] = ResultForm.TEXT,
) -> None:
    """Ask a running pipeline with SQL, statement by statement: at a prompt, or from a pipe.

    A statement ends with a semicolon. From a pipe, the first statement that fails ends the shell.
    """
    _Shell(session, name, form).run()


class _Shell:
    """Reads statements and commands, and answers them."""

    def __init__(self, session: Session, name: str, form: ResultForm) -> None:
        self._session = session
        self._name = name
        self._form = form
        row = session.client.get("pipelines", name)
        self._schema: dict[str, Any] = (row["program_info"] or {}).get("schema") or {}
        self._prompt = Prompt((*_WORDS, *self._names()))

    def run(self) -> None:
        if self._prompt.is_terminal:
            self._session.out.say(rf"Pipeline {self._name}. \? for help, \q to leave.")
        for statement in self._statements():
            self._guarded(statement)

    def _statements(self) -> Iterator[str]:
        """Statements and commands, until the end of what is typed."""
        unfinished = ""
        while True:
            try:
                line = self._prompt.line(f"{self._name}{'->' if unfinished else '=>'} ")
            except EOFError:
                break
            except KeyboardInterrupt:
                if not self._prompt.is_terminal:
                    raise
                unfinished = ""
                self._session.out.say("")
                continue
            if not unfinished and line.lstrip().startswith("\\"):
                if (command := line.strip()) == r"\q":
                    return
                yield command
                continue
            typed = f"{unfinished}\n{line}" if unfinished else line
            found, unfinished = split(typed)
            if found:
                self._prompt.remember(typed.strip())
            yield from found
        if unfinished and not self._prompt.is_terminal:
            yield unfinished

    def _guarded(self, statement: str) -> None:
        """At a prompt, what goes wrong is told, and the next statement asked for."""
        try:
            self._do(statement)
        except CommandError as error:
            if not self._prompt.is_terminal:
                raise
            if error.hint is not None:
                error.hint = error.hint.format(name=self._name)
            self._session.out.error(error)
        except KeyboardInterrupt:
            if not self._prompt.is_terminal:
                raise
            self._session.out.say("The query is given up.")

    def _do(self, statement: str) -> None:
        if not statement.startswith("\\"):
            answer(self._session, self._name, statement, self._form)
            return
        command, _, argument = statement.partition(" ")
        if command == r"\?":
            self._session.out.say(_HELP)
        elif command == r"\d":
            self._describe(argument.strip().rstrip(";"))
        else:
            raise CommandError(ExitCode.USAGE, rf"There is no {command}; \? lists what there is")

    def _relations(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for kind, field in (("table", "inputs"), ("view", "outputs")):
            for relation in self._schema.get(field, []):
                yield kind, relation

    def _names(self) -> Iterator[str]:
        for _, relation in self._relations():
            yield relation["name"]
            yield from (field["name"] for field in relation["fields"])

    def _describe(self, wanted: str) -> None:
        if not wanted:
            rows = [
                (relation["name"], kind, ", ".join(field["name"] for field in relation["fields"]))
                for kind, relation in self._relations()
            ]
            draw(table(("name", "kind", "columns"), rows))
            return
        parts = [
            Group(text(f"{kind} {relation['name']}"), table(("column", "type", "null"), _columns(relation)))
            for kind, relation in self._relations()
            if relation["name"].lower() == wanted.strip('"`').lower()
        ]
        if not parts:
            raise CommandError(ExitCode.NOT_FOUND, f"There is no table or view {wanted}")
        draw(Group(*parts))


def _columns(relation: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    key = relation.get("primary_key") or []
    for field in relation["fields"]:
        kind = field["columntype"]
        null = "" if kind["nullable"] else "not null"
        yield field["name"], _type(kind), "primary key" if field["name"] in key else null


def _type(kind: dict[str, Any]) -> str:
    """A type as SQL writes it.

    >>> _type({"type": "ARRAY", "component": {"type": "DECIMAL", "precision": 12, "scale": 2}})
    'DECIMAL(12, 2) ARRAY'
    """
    if kind["type"] == "ARRAY":
        return f"{_type(kind['component'])} ARRAY"
    if kind["type"] == "MAP":
        return f"MAP<{_type(kind['key'])}, {_type(kind['value'])}>"
    if kind.get("precision") is not None:
        return f"{kind['type']}({kind['precision']}, {kind.get('scale') or 0})"
    return str(kind["type"])
