"""A program compiled to frames that Spark runs once per transaction.

A relation that one view reads is computed inside that view's frame. One that several read, or
that is read as a whole, is a wave of its own: its change is written, and the readers take it from
there in the next wave. A wave is one Spark job, or two if some of its frames have to be planned anew in each
transaction.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame
from pyspark.sql.types import ByteType, LongType, StringType, StructField, StructType

from penstock.connectors import ERROR_COLUMN
from penstock.engine.leaves import InputStage
from penstock.engine.relations import Relation, TableRelation, ViewRelation, scans
from penstock.plan.catalyst import Catalyst, Ref
from penstock.plan.compiler import Compiler, Keyed, TraceInfo
from penstock.plan.rules import RULES
from penstock.plan.rules.table import table_change
from penstock.plan.rules.view import (
    ChangeStage,
    Moment,
    ScanStage,
    positional,
    row_layout,
    view_change,
    view_difference,
)
from penstock.trace.task import Report, Stage


@dataclass(frozen=True)
class Form:
    """What a compiled circuit is specialised for: some tables that may change, or relations to be filled.

    Filled is what holds nothing yet. It is computed as in a transaction before which nothing was there and
    which inserts every row of what the filled relations read:

        dA = A, old A = nothing,    for each A that a filled relation reads and that is not filled itself
    """

    bits: int
    initial: bool
    tables: frozenset[str]
    filled: frozenset[str] | None = None


@dataclass(frozen=True)
class Wave:
    """One Spark job; planned anew in each transaction if its plan would hold an earlier one's rows."""

    frame: DataFrame
    job: Ref | None


# A set of tables that changed together this often gets a form of its own.
_OFTEN = 3


@dataclass
class Circuit:
    """Compiles forms on demand and keeps them.

    Compiling takes seconds, so a transaction runs the general form, in which any table may change,
    until a form for just the tables that it touches was compiled in the background.
    """

    relations: Mapping[str, Relation]
    catalyst: Catalyst
    wholes: Catalyst  # a session in which names are bound to all rows of a relation
    report: Accumulator[Report]
    addresses: Sequence[str] = ()
    """Where the hosts are, if there are several."""
    least_bits: int = 0
    """So many bits of the key choose the partition, however little changes: every host has a share."""
    traces: dict[str, TraceInfo] = field(default_factory=dict)
    _used: dict[str, set[str]] = field(default_factory=dict)  # by the plan of each relation
    _forms: dict[Form, list[Wave]] = field(default_factory=dict)
    _asked: Counter[Form] = field(default_factory=Counter)
    _compiling: threading.Lock = field(default_factory=threading.Lock)

    def waves(self, form: Form) -> list[Wave]:
        """The jobs of a transaction of this form, in order."""
        if form.filled is not None:
            with self._compiling:
                return _Builder(self, form).waves()  # not kept, for it is needed once
        found = self._forms.get(form)
        if found is not None:
            return found
        if form.initial:
            return self._compiled(form)
        self._asked[form] += 1
        return self._compiled(Form(form.bits, False, self._tables))

    def prepare(self) -> None:
        """Compile the general form, after which `traces` names every trace that transactions use."""
        self._compiled(Form(self.least_bits, False, self._tables))

    def traces_of(self, relations: Iterable[str]) -> set[str]:
        """Every trace that transactions need for these relations, once `prepare` was called."""
        found: set[str] = set()
        for name in relations:
            found |= {self.relations[name].trace, *self._used.get(name, ())}
        return found

    def specialise(self) -> bool:
        """Compile one form that is asked for often; False if there is none."""
        for form, times in list(self._asked.items()):
            if times >= _OFTEN and form not in self._forms:
                self._compiled(form)
                return True
        return False

    def used_by(self, relation: str) -> set[str]:
        """Where the traces of a relation's plan are collected."""
        return self._used.setdefault(relation.lower(), set())

    @property
    def _tables(self) -> frozenset[str]:
        return frozenset(n for n, r in self.relations.items() if isinstance(r, TableRelation))

    def _compiled(self, form: Form) -> list[Wave]:
        with self._compiling:
            if form not in self._forms:
                self._forms[form] = _Builder(self, form).waves()
            return self._forms[form]


class _Builder:
    """Builds one form; it is what the rules know of the program."""

    def __init__(self, circuit: Circuit, form: Form) -> None:
        self._circuit = circuit
        self._form = form
        self._relations = circuit.relations
        self._compiler = self._compiler_in(circuit.catalyst)
        self._active = self._find_active()
        self._readers = self._count_readers()
        self._wave_of: dict[str, int] = {}
        self._wave = 0

    def waves(self) -> list[Wave]:
        tails: dict[int, list[tuple[DataFrame, bool]]] = {}
        for name, relation in self._relations.items():
            if name not in self._active or self._inlined(name):
                continue
            if isinstance(relation, TableRelation) and relation.errors_of is not None:
                continue  # its table writes it
            self._wave = 0
            frame = self._change(relation, emit=False)
            if frame is None:
                self._active.discard(name)
                continue
            self._wave_of[name] = self._wave
            whole = isinstance(relation, ViewRelation) and relation.node is None
            tails.setdefault(self._wave, []).append((frame, whole))
        return [wave for number in sorted(tails) for wave in self._jobs(tails[number])]

    def _jobs(self, tails: Sequence[tuple[DataFrame, bool]]) -> Iterator[Wave]:
        """One job, or two: what must be planned anew each time does not make the rest wait for a planner."""
        catalyst = self._circuit.catalyst
        if self._form.bits or self._form.initial:  # shuffled, or run once
            yield Wave(_joined([frame for frame, _ in tails]), None)
            return
        kept = [frame for frame, whole in tails if not whole]
        anew = [frame for frame, whole in tails if whole]
        joined = _joined(kept) if kept else None
        if joined is not None and catalyst.has_exchange(joined):
            shuffled = [catalyst.has_exchange(frame) for frame in kept]
            anew += [frame for frame, does in zip(kept, shuffled, strict=True) if does]
            kept = [frame for frame, does in zip(kept, shuffled, strict=True) if not does]
            joined = _joined(kept) if kept else None
        if joined is not None:
            yield Wave(joined, catalyst.job(joined))
        if anew:
            yield Wave(_joined(anew), None)

    # -- what rules ask --------------------------------------------------------------------------

    def delta(self, relation: str) -> DataFrame | None:
        name = relation.lower()
        found = self._relations[name]
        layout = row_layout(found.schema)
        tasks = self._compiler.partitions
        stage: Stage
        if self._is_source(name):
            stage = ScanStage(found.trace, layout, Moment.SOURCE, sign=1, tasks=tasks)
        elif name not in self._active:
            return None
        elif self._inlined(name):
            return self._change(found, emit=True)
        else:
            self._wave = max(self._wave, self._wave_of[name] + 1)
            stage = ChangeStage(found.trace, layout, tasks)
        return self._compiler.leaf(stage, positional(found.schema, weight=True), tasks)

    def keyed(self, relation: str) -> Keyed:
        found = self._relations[relation.lower()]
        return Keyed(found.trace, found.key if isinstance(found, TableRelation) else ())

    def schema(self, relation: str) -> Sequence[StructField]:
        return self._relations[relation.lower()].schema

    # -- building --------------------------------------------------------------------------------

    def _compiler_in(self, catalyst: Catalyst) -> Compiler:
        circuit, form = self._circuit, self._form
        return Compiler(
            catalyst, RULES, self, circuit.report, circuit.traces, form.bits, form.initial, circuit.addresses
        )

    def _find_active(self) -> set[str]:
        """The relations that may change; in the initial transaction any view may."""
        if self._form.filled is not None:
            return set(self._form.filled)
        active = {name for name in self._form.tables if name in self._relations}
        for name, relation in self._relations.items():
            if isinstance(relation, ViewRelation) and (
                self._form.initial or any(read in active for read in relation.reads)
            ):
                active.add(name)
        return active

    def _count_readers(self) -> Counter[str]:
        readers: Counter[str] = Counter()
        for name, relation in self._relations.items():
            if isinstance(relation, ViewRelation) and name in self._active:
                if relation.node is None:
                    readers.update(dict.fromkeys(relation.reads, 2))  # needs them written
                else:
                    readers.update(scans(relation.node))
        return readers

    def _is_source(self, name: str) -> bool:
        """Whether relations are filled from this one."""
        return self._form.filled is not None and name not in self._form.filled

    def _inlined(self, name: str) -> bool:
        """Whether a relation is computed inside the one view that reads it."""
        relation = self._relations[name]
        whole = isinstance(relation, ViewRelation) and relation.node is None
        return self._readers[name] == 1 and not whole

    def _change(self, relation: Relation, *, emit: bool) -> DataFrame | None:
        c = self._compiler
        reader, c.used = c.used, self._circuit.used_by(relation.name)
        try:
            return self._computed(relation, emit=emit)
        finally:
            c.used = reader

    def _computed(self, relation: Relation, *, emit: bool) -> DataFrame | None:
        c = self._compiler
        self._circuit.traces.setdefault(relation.trace, TraceInfo(row_layout(relation.schema), relation.name))
        if isinstance(relation, TableRelation):
            return table_change(
                self._input(relation),
                relation.name,
                relation.schema,
                relation.key,
                relation.trace,
                c,
                append_only=relation.append_only,
                emit=emit,
                errors=self._errors(relation),
            )
        if relation.node is None:
            return self._whole(relation)
        frame = c.delta(relation.node)
        return None if frame is None else view_change(frame, relation.schema, relation.trace, c, emit=emit)

    def _errors(self, table: TableRelation) -> str | None:
        """The trace of what could not be read of a table's input."""
        if table.errors is None:
            return None
        found = self._relations[table.errors.lower()]
        self._circuit.traces.setdefault(found.trace, TraceInfo(row_layout(found.schema), found.name))
        return found.trace

    def _input(self, table: TableRelation) -> DataFrame:
        tasks = self._compiler.partitions
        named = positional(table.schema, weight=False).fields
        added = [StructField("_op", ByteType()), StructField("_seq", LongType())]
        if table.errors is not None:
            added.insert(1, StructField(ERROR_COLUMN, StringType()))
        stage = InputStage(
            table.name.lower(), table.arrow, table.defaults, tasks, keeps_errors=table.errors is not None
        )
        return self._compiler.leaf(stage, StructType([*named, *added]), tasks)

    def _whole(self, view: ViewRelation) -> DataFrame:
        """Compute a view from all rows of what it reads, and take the difference."""
        wholes = self._circuit.wholes
        self._wave = max([self._wave, *(self._wave_of[r] + 1 for r in view.reads if r in self._wave_of)])
        for name in view.reads:
            moment = Moment.SOURCE if self._is_source(name) else Moment.AFTER
            bind_rows(wholes, self._relations[name], self._compiler.partitions, moment)
        c = self._compiler_in(wholes)
        result = wholes.spark.sql(view.query)
        return view_difference(result, view.schema, view.trace, c)


def _joined(frames: Sequence[DataFrame]) -> DataFrame:
    joined = frames[0]
    for frame in frames[1:]:
        joined = joined.union(frame)
    return joined


def bind_rows(catalyst: Catalyst, relation: Relation, tasks: int, moment: Moment) -> None:
    """Make the relation's name in a session stand for all of its rows."""
    stage = ScanStage(relation.trace, row_layout(relation.schema), moment, None, tasks)
    frame = catalyst.spark.range(0, tasks, 1, tasks).mapInArrow(
        stage.function(None), StructType(list(relation.schema))
    )
    frame.createOrReplaceTempView(f"`{relation.name}`")
