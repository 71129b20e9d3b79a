"""The public API: a pipeline in this process, on Spark, with no server."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.connectors import create_input, create_output, to_arrow
from penstock.controller.changes import Changes
from penstock.controller.controller import Controller, Limits
from penstock.controller.recovery import recover
from penstock.controller.storage import Saved, Storage
from penstock.engine.engine import Engine
from penstock.engine.relations import Relation, ViewRelation, analyse
from penstock.engine.session import application, circuit_session
from penstock.errors import EvaluationError, StateError, StorageError
from penstock.plan.catalyst import Catalyst
from penstock.plan.explain import FORMATS, explain_whole
from penstock.plan.explain import explain as explain_node
from penstock.sql import Program, Table, parse_program

_CONFIG = {"workers": int, "max_transaction_rows": int, "max_queued_rows": int, "spark": dict}


class Pipeline:
    """A SQL program kept up to date, from `start` to `stop`.

    `storage` is a directory that outlives the process; None means a temporary one. `config` may set
    `workers` (parallel tasks, default: the processors of this machine), `max_transaction_rows`,
    `max_queued_rows`, and `spark`, a dict of Spark settings for an application that is not yet running.
    """

    def __init__(
        self,
        name: str,
        program: str,
        storage: str | os.PathLike[str] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.program: Program = parse_program(program)
        self._config = _checked(config or {})
        self._storage_path = storage
        self._storage: Storage | None = None
        self._controller: Controller | None = None
        self._local = threading.local()
        self._state = "Stopped"

    # -- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start Spark if need be, open the storage, and begin to take input."""
        if self._controller is not None:
            raise StateError(f"the pipeline {self.name} is already running")
        storage = Storage(self._storage_path)
        try:
            self._controller = self._open(storage)
        except BaseException:
            storage.close()
            raise
        self._storage = storage
        self._state = "Running"
        self._controller.start()

    def _open(self, storage: Storage) -> Controller:
        workers = self._config.get("workers", os.cpu_count() or 2)
        saved = storage.load(self.name, self.program.text)
        spark = application(workers, self._config.get("spark", {}))
        engine = Engine(self.program, spark, storage.batches, workers)
        inputs = {
            t.name: [create_input(c, t) for c in t.connectors] for t in self.program.tables if t.connectors
        }
        outputs = {
            v.name: [create_output(c, v) for c in v.connectors] for v in self.program.views if v.connectors
        }
        if saved is None:
            saved = Saved(self.name, self.program.text, -1, {}, [], {})
            if not storage.temporary:
                storage.save(saved)
        elif inputs:
            raise StorageError(
                f"the storage {storage.path} holds the state of a pipeline with input connectors, whose"
                " positions are not kept: they would be read again from the start."
                " Give the pipeline an empty directory."
            )
        transaction, rows = recover(engine, storage, saved)
        limits = {k: v for k, v in self._config.items() if k in ("max_transaction_rows", "max_queued_rows")}
        return Controller(engine, storage, saved, transaction, rows, inputs, outputs, Limits(**limits))

    def stop(self) -> None:
        """Finish what was accepted, make the state durable, and let go of the storage."""
        controller, storage = self._controller, self._storage
        if controller is None or storage is None:
            return
        self._state = "Stopping"
        try:
            controller.stop(drop=False)
            if not controller.failed:
                controller.save()
        finally:
            self._controller = self._storage = None
            self._state = "Stopped"
            storage.close()

    def kill(self) -> None:
        """Drop everything at once, as a crash would: nothing is finished, nothing is saved."""
        controller, storage = self._controller, self._storage
        if controller is None or storage is None:
            return
        self._controller = self._storage = None
        self._state = "Stopped"
        controller.stop(drop=True)
        storage.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.stop()

    # -- input ----------------------------------------------------------------------------------

    def insert(self, table: str, rows: Any) -> None:
        """Insert rows: a list of dicts, a pyarrow Table or RecordBatch, or a pandas DataFrame.

        In a table with a key a row replaces the one with the same key. A bad row raises BadRowError,
        and nothing of the call takes effect.
        """
        self._send(table, rows, delete=False)

    def delete(self, table: str, rows: Any) -> None:
        """Delete rows by key, or by the whole row in a table without a key."""
        self._send(table, rows, delete=True)

    def _send(self, table: str, rows: Any, *, delete: bool) -> None:
        controller = self._running()
        declared = self._table(table)
        relation = controller.engine.table(table)
        if delete and declared.append_only:
            raise StateError(f"rows cannot be deleted from {declared.name}: it is declared append_only")
        converted = to_arrow(declared, relation.arrow, rows, delete=delete, defaults=relation.defaults)
        opened: list[tuple[str, pa.Table]] | None = getattr(self._local, "opened", None)
        if opened is not None:
            opened.append((declared.name, converted))
        elif converted.num_rows:
            controller.submit([(declared.name, converted)], explicit=False)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything this thread sends within the block takes effect together; an exception drops it all."""
        controller = self._running()
        if getattr(self._local, "opened", None) is not None:
            raise StateError("this thread is already in a transaction; transactions do not nest")
        self._local.opened = []
        try:
            yield
            inputs = self._local.opened
        finally:
            self._local.opened = None
        controller.submit(inputs, explicit=True)

    def flush(self) -> None:
        """Wait until everything accepted so far is in the views.

        Raises EvaluationError if a transaction could not be evaluated; it did not take effect.
        """
        self._running().flush()

    @property
    def inputs_ended(self) -> bool:
        """Whether every input connector has come to its end."""
        return self._running().inputs_ended

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every input ended and all is processed; False if the time ran out first."""
        return self._running().wait(timeout)

    # -- output ---------------------------------------------------------------------------------

    def query(self, sql: str) -> pa.Table:
        """Any Spark SQL query over the tables and views, answered from one consistent snapshot."""
        try:
            return self._running().engine.query(sql)
        except PySparkException as error:
            message = str(error).strip().split("\n", 1)[0]
            raise EvaluationError(f"the query could not be answered: {message}") from error

    def changes(self, view: str, *, follow: bool = False) -> Changes:
        """The view's rows as they are now, as one change, and then each transaction's change.

        Iterating ends when it has caught up, and may be continued; with `follow` it waits for more.
        """
        controller = self._running()
        relation = controller.engine.relations.get(view.lower())
        if not isinstance(relation, ViewRelation):
            raise StateError(f"there is no view {view}; the views are: {', '.join(self.views)}")
        return controller.subscribe(relation.name, follow=follow)

    def explain(self, view: str, format: str = "text") -> str:
        """The strategy of each operator of a view, and why; `format` is text, json or mermaid."""
        return _explained(self._running().engine.relations, view, format)

    def stats(self) -> dict[str, Any]:
        """Counters, latencies, and the size of each trace."""
        if self._controller is None:
            return {"state": self._state}
        return self._controller.stats(self._state)

    # -- what it is -----------------------------------------------------------------------------

    @property
    def tables(self) -> list[str]:
        return [table.name for table in self.program.tables]

    @property
    def views(self) -> list[str]:
        return [view.name for view in self.program.views]

    @property
    def spark(self) -> SparkSession:
        """The Spark session of the application that the pipeline runs in."""
        return self._running().engine.spark

    @property
    def storage(self) -> str:
        """The storage directory."""
        if self._storage is None:
            raise StateError(f"the pipeline {self.name} is not running; call start() first")
        return str(self._storage.path)

    def _running(self) -> Controller:
        if self._controller is None:
            raise StateError(f"the pipeline {self.name} is not running; call start() first")
        return self._controller

    def _table(self, name: str) -> Table:
        for table in self.program.tables:
            if table.name.lower() == name.lower():
                return table
        raise StateError(f"there is no table {name}; the tables are: {', '.join(self.tables)}")


def _checked(config: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in config.items():
        if key not in _CONFIG:
            raise StateError(f"unknown setting {key!r}; known: {', '.join(_CONFIG)}")
        if not isinstance(value, _CONFIG[key]) or isinstance(value, bool):
            raise StateError(f"the setting {key!r} must be of type {_CONFIG[key].__name__}, not {value!r}")
        if isinstance(value, int) and value < 1:
            raise StateError(f"the setting {key!r} must be at least 1, not {value}")
    return dict(config)


def _analysed(sql: str) -> dict[str, Relation]:
    program = parse_program(sql)
    for table in program.tables:
        for connector in table.connectors:
            create_input(connector, table).close()
    spark = application(1, {})
    return analyse(program, Catalyst(circuit_session(spark, 1)))


def check(sql: str) -> None:
    """Raise ProgramError if the program is wrong."""
    _analysed(sql)


def explain(sql: str, view: str | None = None, format: str = "text") -> str:
    """How the views of a program (or one of them) would be kept up to date."""
    relations = _analysed(sql)
    if view is not None:
        return _explained(relations, view, format)
    views = [r.name for r in relations.values() if isinstance(r, ViewRelation)]
    texts = [_explained(relations, name, format) for name in views]
    return f"[{', '.join(texts)}]" if format == "json" else "\n\n".join(texts)


def _explained(relations: Mapping[str, Relation], view: str, format: str) -> str:
    relation = relations.get(view.lower())
    if not isinstance(relation, ViewRelation):
        known = ", ".join(r.name for r in relations.values() if isinstance(r, ViewRelation))
        raise StateError(f"there is no view {view}; the views are: {known}")
    if format not in FORMATS:
        raise StateError(f"unknown format {format!r}; known: {', '.join(FORMATS)}")
    if relation.node is None:
        operators = list(explain_whole(relation.reason or "", relation.reads))
    else:
        operators = list(explain_node(relation.node))
    return FORMATS[format](relation.name, operators)
