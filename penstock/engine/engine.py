"""Run transactions: input splits in, new batches out, all of them or none."""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.accumulators import Accumulator
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from penstock.connectors import READING, BadRecord, Split, inline_split, served
from penstock.engine.asking import answer
from penstock.engine.circuit import Circuit, Form, Wave, bind_rows
from penstock.engine.failure import damage_in, evaluation_error, host_error_in, lost_worker
from penstock.engine.fingerprints import identities, whole
from penstock.engine.relations import CLOCK, Relation, TableRelation, ViewRelation, analyse, clock_row
from penstock.engine.session import circuit_session, query_session
from penstock.engine.state import Batches, Merge, State
from penstock.errors import HostLostError, StateError
from penstock.failpoints import failpoint
from penstock.plan.catalyst import Catalyst
from penstock.plan.rules.view import Moment, row_layout
from penstock.sql import Program
from penstock.trace.batch import Batch
from penstock.trace.files import BatchFiles, Size, Sizes
from penstock.trace.host import FETCHED, HELD
from penstock.trace.rows import Rows, concat
from penstock.trace.seen import NO_TRANSACTION
from penstock.trace.task import PROPERTY, Report, ReportParam, Stage, Task

_log = logging.getLogger("penstock")

# A change with more rows than this is spread over the workers.
WIDE_ROWS = 150_000
# A query reads a relation with no more rows than this in one task.
_NARROW_ROWS = 20_000
# Records that could not be read are kept in this directory of the storage, one file for each split.
DEAD_LETTERS = "dead-letters"
SHOWN_BAD = 5
# A transaction that loses a Python worker is run so often before it is said to fail: Spark notices only when
# it uses them that idle workers are gone, one after the other.
_ATTEMPTS = 10
_PAUSE_SECONDS = 0.5
# A partition of a wide transaction holds about this many rows, so that its tasks stay small.
_PARTITION_ROWS = 250_000


@dataclass(frozen=True)
class Owner:
    """Who gave a split: a connector, to a transaction."""

    connector: str
    transaction: int


@dataclass(frozen=True)
class Fed:
    """A split and its owner; rows without an owner are not accounted for."""

    split: Split
    owner: Owner | None = None

    def with_reading(self, reading: Mapping[str, Mapping[str, Any]]) -> Fed:
        """The same with what its connector's reader needs beside the split."""
        more = reading.get(self.owner.connector) if self.owner is not None else None
        if not more:
            return self
        return replace(self, split=replace(self.split, payload={**self.split.payload, READING: more}))


@dataclass(frozen=True)
class Bad:
    """Records that could not be read: how many, and the first few."""

    count: int
    shown: Sequence[BadRecord]


@dataclass(frozen=True)
class Result:
    """What a transaction did, or several that were run as one."""

    transaction: int
    rows_in: Mapping[str, int]
    errors: Mapping[str, int]
    changed: Sizes  # relation -> the batches that are its change
    rows_out: Mapping[str, int]  # rows of that change
    growth: Mapping[str, int]  # rows that a relation has more than before
    processed: Mapping[str, int]  # rows of all tables that a host took in, by its number
    digests: Mapping[Owner, tuple[int, int]]  # rows, and the sum of their hashes
    bad: Mapping[Owner, Bad]


class Engine:
    """A program's circuit and state. One thread runs transactions; any thread may query."""

    def __init__(self, program: Program, spark: SparkSession, files: BatchFiles, workers: int) -> None:
        """`workers`: how many tasks run at once, on all machines together."""
        self.spark = spark
        self.workers = workers
        self.files = files
        self._report: Accumulator[Report] = spark.sparkContext.accumulator({}, ReportParam())
        several = files.hosts > 1
        session = circuit_session(spark, workers, places=several)
        catalyst = Catalyst(session)
        self.relations = analyse(program, catalyst)
        self.state = State(files, whole(identities(self.relations)))
        wholes = Catalyst(circuit_session(spark, workers, places=several))
        least = self._bits(0)
        self.circuit = Circuit(self.relations, catalyst, wholes, self._report, files.addresses, least)
        self._queries = query_session(spark, workers)
        self._query_lock = threading.Lock()
        self._bound: dict[str, int] = {}

    @property
    def _queries_of_views(self) -> dict[str, str]:
        return {r.name: r.query for r in self.relations.values() if isinstance(r, ViewRelation)}

    @property
    def uses_clock(self) -> bool:
        return CLOCK in self.relations

    def relation(self, name: str) -> Relation:
        return self.relations[name.lower()]

    def table(self, name: str) -> TableRelation:
        found = self.relations.get(name.lower())
        if not isinstance(found, TableRelation) or found.name == CLOCK or found.errors_of is not None:
            tables = [r for r in self.relations.values() if isinstance(r, TableRelation)]
            known = ", ".join(t.name for t in tables if t.name != CLOCK and t.errors_of is None)
            raise StateError(f"there is no table {name}; the tables are: {known}")
        return found

    # -- transactions ---------------------------------------------------------------------------

    def run(
        self,
        transaction: int,
        inputs: Mapping[str, Sequence[Fed]],
        *,
        now: datetime,
        initial: bool = False,
    ) -> Result:
        """Evaluate one transaction and make it visible; on any failure nothing of it remains."""
        rows = sum(fed.split.rows or 0 for splits in inputs.values() for fed in splits)
        tables = frozenset(name.lower() for name, splits in inputs.items() if splits)
        form = Form(self._bits(rows), initial, tables)
        with self.state.reading() as batches:
            return self._evaluated(transaction, form, inputs, now, batches, {"traces": rows_of(batches)})

    def fill(self, views: Collection[str], transaction: int, now: datetime) -> Result:
        """Evaluate views that hold nothing yet over all rows of what they read, and make them visible; on any
        failure nothing of it remains.

        `views` are lower-case names, and whoever reads one of them is among them. The state holds the traces
        of all other relations and nothing else; none of these is written. The time is that of the last
        transaction, so that filled and kept views agree on it, and `now` if no view asked for it before.
        """
        filled = set(views)
        inputs: dict[str, list[Fed]] = {}
        with self.state.reading() as batches:
            if self.uses_clock and self.relation(CLOCK).trace not in batches:
                filled.add(CLOCK)
                inputs[CLOCK] = [Fed(inline_split(clock_row(now)))]
            self._check_filled(filled, batches)
            reads = {read for name in filled for read in self._reads.get(name, ()) if read not in filled}
            traces = [self.relation(read).trace for read in reads]
            sources = {trace: batches[trace] for trace in traces if trace in batches}
            rows = sum(size.rows for sizes in sources.values() for size in sizes.values())
            form = Form(self._bits(rows), True, frozenset(), frozenset(filled))
            facts = {"sources": rows_of(sources), "kept": sorted(batches)}
            return self._evaluated(transaction, form, inputs, now, batches, facts)

    @property
    def _reads(self) -> dict[str, tuple[str, ...]]:
        return {n: r.reads for n, r in self.relations.items() if isinstance(r, ViewRelation)}

    def _check_filled(self, filled: Collection[str], batches: Collection[str]) -> None:
        for name, reads in self._reads.items():
            stale = [read for read in reads if read in filled]
            assert name in filled or not stale, f"{name} reads {stale[0]}, which is filled, but is kept"
        for name in filled:
            assert self.relation(name).trace not in batches, f"{name} is filled, but has rows already"

    def _evaluated(
        self,
        transaction: int,
        form: Form,
        inputs: Mapping[str, Sequence[Fed]],
        now: datetime,
        batches: Batches,
        seen: Mapping[str, Any],
    ) -> Result:
        """Run the jobs of a form; `seen` says which of the `batches` they see, and as what."""
        waves = self.circuit.waves(form)
        owners = list(dict.fromkeys(f.owner for splits in inputs.values() for f in splits if f.owner))
        index = {owner: number for number, owner in enumerate(owners)}
        facts: dict[str, Any] = {
            **_NO_FACTS,
            **seen,
            "transaction": transaction,
            "initial": form.initial,
            "inputs": {
                name.lower(): [asdict(served(f.split, self.files.url_of)) for f in splits]
                for name, splits in inputs.items()
            },
            "owners": {
                name.lower(): [index[f.owner] for f in splits if f.owner]
                for name, splits in inputs.items()
                if all(f.owner for f in splits)
            },
            "owner_names": [(owner.connector, owner.transaction) for owner in owners],
            "dead_letters": str(self.files.directory.parent / DEAD_LETTERS),
            "now": now.isoformat(),
            **facts_of(self.state, batches),
            "written": {},
        }
        told = self._run_waves(transaction, waves, facts, batches)
        failpoint("engine.evaluated")
        self.files.reads.update(reads_of(told))
        self.state.verified((key[1], key[2]) for key in told if key[0] == "verified")
        written = {(key[1], key[2]): Size(*fact) for key, fact in told.items() if key[0] == "batch"}
        self.state.add(written)
        for key, fact in told.items():
            if key[0] == "merge":
                self.state.replace(Merge(key[1], fact[1]), key[2], Size(*fact[0]))
        self.state.doubt(self.files.returned_since(facts["hosts"]))
        failpoint("engine.added")
        return self._result(transaction, told, written, owners)

    def _run_waves(
        self, transaction: int, waves: Sequence[Wave], facts: dict[str, Any], batches: Batches
    ) -> Report:
        """What all waves report; after a failure nothing of them remains. A worker that was lost is replaced
        by Spark, so what it did is done again."""
        for attempt in range(1, _ATTEMPTS + 1):
            facts["written"] = {}
            told: Report = {}
            try:
                for wave in waves:
                    told |= self._run_wave(wave, facts)
                    for key in told:
                        if key[0] == "batch":
                            listed = facts["written"].setdefault(key[1], [])
                            if key[2] not in listed:
                                listed.append(key[2])
                                self.files.note(facts["hosts"], key[1], key[2], Size(*told[key]))
            except BaseException as error:
                self.state.discard(transaction)
                if attempt < _ATTEMPTS and isinstance(fault := host_error_in(error), HostLostError):
                    _log.warning("transaction %d is run again with all hosts: %s", transaction, fault)
                    time.sleep(_PAUSE_SECONDS)  # one may not reach another, and yet all answer from here
                    self.files.wait()
                    self.state.discard(transaction)  # also where nobody could be told to
                    facts |= facts_of(self.state, batches)  # it may be another process now
                    continue
                if attempt < _ATTEMPTS and lost_worker(error):
                    _log.warning("a Python worker was lost in transaction %d; it is run again", transaction)
                    continue
                if isinstance(error, Py4JJavaError | PySparkException):
                    raise evaluation_error(error, transaction, self._queries_of_views) from error
                raise
            return told
        raise AssertionError("the last attempt returns or raises")

    def _bits(self, rows: int) -> int:
        """How many partitions a change of that many rows deserves, as a power of two."""
        if self.files.hosts == 1 and (rows <= WIDE_ROWS or self.workers == 1):
            return 0
        wanted = max(self.workers, rows // _PARTITION_ROWS)
        return (wanted - 1).bit_length()

    def _run_wave(self, wave: Wave, facts: dict[str, Any]) -> Report:
        context = self.spark.sparkContext
        context.setLocalProperty(PROPERTY, json.dumps(facts))
        self._report.value = {}
        catalyst = self.circuit.catalyst
        catalyst.run(wave.job or catalyst.job(catalyst.replanned(wave.frame)))
        return dict(self._report.value)

    def _result(
        self,
        transaction: int,
        told: Report,
        written: Mapping[tuple[str, str], Size],
        owners: Sequence[Owner],
    ) -> Result:
        rows_in: dict[str, int] = {}
        errors: dict[str, int] = {}
        processed: Counter[str] = Counter()
        for key, fact in told.items():
            if key[0] == "input":
                rows, host = fact
                name = self.relation(key[1]).name
                rows_in[name] = rows_in.get(name, 0) + rows
                if name != CLOCK:
                    processed[str(host)] += rows
            elif key[0] == "errors":
                name = self.relation(key[1]).name
                errors[name] = errors.get(name, 0) + fact
        changed: dict[str, dict[str, Size]] = {}
        rows_out: dict[str, int] = {}
        growth: dict[str, int] = {}
        by_trace = {relation.trace: relation.name for relation in self.relations.values()}
        for key, fact in told.items():
            if key[0] == "rows":
                growth[by_trace[key[1]]] = growth.get(by_trace[key[1]], 0) + fact
        for (trace, name), size in written.items():
            if trace in by_trace:
                changed.setdefault(by_trace[trace], {})[name] = size
                rows_out[by_trace[trace]] = rows_out.get(by_trace[trace], 0) + size.rows
        digests: dict[Owner, tuple[int, int]] = {}
        bad: dict[Owner, Bad] = {}
        for key, fact in told.items():
            if key[0] == "digest":
                rows, hash_ = digests.get(owners[int(key[1])], (0, 0))
                digests[owners[int(key[1])]] = (rows + fact[0], (hash_ + fact[1]) % (1 << 64))
            elif key[0] == "bad":
                before = bad.get(owners[int(key[1])], Bad(0, ()))
                shown = [*before.shown, *(BadRecord(**record) for record in fact[1])]
                bad[owners[int(key[1])]] = Bad(before.count + fact[0], shown[:SHOWN_BAD])
        return Result(transaction, rows_in, errors, changed, rows_out, growth, processed, digests, bad)

    def change(self, relation: str, batches: Mapping[str, Size], more: Rows | None = None) -> pa.Table:
        """A relation's change, and perhaps `more` rows: its columns and `_weight`."""
        found = self.relation(relation)
        layout = row_layout(found.schema)
        paths = [self.files.at_hand(found.trace, name, size) for name, size in batches.items()]
        parts = [part for path in paths for part in Batch(str(path), layout).segments]
        return self._as_change(relation, [*parts, *([more] if more is not None else [])])

    def _as_change(self, relation: str, parts: Sequence[Rows]) -> pa.Table:
        schema = self.relation(relation).schema
        rows = concat(row_layout(schema), parts).consolidated()
        return (
            rows.to_table().drop_columns(["_k", "_r"]).rename_columns([*(f.name for f in schema), "_weight"])
        )

    def rows(self, relation: str) -> pa.Table:
        """A relation's rows as a change from nothing."""
        return self._as_change(relation, [self.content(relation)])

    def content(self, relation: str) -> Rows:
        """A relation's rows, with their hashes and weights."""
        found = self.relation(relation)
        layout = row_layout(found.schema)
        with self.state.reading() as batches:
            unverified = self.state.unverified().get(found.trace, {})
            opened = [
                Batch(
                    str(self.files.at_hand(found.trace, name, size)),
                    layout,
                    size.content if name in unverified else None,
                )
                for name, size in batches.get(found.trace, {}).items()
            ]
            return concat(layout, [part for batch in opened for part in batch.segments]).consolidated()

    def trace_stats(self) -> dict[str, dict[str, Any]]:
        """What each trace holds, and how much."""
        sizes = self.state.sizes()
        return {
            trace: {
                "holds": info.describes,
                "batches": len(sizes.get(trace, {})),
                "rows": sum(size.rows for size in sizes.get(trace, {}).values()),
                "bytes": sum(size.bytes for size in sizes.get(trace, {}).values()),
            }
            for trace, info in list(self.circuit.traces.items())
        }

    def tasks(self) -> tuple[int, int]:
        """Of the Spark jobs that are running: how many tasks are done, and how many there are."""
        tracker = self.spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        return sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)

    # -- queries --------------------------------------------------------------------------------

    def query(self, sql: str) -> pa.Table:
        """The answer to a query over the state between two transactions."""
        with self._query_lock, self.state.reading() as batches:
            facts = {**_NO_FACTS, **facts_of(self.state, batches), "traces": rows_of(batches)}
            context = self.spark.sparkContext
            before = context.getLocalProperty(PROPERTY)
            context.setLocalProperty(PROPERTY, json.dumps(facts))
            try:
                self._bind_names(batches)
                return _to_arrow(answer(self._queries, sql))
            except (Py4JJavaError, PySparkException) as error:
                raise damage_in(error) or host_error_in(error) or error from error
            finally:
                context.setLocalProperty(PROPERTY, before)  # type: ignore[arg-type]

    def _bind_names(self, batches: Batches) -> None:
        """Let the names of relations stand for their rows. Few are read by one task: what Spark then does
        with them needs no shuffle, which takes longer than all the rest."""
        for relation in self.relations.values():
            if relation.name == CLOCK or (isinstance(relation, ViewRelation) and relation.local):
                continue
            rows = sum(size.rows for size in batches.get(relation.trace, {}).values())
            tasks = 1 if rows <= _NARROW_ROWS else self.workers
            if self._bound.get(relation.name) != tasks:
                bind_rows(Catalyst(self._queries), relation, tasks, Moment.BEFORE)
                self._bound[relation.name] = tasks

    # -- in the background ----------------------------------------------------------------------

    def tidy(self) -> bool:
        """Merge batches in a Spark job of its own, or compile what is asked for often.

        False if there was nothing to do.
        """
        pending = self.state.merges()
        if pending:
            try:
                run_merges(self.spark, self.state, pending)
            except (Py4JJavaError, PySparkException) as error:
                raise damage_in(error) or host_error_in(error) or error from error
            return True
        return self.circuit.specialise()


def _to_arrow(frame: DataFrame) -> pa.Table:
    """The rows of a frame. PySpark itself refuses a NULL whose fields cannot be NULL, such as a VARIANT."""
    try:
        return frame.toArrow()
    except pa.ArrowInvalid:
        batches: list[pa.RecordBatch] = frame._collect_as_arrow()  # type: ignore[operator]
        return pa.Table.from_batches(batches)


def run_merges(spark: SparkSession, state: State, pending: list[Merge]) -> None:
    """Merge batches in Spark tasks and put the results in place."""
    report: Accumulator[Report] = spark.sparkContext.accumulator({}, ReportParam())
    named = [(merge_, f"m{uuid.uuid4().hex[:16]}") for merge_ in pending]
    work = [{"trace": m.trace, "names": m.names, "host": m.host, "target": name} for m, name in named]
    stage = MergeStage(json.dumps(work))
    places = state.files.addresses
    numbers = Catalyst(spark).placed_range(places) if places else spark.range(0, 1, 1, 1)
    frame = numbers.mapInArrow(stage.function(report), StructType([StructField("_", LongType())]))
    context = spark.sparkContext
    facts = facts_of(state, state.sizes())
    context.setLocalProperty(PROPERTY, json.dumps(_NO_FACTS | facts))
    try:
        frame.collect()
    except BaseException:
        state.files.remove([(merge_.trace, name) for merge_, name in named])
        raise
    failpoint("merge.written")
    state.files.reads.update(reads_of(report.value))
    state.verified((key[1], key[2]) for key in report.value if key[0] == "verified")
    for merge_, name in named:
        state.replace(merge_, name, Size(*report.value[("batch", merge_.trace, name)]))
        failpoint("merge.replaced")
    state.doubt(state.files.returned_since(facts["hosts"]))


def rows_of(batches: Sizes) -> dict[str, dict[str, int]]:
    """How many rows each batch has."""
    return {trace: {name: size.rows for name, size in found.items()} for trace, found in batches.items()}


def reads_of(told: Report) -> Iterator[tuple[int, str]]:
    """Of each batch that tasks on a host read: the host, and how they came to it at first."""
    for key in told:
        if key[0] == "read" and not (key[4] == HELD and (*key[:4], FETCHED) in told):
            yield int(key[3]), key[4]


def facts_of(state: State, batches: Sizes) -> dict[str, Any]:
    """What tasks must know of these batches, whichever of them they read."""
    # First of all: from here on tasks see if a host is started again.
    hosts = state.files.facts(batches, state.run, state.program)
    return {
        "directory": str(state.files.directory),
        "run": state.run,
        "unverified": state.unverified(),
        "hosts": hosts,
    }


_NO_FACTS: dict[str, Any] = {
    "transaction": NO_TRANSACTION,
    "initial": False,
    "inputs": {},
    "owners": {},
    "owner_names": [],
    "dead_letters": "",
    "now": "",
    "run": "",
    "unverified": {},
    "traces": {},
    "sources": {},
    "kept": [],
    "written": {},
}


@dataclass(frozen=True)
class MergeStage(Stage):
    """Merge the batches of one host, one trace after another; a leaf's input is the host's number."""

    work: str

    def run(self, task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        host = next(batches).column(0)[0].as_py()
        for item in (item for item in json.loads(self.work) if item["host"] == host):
            trace, parts, target = item["trace"], item["names"], item["target"]
            layout = task.layout(trace, parts[0])
            task.tell(("batch", trace, target), task.merged(trace, parts, target, layout))
        return iter(())
