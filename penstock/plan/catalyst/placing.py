"""Have Spark run tasks on the hosts that have what they need.

Spark's own exchange says nothing of where its partitions should be. A union does, if both sides are
partitioned alike: it prefers for each partition the host that most of its parents prefer. So what was
exchanged is united with a relation of no rows, whose partitions prefer the hosts that are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import count

from pyspark.sql import DataFrame, SparkSession

from penstock.plan.catalyst.jvm import active_jvm, jvm_of
from penstock.plan.catalyst.reader import frame_of
from penstock.plan.catalyst.refs import Ref, iterate, seq

_SEED = 42
"""Of the hash by which Spark exchanges rows."""

PLACE = "_place"
"""The column, the last one, by which rows were brought to their partitions."""


class Placing:
    """Places partitions of one SparkSession."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def placed(self, frame: DataFrame, number: str, places: Sequence[str]) -> DataFrame:
        """Rows by the number of their partition, an SQL expression; each partition preferably on the host
        that `places` says. There is a column `PLACE` more."""
        partitions = len(places)
        numbers = ", ".join(str(value) for value in hashing_to(partitions))
        marked = frame.selectExpr("*", f"element_at(array({numbers}), {number} + 1) AS {PLACE}")
        exchanged = marked.repartition(partitions, PLACE)
        return exchanged.union(self._anchor(exchanged, places))

    def placed_range(self, places: Sequence[str]) -> DataFrame:
        """The numbers 0, 1, ... each in a partition of its own, preferably on the host that `places` says."""
        model = self.spark.range(1).selectExpr("CAST(id AS INT)")  # as such a number comes into the JVM
        (id_,) = iterate(model._jdf.queryExecution().analyzed().output())
        row = jvm_of(self.spark).row
        values = [row.apply(seq([number])) for number in range(len(places))]
        return self._relation([id_.newInstance()], values, places, by=None).selectExpr("CAST(id AS BIGINT)")

    def _anchor(self, like: DataFrame, places: Sequence[str]) -> DataFrame:
        """No rows, in partitions like those of a frame that was exchanged by its last column."""
        output = [a.newInstance() for a in iterate(like._jdf.queryExecution().analyzed().output())]
        return self._relation(output, [], places, by=output[-1])

    def _relation(
        self, output: Sequence[Ref], rows: Sequence[Ref], places: Sequence[str], by: Ref | None
    ) -> DataFrame:
        """Rows in as many partitions as there are places, as if they had been exchanged `by` a column."""
        jvm = jvm_of(self.spark)
        java = self.spark._jvm
        assert java is not None
        preferred = java.java.util.HashMap()
        for partition, place in enumerate(places):
            preferred.put(partition, seq([place]))
        context = self.spark.sparkContext._jsc.sc()
        by_partition = java.PythonUtils.toScalaMap(preferred)
        type_ = java.scala.reflect.ClassTag.apply(
            java.java.lang.Class.forName("org.apache.spark.sql.catalyst.InternalRow")
        )
        rdd = java.org.apache.spark.rdd.ParallelCollectionRDD(
            context, seq(rows), len(places), by_partition, type_
        )
        physical = java.org.apache.spark.sql.catalyst.plans.physical
        if by is None:
            partitioning = physical.UnknownPartitioning(len(places))
        elif len(places) == 1:
            partitioning = getattr(physical, "SinglePartition$").__getattr__("MODULE$")
        else:
            partitioning = physical.HashPartitioning(seq([by]), len(places))
        relation = java.org.apache.spark.sql.execution.LogicalRDD(
            seq(output),
            rdd,
            partitioning,
            jvm.nothing,
            False,
            jvm.none,
            self.spark._jsparkSession,
            jvm.none,
            jvm.none,
            False,
        )
        return frame_of(self.spark, relation)


@lru_cache(maxsize=64)
def hashing_to(partitions: int) -> tuple[int, ...]:
    """For each partition an integer that Spark's exchange by hash brings there."""
    jvm = active_jvm()
    x, integer = jvm.expressions, jvm.type.fromJson('"integer"')
    found: dict[int, int] = {}
    for number in count():
        if len(found) == partitions:
            break
        hashed = x.Murmur3Hash(seq([x.Literal(number, integer)]), _SEED).eval(None)
        found.setdefault(hashed % partitions, number)
    return tuple(found[partition] for partition in range(partitions))
