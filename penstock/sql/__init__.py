"""Program text -> tables, views and connectors. Needs no Spark."""

from penstock.sql.insert import Insert, parse_insert
from penstock.sql.parse import parse_program
from penstock.sql.program import Column, Connector, Program, Table, View, ViewKind

__all__ = [
    "Column",
    "Connector",
    "Insert",
    "Program",
    "Table",
    "View",
    "ViewKind",
    "parse_insert",
    "parse_program",
]
