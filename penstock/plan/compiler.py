"""Compile a view's typed plan to the DataFrame that computes its change from its inputs' changes.

Every rule maps a node to a frame with the node's columns c0, c1, ... and the weight `_w`; None
means that the change is certainly empty. `active` says which relations may change, so that a
transaction that touches one table costs nothing for the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    LongType,
    MapType,
    StructField,
    StructType,
    VariantType,
)

from penstock.plan import nodes
from penstock.plan.catalyst import PLACE, Catalyst
from penstock.plan.nodes import Node
from penstock.trace.rows import Layout
from penstock.trace.task import Report, Stage, Task

# Salts that make the two hashes of the same columns independent.
KEY, ROW = 0, 1


@dataclass(frozen=True)
class Arrangement:
    """A trace as a rule sees it: which one, how it is laid out, and whether this use writes it."""

    trace: str
    layout: Layout
    writes: bool


@dataclass(frozen=True)
class TraceInfo:
    """What the driver remembers of a trace."""

    layout: Layout
    describes: str


@dataclass(frozen=True)
class Keyed:
    """A relation whose own trace is found by some of its columns."""

    trace: str
    columns: tuple[int, ...]


class Relations(Protocol):
    """What rules ask about tables and views."""

    def delta(self, relation: str) -> DataFrame | None:
        """The change of a relation, or None if it does not change."""

    def keyed(self, relation: str) -> Keyed:
        """How the relation's own trace is found."""

    def schema(self, relation: str) -> Sequence[StructField]:
        """The relation's columns."""


Rules = Mapping[type[Node], Callable[..., "DataFrame | None"]]


@dataclass
class Compiler:
    """Compiles nodes for one form of the circuit: `bits` of the key choose the partition (0: one)."""

    catalyst: Catalyst
    rules: Rules
    relations: Relations
    report: Accumulator[Report]
    traces: dict[str, TraceInfo]
    bits: int
    initial: bool
    addresses: Sequence[str] = ()
    """Where the hosts are, if there are several: each has the state of a range of keys."""
    written: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)  # by the relation that is being compiled

    @property
    def spark(self) -> SparkSession:
        return self.catalyst.spark

    @property
    def partitions(self) -> int:
        return 1 << self.bits

    def delta(self, node: Node) -> DataFrame | None:
        """The change of a node's result."""
        return self.rules[type(node)](node, self)

    # -- pieces that rules are made of -----------------------------------------------------------

    def stage(self, frame: DataFrame, stage: Stage, schema: StructType) -> DataFrame:
        """Run a stage over each partition of a frame."""
        width = len(frame.columns) - 1 if frame.columns[-1] == PLACE else None
        return frame.mapInArrow(stage.function(self.report, width), schema)

    def leaf(self, stage: Stage, schema: StructType, partitions: int | None = None) -> DataFrame:
        """A stage with no input."""
        tasks = partitions or self.partitions
        if self.addresses:
            return self.stage(self.catalyst.placed_range(self._places(tasks)), stage, schema)
        return self.stage(self.spark.range(0, tasks, 1, tasks), stage, schema)

    def _places(self, partitions: int) -> list[str]:
        """The host of each partition: neighbouring ranges of keys are on the same one."""
        return [self.addresses[p * len(self.addresses) // partitions] for p in range(partitions)]

    def schema(self, node: Node) -> list[StructField]:
        """The columns of a node's result."""
        return self.catalyst.schema(node.output)

    def nothing(self, node: Node) -> DataFrame:
        """The empty change of a node, as a frame that still runs."""
        named = [StructField(f"c{i}", f.dataType) for i, f in enumerate(self.schema(node))]
        return self.leaf(NothingStage(), StructType([*named, StructField("_w", LongType())]), 1)

    def union(self, frames: Sequence[DataFrame]) -> DataFrame:
        result = frames[0]
        for frame in frames[1:]:
            result = result.union(frame)
        return self.gathered(result) if len(frames) > 1 else result

    def gathered(self, frame: DataFrame) -> DataFrame:
        """Tell Spark that a frame of the narrow form has one partition where an operator made it forget:
        it would shuffle otherwise."""
        return frame.coalesce(1) if self.bits == 0 else frame

    def exchange(self, frame: DataFrame, *, single: bool = False) -> DataFrame:
        """Bring rows with equal `_k` together (all rows if `single`).

        With one partition that costs nothing where Spark kept it at one, and makes it one where not. On
        several hosts each partition goes where its state is, as far as Spark can have it so.
        """
        half = 1 << (self.bits - 1) if self.bits else 0
        number = f"CAST(shiftright(_k, {64 - self.bits}) + {half} AS INT)" if self.bits else "0"
        if self.addresses:
            places = self._places(1 if single else self.partitions)
            return self.catalyst.placed(frame, "0" if single else number, places)
        if self.bits == 0:
            return frame.coalesce(1)
        if single:
            return frame.repartition(1)
        return frame.repartitionById(self.partitions, F.expr(number))

    def arrange(
        self, kind: str, node: Node, keys: Sequence[nodes.Expression], layout: Layout, describes: str
    ) -> Arrangement:
        """The trace of a node's result by some keys; the same result by the same keys is the same trace."""
        text = "\n".join([kind, fingerprint(node), *(key.mark for key in keys), str(layout)])
        trace = f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        self.traces.setdefault(trace, TraceInfo(layout, describes))
        first = trace not in self.written
        self.written.add(trace)
        self.used.add(trace)
        return Arrangement(trace, layout, first)


@dataclass(frozen=True)
class NothingStage(Stage):
    """No rows."""

    def run(self, task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return iter(())


def fingerprint(node: Node) -> str:
    """What a node computes, independent of ids and of planning run."""
    texts: list[str] = [type(node).__name__]
    match node:
        case nodes.Scan():
            texts.append(node.relation.lower())
        case nodes.Project():
            texts += [e.mark for e in node.expressions]
        case nodes.Filter():
            texts.append(node.condition.mark)
        case nodes.Expand():
            texts += [";".join(e.mark for e in p) for p in node.projections]
        case nodes.Join():
            texts += [node.type.value, node.condition.mark if node.condition else ""]
        case nodes.Aggregate():
            texts += [e.mark for e in (*node.grouping, *node.expressions)]
        case nodes.Limit():
            texts += [*(e.mark for e in node.order), str(node.limit), str(node.offset)]
        case nodes.Values() | nodes.Window() | nodes.Generate():
            texts.append(node.text)
    return f"{'|'.join(texts)}({','.join(fingerprint(child) for child in node.children)})"


def arrow_types(schema: StructType) -> tuple[pa.DataType, ...]:
    """The Arrow types in which Spark hands columns to Python."""
    return tuple(to_arrow_schema(schema, timezone="UTC").types)


def columns(frame: DataFrame, prefix: str = "c") -> list[str]:
    """The names c0, c1, ... that a frame has."""
    names = set(frame.columns)
    found: list[str] = []
    while f"{prefix}{len(found)}" in names:
        found.append(f"{prefix}{len(found)}")
    return found


def fields(frame: DataFrame, names: Sequence[str]) -> list[StructField]:
    """The types of some columns, nullable, as what comes back from Python."""
    by_name = {f.name: f for f in frame.schema.fields}
    return [StructField(name, by_name[name].dataType) for name in names]


def row_hash(names: Sequence[str], schema: StructType, salt: int) -> str:
    """SQL text of a 64-bit hash of whole rows: the same for the same values, whatever form computes it.

    Spark's xxhash64 skips NULLs, so (NULL, 1) and (1, NULL) would be the same: whether a value is
    NULL is hashed beside it. Floats come normalized.
    """
    types = {f.name: f.dataType for f in schema.fields}
    parts = [part for name in names for part in (f"isnull({name})", *_hashable(name, types[name]))]
    return f"xxhash64({', '.join([str(salt), *parts])})"


def key_hash(names: Sequence[str], schema: StructType) -> str:
    """SQL text of a 64-bit hash of a key that is looked up by equality; NULL equals nothing."""
    types = {f.name: f.dataType for f in schema.fields}
    parts = [part for name in names for part in _hashable(name, types[name])]
    return f"xxhash64({', '.join([str(KEY), *parts])})"


_JSON = (
    "map('timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS', 'timestampNTZFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS')"
)


def _hashable(name: str, type_: DataType) -> list[str]:
    """What of a value xxhash64 can tell apart. Within nested values it skips NULLs, and it takes no maps
    and no variants: those are hashed as JSON, in which two different values are never the same text."""
    if not isinstance(type_, ArrayType | StructType | MapType | VariantType):
        return [name]
    # Two maps with the same entries are the same value, in whatever order the entries are.
    sorts = isinstance(type_, MapType) and not _contains(type_.valueType, (MapType, VariantType))
    value = f"sort_array(map_entries({name}))" if sorts else name
    json = f"to_json(named_struct('v', {value}), {_JSON})"
    plain = not _contains(type_, (MapType, VariantType))
    return [name, json] if plain else [json]


def _contains(type_: DataType, kinds: tuple[type[DataType], ...]) -> bool:
    match type_:
        case _ if isinstance(type_, kinds):
            return True
        case StructType():
            return any(_contains(f.dataType, kinds) for f in type_.fields)
        case ArrayType():
            return _contains(type_.elementType, kinds)
        case MapType():
            return _contains(type_.keyType, kinds) or _contains(type_.valueType, kinds)
    return False
