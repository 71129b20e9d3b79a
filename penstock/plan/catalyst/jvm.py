"""Names of the JVM. To follow one takes a round trip for each of its dots, so each is followed once."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession


class Names:
    """What a package or a class has, by name."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._owner, name)
        self.__dict__[name] = found
        return found


class Jvm:
    """The names of one JVM that plans are read and built with."""

    def __init__(self, jvm: Any) -> None:
        sql = jvm.org.apache.spark.sql
        self.expressions = Names(sql.catalyst.expressions)
        self.logical = Names(sql.catalyst.plans.logical)
        self.aggregate = Names(sql.catalyst.expressions.aggregate)
        self.named = Names(sql.catalyst.expressions.NamedExpression)
        self.row = Names(sql.catalyst.InternalRow)
        self.equi_join = Names(sql.catalyst.planning.ExtractEquiJoinKeys)
        self.dataset = Names(sql.classic.Dataset)
        self.type = Names(sql.types.DataType)
        self.option = Names(jvm.scala.Option)
        self.list = Names(jvm.java.util.List)
        self.python = Names(jvm.PythonUtils)
        self.none = self.option.empty()
        self.nothing = self.python.toSeq(self.list.of())


@lru_cache(maxsize=1)
def _names(jvm: Any) -> Jvm:
    return Jvm(jvm)


def jvm_of(spark: SparkSession) -> Jvm:
    return _names(spark._jvm)


def active_jvm() -> Jvm:
    context = SparkContext._active_spark_context
    assert context is not None
    return _names(context._jvm)
