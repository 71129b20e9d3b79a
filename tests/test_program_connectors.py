"""Connectors of tables and views: names, shape, and errors inside their JSON text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.errors import ProgramError
from penstock.sql import Connector, parse_program


def connectors(value: str) -> tuple[Connector, ...]:
    """The connectors of a table whose property is the given SQL string literal."""
    return parse_program(f"CREATE TABLE t (a INT) WITH ('connectors' = {value})").tables[0].connectors


def connectors_of(entries: Any) -> tuple[Connector, ...]:
    return connectors("r'" + json.dumps(entries) + "'")


def error(value: str) -> ProgramError:
    with pytest.raises(ProgramError) as caught:
        connectors(value)
    return caught.value


FILE = {
    "transport": {"name": "file_input", "config": {"path": "a.csv"}},
    "format": {"name": "csv", "config": {}},
}


def test_an_entry_is_kept_as_it_is() -> None:
    entry = {**FILE, "name": "from_file", "max_batch_size": 10, "labels": ["x"]}
    assert connectors_of([entry]) == (Connector("from_file", entry),)


def test_a_connector_without_a_name_gets_one_of_its_own() -> None:
    datagen = {"transport": {"name": "datagen"}}
    named = {**FILE, "name": "t.file_input.2"}
    found = connectors_of([FILE, FILE, datagen, named, FILE])
    assert [c.name for c in found] == [
        "t.file_input",
        "t.file_input.3",
        "t.datagen",
        "t.file_input.2",
        "t.file_input.4",
    ]


def test_no_connectors() -> None:
    assert connectors("'[]'") == ()


@pytest.mark.parametrize(
    "create",
    ["CREATE VIEW v WITH (?) AS SELECT 1", "CREATE MATERIALIZED VIEW v TBLPROPERTIES (?) AS SELECT 1"],
)
def test_a_view_has_connectors_in_both_spellings(create: str) -> None:
    text = create.replace("?", """'connectors' = '[{"transport": {"name": "print"}}]'""")
    assert parse_program(text).views[0].connectors == (
        Connector("v.print", {"transport": {"name": "print"}}),
    )


def test_a_local_view_has_none() -> None:
    with pytest.raises(ProgramError, match="a local view has no outputs"):
        parse_program("CREATE LOCAL VIEW v WITH ('connectors' = '[]') AS SELECT 1")


def test_escapes_of_the_sql_string_are_read_before_the_json() -> None:
    (found,) = connectors(
        """'[{"transport": {"name": "x", "config": {"sep": "\\t", "q": "it''s", "b": "\\\\n"}}}]'"""
    )
    assert found.config["transport"]["config"] == {"sep": "\t", "q": "it's", "b": "\n"}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({}, "expected a JSON list"),
        (["x"], "connectors[0]: expected a JSON object"),
        ([FILE, {}], "connectors[1]: no transport; expected"),
        ([{"transport": "file_input"}], 'connectors[0].transport: expected {"name"'),
        ([{"transport": {}}], "connectors[0].transport.name: expected a name, found null"),
        ([{"transport": {"name": 1}}], "connectors[0].transport.name: expected a name, found 1"),
        (
            [{"transport": {"name": "x", "config": []}}],
            "connectors[0].transport.config: expected a JSON object",
        ),
        ([{"transport": {"name": "x", "path": "y"}}], "connectors[0].transport: unknown field 'path'"),
        ([{**FILE, "format": "csv"}], "connectors[0].format: expected"),
        ([{**FILE, "fromat": {}}], "connectors[0]: unknown field 'fromat'; did you mean 'format'?"),
        ([{**FILE, "name": ""}], 'connectors[0].name: expected a name, found ""'),
        ([{**FILE, "name": "x"}, {**FILE, "name": "x"}], "two connectors are called 'x'"),
    ],
)
def test_the_shape_is_checked(entries: Any, message: str) -> None:
    found = error("r'" + json.dumps(entries) + "'")
    assert found.message.startswith(f"property 'connectors': {message}")
    assert (found.line, found.column) == (1, 47)


@pytest.mark.parametrize(
    ("value", "message", "place"),
    [
        ("''", "Expecting value", (1, 46)),
        ("'[{]'", "Expecting property name enclosed in double quotes", (1, 48)),
        ("'[\n  {\"transport\": }\n]'", "Expecting value", (2, 17)),
        # The two quotes and the escape before the mistake are one character each in the JSON text.
        ("'[\"it''s\", \\\\u0041]'", "Expecting value", (1, 56)),
        ("'[' \n ' x]'", "Expecting value", (2, 4)),
        ("'[] x'", "Extra data", (1, 49)),
        ("'[1'", "Expecting ',' delimiter", (1, 48)),
    ],
)
def test_a_mistake_in_the_json_is_placed_in_the_program(
    value: str, message: str, place: tuple[int, int]
) -> None:
    found = error(value)
    assert found.message.startswith(f"property 'connectors' is not valid JSON: {message}")
    assert (found.line, found.column) == place
    assert found.statement == "statement 1, CREATE TABLE t"


def test_a_lost_backslash_is_explained() -> None:
    assert "a backslash is written twice" in error(r"""'["say \"hi\""]'""").message
    assert connectors(r"""r'[{"name": "say \"hi\"", "transport": {"name": "x"}}]'""")[0].name == 'say "hi"'


@pytest.mark.parametrize(
    ("clauses", "transport", "file_format"),
    [
        (
            "USING csv OPTIONS (path '/data/a.csv', header 'true', sep '|')",
            {"path": "/data/a.csv"},
            {"name": "csv", "config": {"headers": True, "delimiter": "|"}},
        ),
        (
            "USING JSON OPTIONS ('path' = 'a.json', follow true)",
            {"path": "a.json", "follow": True},
            {"name": "json", "config": {"update_format": "raw"}},
        ),
        ("OPTIONS (path 'a') USING parquet", {"path": "a"}, {"name": "parquet", "config": {}}),
    ],
)
def test_a_file_can_be_named_as_in_spark(clauses: str, transport: Any, file_format: Any) -> None:
    (found,) = parse_program(f"CREATE TABLE t (a INT) {clauses}").tables[0].connectors
    expected = {"transport": {"name": "file_input", "config": transport}, "format": file_format}
    assert found == Connector("t.file_input", expected)


@pytest.mark.parametrize(
    ("clauses", "message"),
    [
        ("USING csv OPTIONS (header 'true')", "the file is not named; expected the option path '...'"),
        ("USING csv OPTIONS (path 'a', header 'x')", "option 'header' is 'x'; expected 'true' or 'false'"),
        ("USING csv OPTIONS (path 'a', sep ',', delimiter ';')", "option 'delimiter' is given twice"),
        ("USING parquet OPTIONS (path 'a', header 'true')", "unknown property 'header'"),
        ("OPTIONS (path 'a')", "unknown property 'path'"),
        (
            "USING csv OPTIONS (path 'a') WITH ('connectors' = '[]')",
            "expected either a file in OPTIONS or 'connectors', not both",
        ),
    ],
)
def test_what_is_wrong_with_a_file(clauses: str, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        parse_program(f"CREATE TABLE t (a INT) {clauses}")
    assert caught.value.message.startswith(message)
