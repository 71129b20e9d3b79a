"""Program text -> tables, views and connectors. Needs no Spark."""

from penstock.sql.parse import parse_program
from penstock.sql.program import Column, Connector, Program, Table, View, ViewKind

__all__ = ["Column", "Connector", "Program", "Table", "View", "ViewKind", "parse_program"]
