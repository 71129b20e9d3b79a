"""The only package that touches Spark's internals through py4j.

It reads Catalyst's optimized plan into the typed plan of `nodes`, and it puts Spark's own
expressions and operators on top of DataFrames whose columns are named by position: c0, c1, ...
and `_w`, the weight. Everything else works with DataFrames only.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from penstock.plan.catalyst.builder import Bound, Builder
from penstock.plan.catalyst.functions import Function, digits
from penstock.plan.catalyst.placing import PLACE, Placing
from penstock.plan.catalyst.reader import Reader
from penstock.plan.catalyst.refs import Ref, attribute_id, is_nullable, type_name

__all__ = [
    "PLACE",
    "SETTINGS",
    "Bound",
    "Catalyst",
    "Function",
    "Ref",
    "attribute_id",
    "digits",
    "is_nullable",
    "type_name",
]

# Rules of Spark's optimizer that would put physical concerns, or the moment of planning, into the plan.
SETTINGS: Mapping[str, str] = {
    "spark.sql.optimizer.excludedRules": ",".join(
        [
            "org.apache.spark.sql.catalyst.optimizer.MergeScalarSubqueries",
            "org.apache.spark.sql.catalyst.optimizer.MergeSubplans",
            "org.apache.spark.sql.catalyst.optimizer.OptimizeOneRowRelationSubquery",
        ]
    ),
    "spark.sql.optimizer.windowGroupLimitThreshold": "-1",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    # Our plans alias columns at every step, and constraints grow exponentially with aliases.
    "spark.sql.constraintPropagation.enabled": "false",
    # Truncated text would make two different expressions look the same.
    "spark.sql.debug.maxToStringFields": "1000000",
}


class Catalyst(Reader, Builder, Placing):
    """Reads and builds plans in one SparkSession."""

    def __init__(self, spark: SparkSession) -> None:
        Reader.__init__(self, spark)
        Builder.__init__(self, spark)
        Placing.__init__(self, spark)
