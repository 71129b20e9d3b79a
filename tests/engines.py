"""An engine by itself, without a pipeline around it: transactions one by one, and a change of its program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from penstock.connectors import inline_split, to_arrow
from penstock.engine.difference import Difference, difference
from penstock.engine.engine import Engine, Fed, Result
from penstock.engine.fingerprints import identities
from penstock.engine.relations import CLOCK, clock_row
from penstock.engine.session import application
from penstock.sql import parse_program
from penstock.trace.files import BatchFiles

Rows = Sequence[Mapping[str, Any]]
NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)


class Running:
    """A program over a directory of batches. Transaction n has the time n minutes past noon."""

    def __init__(self, program: str, directory: Path, transaction: int = 0) -> None:
        self.program = parse_program(program)
        self.engine = Engine(self.program, application(2, {}), BatchFiles(directory), 2)
        # Small data: code that is compiled costs more than it saves.
        self.engine._queries.conf.set("spark.sql.codegen.wholeStage", "false")
        self.transaction = transaction

    @classmethod
    def started(cls, program: str, directory: Path) -> Running:
        """After its initial transaction, over a new directory."""
        directory.mkdir()
        running = cls(program, directory)
        running._run({}, initial=True)
        return running

    @property
    def now(self) -> datetime:
        """The time of the transaction to come."""
        return NOON + timedelta(minutes=self.transaction)

    def commit(self, *changes: tuple[str, str, Rows]) -> Result:
        """One transaction of `("insert" or "delete", table, rows)`."""
        inputs: dict[str, list[Fed]] = {}
        for action, name, rows in changes:
            relation = self.engine.table(name)
            table = next(t for t in self.program.tables if t.name == relation.name)
            data = to_arrow(table, relation.arrow, rows, delete=action == "delete", defaults={})
            inputs.setdefault(name, []).append(Fed(inline_split(data)))
        return self._run(inputs)

    def _run(self, inputs: dict[str, list[Fed]], *, initial: bool = False) -> Result:
        if self.engine.uses_clock:
            inputs[CLOCK] = [Fed(inline_split(clock_row(self.now)))]
        result = self.engine.run(self.transaction, inputs, now=self.now, initial=initial)
        self.transaction += 1
        return result

    def become(self, program: str) -> tuple[Running, Difference]:
        """Another program over the same directory, which has what it can keep and is yet to be filled."""
        after = Running(program, self.engine.files.directory, self.transaction)
        old, new = identities(self.engine.relations), identities(after.engine.relations)
        after.engine.circuit.prepare()
        kept = after.engine.circuit.traces_of(
            name for name, found in new.items() if name in old and found.fingerprint == old[name].fingerprint
        )
        sizes = self.engine.state.sizes()
        found = {trace: batches for trace, batches in sizes.items() if trace in kept}
        after.engine.state.load(found, verified=False)
        return after, difference(old, new)

    def fill(self, found: Difference) -> Result:
        """Fill what a change of the program left empty, as one transaction."""
        result = self.engine.fill([name.lower() for name in found.filled], self.transaction, self.now)
        self.transaction += 1
        return result
