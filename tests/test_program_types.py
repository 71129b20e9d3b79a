"""Column types: every spelling, and what is wrong with the others."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.types import DataType

from penstock.errors import ProgramError
from penstock.sql import parse_program

INTERVALS = "INTERVAL YEAR TO MONTH or INTERVAL DAY TO SECOND"


def type_of(text: str) -> DataType:
    return parse_program(f"CREATE TABLE t (a {text})").tables[0].columns[0].type


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("BOOLEAN", T.BooleanType()),
        ("tinyint", T.ByteType()),
        ("BYTE", T.ByteType()),
        ("SMALLINT", T.ShortType()),
        ("SHORT", T.ShortType()),
        ("INT", T.IntegerType()),
        ("Integer", T.IntegerType()),
        ("BIGINT", T.LongType()),
        ("LONG", T.LongType()),
        ("FLOAT", T.FloatType()),
        ("REAL", T.FloatType()),
        ("DOUBLE", T.DoubleType()),
        ("DECIMAL", T.DecimalType(10, 0)),
        ("DEC(5)", T.DecimalType(5, 0)),
        ("NUMERIC(38, 38)", T.DecimalType(38, 38)),
        ("STRING", T.StringType()),
        ("VARCHAR(20)", T.StringType()),
        ("VARCHAR", T.StringType()),
        ("CHAR(3)", T.StringType()),
        ("CHARACTER(3)", T.StringType()),
        ("BINARY", T.BinaryType()),
        ("DATE", T.DateType()),
        ("TIMESTAMP", T.TimestampType()),
        ("TIMESTAMP_LTZ", T.TimestampType()),
        ("TIMESTAMP WITH LOCAL TIME ZONE", T.TimestampType()),
        ("TIMESTAMP_NTZ", T.TimestampNTZType()),
        ("TIMESTAMP WITHOUT TIME ZONE", T.TimestampNTZType()),
        ("VARIANT", T.VariantType()),
        ("INTERVAL YEAR", T.YearMonthIntervalType(0, 0)),
        ("INTERVAL YEAR TO MONTH", T.YearMonthIntervalType(0, 1)),
        ("INTERVAL DAY", T.DayTimeIntervalType(0, 0)),
        ("INTERVAL DAY TO SECOND", T.DayTimeIntervalType(0, 3)),
        ("INTERVAL HOUR TO MINUTE", T.DayTimeIntervalType(1, 2)),
        ("ARRAY<INT>", T.ArrayType(T.IntegerType())),
        ("ARRAY<ARRAY<ARRAY<INT>>>", T.ArrayType(T.ArrayType(T.ArrayType(T.IntegerType())))),
        ("MAP<STRING, ARRAY<INT>>", T.MapType(T.StringType(), T.ArrayType(T.IntegerType()))),
        (
            "STRUCT<a: INT, `b c`: ARRAY<STRING> NOT NULL COMMENT 'x', d DECIMAL(4, 2)>",
            T.StructType(
                [
                    T.StructField("a", T.IntegerType()),
                    T.StructField("b c", T.ArrayType(T.StringType()), False),
                    T.StructField("d", T.DecimalType(4, 2)),
                ]
            ),
        ),
    ],
)
def test_types(text: str, expected: DataType) -> None:
    assert type_of(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("TEXT", "unknown type 'TEXT'; did you mean STRING?"),
        ("DATETIME", "unknown type 'DATETIME'; did you mean TIMESTAMP?"),
        ("bool", "unknown type 'bool'; did you mean BOOLEAN?"),
        ("BIGNIT", "unknown type 'BIGNIT'; did you mean BIGINT?"),
        ("TIMESTAMP_NZT", "unknown type 'TIMESTAMP_NZT'; did you mean TIMESTAMP_NTZ?"),
        ("xyz", "unknown type 'xyz'; expected a type of Spark SQL, such as INT, STRING or DECIMAL(10, 2)"),
        ("ARRAY<TEXT>", "unknown type 'TEXT'; did you mean STRING?"),
        (", b INT", "expected a type, found ','"),
        ("DECIMAL(39)", "DECIMAL(39, 0): expected a precision of 1 to 38 and a scale of at most that"),
        ("DECIMAL(4, 5)", "DECIMAL(4, 5): expected a precision of 1 to 38 and a scale of at most that"),
        ("DECIMAL(x)", "expected the precision of DECIMAL, a whole number, found 'x'"),
        ("CHAR", "expected ( and the length of CHAR, found ')'"),
        ("TIME(3)", "type TIME is not enabled in Spark; expected STRING, TIMESTAMP_NTZ or an interval"),
        ("ARRAY", "expected < and the element type of ARRAY, found ')'"),
        ("ARRAY<INT", "expected '>' to close ARRAY<, found ')'"),
        ("MAP<INT>", "expected ',' and the value type of MAP, found '>'"),
        ("MAP<MAP<INT, INT>, INT>", "the key of a MAP cannot be or contain a MAP or a VARIANT"),
        ("STRUCT<>", "a STRUCT needs at least one field"),
        ("STRUCT<a INT, A INT>", "duplicate field 'A' in STRUCT"),
        ("INTERVAL", f"a column needs an interval of one kind: expected {INTERVALS}"),
        ("INTERVAL DAY TO MONTH", "expected HOUR or MINUTE or SECOND after TO, found 'MONTH'"),
        ("INTERVAL SECOND TO DAY", "expected nothing finer after TO, found 'DAY'"),
        (
            "STRING COLLATE UTF8_LCASE",
            "a collation is not supported on a column; compare with lower(...) or collate(...) in a view",
        ),
    ],
)
def test_wrong_types(text: str, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        type_of(text)
    assert caught.value.message == message
    assert caught.value.statement == "statement 1, CREATE TABLE t"
