"""Column types: every spelling that Spark accepts, read without Spark."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)

from penstock.sql.cursor import Cursor
from penstock.sql.nearest import nearest
from penstock.sql.source import Kind, Token

_SIMPLE: dict[str, DataType] = {
    "BOOLEAN": BooleanType(),
    "TINYINT": ByteType(),
    "BYTE": ByteType(),
    "SMALLINT": ShortType(),
    "SHORT": ShortType(),
    "INT": IntegerType(),
    "INTEGER": IntegerType(),
    "BIGINT": LongType(),
    "LONG": LongType(),
    "FLOAT": FloatType(),
    "REAL": FloatType(),
    "DOUBLE": DoubleType(),
    "STRING": StringType(),
    "BINARY": BinaryType(),
    "DATE": DateType(),
    "TIMESTAMP": TimestampType(),
    "TIMESTAMP_LTZ": TimestampType(),
    "TIMESTAMP_NTZ": TimestampNTZType(),
    "VARIANT": VariantType(),
}
_DECIMAL = ("DECIMAL", "DEC", "NUMERIC")
_CHARACTERS = ("CHAR", "CHARACTER", "VARCHAR")
_NESTED = ("ARRAY", "MAP", "STRUCT")
_NAMES = (*_SIMPLE, *_DECIMAL, *_CHARACTERS, *_NESTED, "INTERVAL")

# What other databases call a type that Spark has.
_ELSEWHERE = {
    "BLOB": "BINARY",
    "BOOL": "BOOLEAN",
    "BYTEA": "BINARY",
    "DATETIME": "TIMESTAMP",
    "FLOAT4": "FLOAT",
    "FLOAT8": "DOUBLE",
    "INT2": "SMALLINT",
    "INT4": "INT",
    "INT8": "BIGINT",
    "JSON": "VARIANT",
    "JSONB": "VARIANT",
    "NUMBER": "DECIMAL",
    "NVARCHAR": "STRING",
    "TEXT": "STRING",
    "TIMESTAMPTZ": "TIMESTAMP",
    "UUID": "STRING",
    "VARBINARY": "BINARY",
}
_YEAR_MONTH = ("YEAR", "MONTH")
_DAY_TIME = ("DAY", "HOUR", "MINUTE", "SECOND")
_MAX_PRECISION = 38


def read_type(cursor: Cursor) -> DataType:
    """The type that comes next. CHAR(n) and VARCHAR(n) are strings; their length is not enforced."""
    token = cursor.peek()
    if token.kind is not Kind.WORD:
        raise cursor.expected("a type")
    cursor.take()
    word = token.text.upper()
    if word in _NESTED:
        return _read_nested(cursor, word)
    if word in _DECIMAL:
        return _read_decimal(cursor)
    if word in _CHARACTERS:
        return _read_characters(cursor, word)
    if word == "INTERVAL":
        return _read_interval(cursor, token)
    if word == "TIME":
        raise cursor.error(
            "type TIME is not enabled in Spark; expected STRING, TIMESTAMP_NTZ or an interval", token
        )
    if word == "TIMESTAMP" and cursor.accept("WITHOUT", "TIME", "ZONE"):
        return TimestampNTZType()
    if word == "TIMESTAMP" and cursor.accept("WITH", "LOCAL", "TIME", "ZONE"):
        return TimestampType()
    if word not in _SIMPLE:
        raise _unknown(cursor, token)
    if cursor.sees("COLLATE"):
        raise cursor.error(
            "a collation is not supported on a column; compare with lower(...) or collate(...) in a view"
        )
    return _SIMPLE[word]


def can_be_key(data_type: DataType) -> bool:
    """Whether values can be compared for equality, as a key must: not maps and variants, at any depth."""
    if isinstance(data_type, StructType):
        return all(can_be_key(f.dataType) for f in data_type.fields)
    if isinstance(data_type, ArrayType):
        return can_be_key(data_type.elementType)
    return not isinstance(data_type, MapType | VariantType)


def _unknown(cursor: Cursor, token: Token) -> Exception:
    match = _ELSEWHERE.get(token.text.upper()) or nearest(token.text, _NAMES)
    hint = (
        f"did you mean {match}?"
        if match
        else "expected a type of Spark SQL, such as INT, STRING or DECIMAL(10, 2)"
    )
    return cursor.error(f"unknown type '{token.text}'; {hint}", token)


def _read_nested(cursor: Cursor, word: str) -> DataType:
    if word == "STRUCT":
        return _read_struct(cursor)
    cursor.expect("<", instead=f"< and the element type{'s' if word == 'MAP' else ''} of {word}")
    if word == "ARRAY":
        data_type: DataType = ArrayType(read_type(cursor))
    else:
        at = cursor.peek()
        key = read_type(cursor)
        if not can_be_key(key):
            raise cursor.error("the key of a MAP cannot be or contain a MAP or a VARIANT", at)
        cursor.expect(",", instead="',' and the value type of MAP")
        data_type = MapType(key, read_type(cursor))
    cursor.expect(">", instead=f"'>' to close {word}<")
    return data_type


def _read_struct(cursor: Cursor) -> StructType:
    if cursor.sees("<>"):
        raise cursor.error("a STRUCT needs at least one field")
    cursor.expect("<", instead="< and the fields of STRUCT")
    fields: list[StructField] = []
    while True:
        name = cursor.name("a field name")
        if any(name.text.lower() == f.name.lower() for f in fields):
            raise cursor.error(f"duplicate field '{name.text}' in STRUCT", name)
        cursor.accept(":")
        data_type = read_type(cursor)
        nullable = not cursor.accept("NOT", "NULL")
        if cursor.accept("COMMENT"):
            cursor.string("the text of COMMENT")
        fields.append(StructField(name.text, data_type, nullable))
        if not cursor.accept(","):
            break
    cursor.expect(">", instead="',' and another field, or '>' to close STRUCT<")
    return StructType(fields)


def _read_decimal(cursor: Cursor) -> DecimalType:
    if not cursor.accept("("):
        return DecimalType(10, 0)
    at = cursor.peek()
    precision = _read_number(cursor, "the precision of DECIMAL")
    scale = _read_number(cursor, "the scale of DECIMAL") if cursor.accept(",") else 0
    cursor.expect(")")
    if not 1 <= precision <= _MAX_PRECISION or scale > precision:
        limits = f"expected a precision of 1 to {_MAX_PRECISION} and a scale of at most that"
        raise cursor.error(f"DECIMAL({precision}, {scale}): {limits}", at)
    return DecimalType(precision, scale)


def _read_characters(cursor: Cursor, word: str) -> StringType:
    if cursor.accept("("):
        _read_number(cursor, f"the length of {word}")
        cursor.expect(")")
    elif word != "VARCHAR":
        raise cursor.expected(f"( and the length of {word}")
    return StringType()


def _read_interval(cursor: Cursor, interval: Token) -> DataType:
    units = _YEAR_MONTH if cursor.peek().text.upper() in _YEAR_MONTH else _DAY_TIME
    if cursor.peek().text.upper() not in units:
        kinds = "INTERVAL YEAR TO MONTH or INTERVAL DAY TO SECOND"
        raise cursor.error(f"a column needs an interval of one kind: expected {kinds}", interval)
    first = last = units.index(cursor.take().text.upper())
    if cursor.accept("TO"):
        later = units[first + 1 :]
        if cursor.peek().text.upper() not in later:
            raise cursor.expected(f"{' or '.join(later)} after TO" if later else "nothing finer after TO")
        last = units.index(cursor.take().text.upper())
    return YearMonthIntervalType(first, last) if units is _YEAR_MONTH else DayTimeIntervalType(first, last)


def _read_number(cursor: Cursor, what: str) -> int:
    if not cursor.peek().text.isdecimal():
        raise cursor.expected(f"{what}, a whole number")
    return int(cursor.take().text)
