"""A program as the reference API describes it: tables and views with their columns, and connectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    YearMonthIntervalType,
)

from penstock.engine.relations import Relation
from penstock.sql import Program, Table, View, ViewKind

_NAMES = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "REAL",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "binary": "VARBINARY",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamp_ntz": "TIMESTAMP",
    "variant": "VARIANT",
    "void": "NULL",
}


def program_info(program: Program, relations: Mapping[str, Relation]) -> dict[str, Any]:
    """`PartialProgramInfo` of the reference."""
    views = [view for view in program.views if view.kind is not ViewKind.LOCAL]
    return {
        "schema": {
            "inputs": [_relation(t, relations[t.name.lower()].schema) for t in program.tables],
            "outputs": [_relation(v, relations[v.name.lower()].schema) for v in views],
        },
        "input_connectors": _connectors(program.tables),
        "output_connectors": _connectors(views),
        "udf_stubs": "",
    }


def _relation(relation: Table | View, columns: Sequence[StructField]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": relation.name,
        "case_sensitive": False,
        "fields": [_field(column) for column in columns],
        "materialized": True,
        "properties": {
            key: {"key_position": _NOWHERE, "value_position": _NOWHERE, "value": value}
            for key, value in relation.properties.items()
        },
    }
    if isinstance(relation, Table):
        described["primary_key"] = list(relation.primary_key) or None
        described["fields"] = [
            {**field, "default": column.default}
            for field, column in zip(described["fields"], relation.columns, strict=True)
        ]
    return described


_NOWHERE = {"start_line_number": 0, "start_column": 0, "end_line_number": 0, "end_column": 0}


def _field(column: StructField) -> dict[str, Any]:
    return {
        "name": column.name,
        "case_sensitive": False,
        "columntype": column_type(column.dataType, nullable=column.nullable),
        "unused": False,
    }


def column_type(type_: DataType, *, nullable: bool) -> dict[str, Any]:
    """`ColumnType` of the reference.

    >>> from pyspark.sql.types import IntegerType
    >>> column_type(ArrayType(IntegerType(), False), nullable=True)
    {'type': 'ARRAY', 'nullable': True, 'component': {'type': 'INTEGER', 'nullable': False}}
    """
    match type_:
        case DecimalType():
            more: dict[str, Any] = {"type": "DECIMAL", "precision": type_.precision, "scale": type_.scale}
        case ArrayType():
            element = column_type(type_.elementType, nullable=type_.containsNull)
            return {"type": "ARRAY", "nullable": nullable, "component": element}
        case MapType():
            more = {
                "type": "MAP",
                "key": column_type(type_.keyType, nullable=False),
                "value": column_type(type_.valueType, nullable=type_.valueContainsNull),
            }
        case StructType():
            more = {"type": "STRUCT", "fields": [_field(field) for field in type_.fields]}
        case DayTimeIntervalType():
            more = {"type": "INTERVAL_DAY_SECOND"}
        case YearMonthIntervalType():
            more = {"type": "INTERVAL_YEAR_MONTH"}
        case _:
            more = {"type": _NAMES.get(type_.simpleString().split("(")[0], "VARIANT")}
    return {**more, "nullable": nullable}


def _connectors(relations: Sequence[Table | View]) -> dict[str, Any]:
    return {
        f"{relation.name}.{connector.name}": {"stream": relation.name, **connector.config}
        for relation in relations
        for connector in relation.connectors
    }
