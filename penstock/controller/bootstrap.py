"""Go over from one program to another: keep the state of what is unchanged, and fill the rest from it.

The old program's last checkpoint becomes the new program's first. Until that one is durable nothing else has
happened: a crash, or a view that cannot be computed, leaves the old one as it was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from penstock.checkpoint.check import Checked
from penstock.checkpoint.model import Carried, Saved
from penstock.checkpoint.store import Restored
from penstock.controller.programs import connectors_of
from penstock.controller.recovery import Complete, Plan, Reopen, Replay, joined, plan
from penstock.controller.storage import Storage
from penstock.engine.difference import Difference, difference
from penstock.engine.engine import Engine
from penstock.engine.fingerprints import Identity, identities
from penstock.engine.relations import Relation
from penstock.errors import StateError, StorageError
from penstock.failpoints import failpoint
from penstock.plan.rules.view import row_layout
from penstock.sql import Program, parse_program
from penstock.trace.batch import Batch
from penstock.trace.rows import Rows, concat

_log = logging.getLogger("penstock")


@dataclass(frozen=True)
class Bootstrap:
    """What has to be done before a program can go on from a checkpoint of another one."""

    difference: Difference
    identities: dict[str, Identity]

    def __str__(self) -> str:
        return f"fill {', '.join(self.difference.filled) or 'no view'} for the changed program"


def needed(saved: Saved, engine: Engine) -> Bootstrap | None:
    """How the program of a checkpoint differs from the engine's; None if it is the same."""
    now = identities(engine.relations)
    if saved.relations == now:
        return None
    return Bootstrap(difference(saved.relations, now), now)


def must_catch_up(storage: Storage, saved: Saved) -> bool:
    """Whether there is something after a checkpoint that only its own program can bring back: transactions
    that it committed, or outputs that began with the rows of its views."""
    replays = any(isinstance(stage, Replay) for stage in recorded(storage, saved).stages)
    return replays or bool(joined(storage.journal.open(saved.record), saved.meaning))


def recorded(storage: Storage, saved: Saved) -> Plan:
    """What the journal has after a checkpoint, and whether it leaves room for another program."""
    made = plan(storage.journal.open(saved.record), saved.transaction, saved.positions, lambda _: True)
    last = made.stages[-1] if made.stages else None
    if isinstance(last, Reopen):
        raise StateError(
            f"transaction {last.transaction.number} is open in {storage.path}: commit it or roll it back with"
            " the program that it was opened in, then start the changed one"
        )
    return made


def bootstrap(
    todo: Bootstrap,
    storage: Storage,
    restored: Restored,
    engine: Engine,
    program: Program,
    outputs_of: Callable[[str], Sequence[str]],
    then: Callable[[], dict[str, Relation]],
) -> None:
    """Fill what is new or changed, and take the first checkpoint of the new program.

    `outputs_of` names the outputs of a view; `then` are the relations of the old program.
    """
    checked = restored.checked
    saved = checked.saved
    _refuse(todo.difference, storage, recorded(storage, saved))
    if saved.transaction < saved.first:  # nothing has been computed yet
        began = replace(
            saved, program=program.text, relations=todo.identities, connectors=connectors_of(program, saved)
        )
        storage.checkpoints.commit(began, {})
        return
    _log.warning("the program changed: %s", todo.difference)
    engine.circuit.prepare()
    kept = {
        name
        for name, identity in todo.identities.items()
        if (was := saved.relations.get(name)) is not None and was.fingerprint == identity.fingerprint
    }
    wanted = engine.circuit.traces_of(kept)
    traces = {trace: batches for trace, batches in checked.manifest.traces.items() if trace in wanted}
    engine.state.load(traces, verified=restored.deep)
    filled = [name.lower() for name in todo.difference.filled]
    result = engine.fill(filled, saved.transaction, datetime.now(UTC)) if filled else None
    engine.state.verify_rest()  # no start can go back over this one
    failpoint("bootstrap.filled")
    carried = list(_carried(todo.difference, checked, engine, program, outputs_of, then))
    rows = {todo.identities[n.lower()].name: count for n, count in saved.rows.items() if n.lower() in kept}
    gone = {table.lower() for table in todo.difference.tables.removed}
    lost = {
        c.name for t in parse_program(saved.program).tables if t.name.lower() in gone for c in t.connectors
    }
    known = {name for view in program.views for name in outputs_of(view.name)}
    storage.checkpoints.commit(
        replace(
            saved,
            program=program.text,
            relations=todo.identities,
            connectors={n: m for n, m in connectors_of(program, saved).items() if n not in lost},
            circuit=sorted(engine.circuit.traces),
            rows={**rows, **(result.growth if result is not None else {})},
            delivered={n: d for n, d in saved.delivered.items() if n in known},
            positions={name: place for name, place in saved.positions.items() if name not in lost},
        ),
        engine.state.keep_more(),
        [*checked.pending, *carried],
    )


def _refuse(difference: Difference, storage: Storage, made: Plan) -> None:
    """What cannot be gone over to."""
    if difference.tables.changed:
        raise StorageError(
            f"the table {difference.tables.changed[0]} has other columns or another key than in"
            f" {storage.path}, and its rows cannot be converted. Change it back, give the new table a name of"
            " its own, or start with an empty directory."
        )
    last = made.stages[-1] if made.stages else None
    if isinstance(last, Complete):
        gone = {name.lower() for name in difference.tables.removed}
        for portion in (p for step in last.transaction.steps for p in step.record.portions):
            if portion.table.lower() in gone:
                raise StateError(
                    f"transaction {last.transaction.number} was not finished, and has rows for the table"
                    f" {portion.table}, which the program does not have. Start the program that has it and"
                    " stop it, or skip that transaction; then start the changed one"
                )


def _carried(
    difference: Difference,
    checked: Checked,
    engine: Engine,
    program: Program,
    outputs_of: Callable[[str], Sequence[str]],
    then: Callable[[], dict[str, Relation]],
) -> Iterator[Carried]:
    """For each changed view that an output already has rows of: what became of these rows. A change before
    this one, of which outputs were not told yet, is part of it."""
    untold = {item.view.lower(): item.changes for item in checked.carried}
    for view in program.views:
        outputs = [name for name in outputs_of(view.name) if name in checked.saved.delivered]
        relation = engine.relation(view.name)
        layout = row_layout(relation.schema)
        earlier = untold.get(view.name.lower())
        if view.name not in difference.views.changed:
            if earlier is not None and outputs:
                yield Carried(view.name, earlier)
            continue
        if not outputs:
            continue
        before = then()[view.name.lower()]
        if [(f.name, f.dataType) for f in relation.schema] != [(f.name, f.dataType) for f in before.schema]:
            raise StorageError(
                f"the view {view.name} has other columns than before, and its output {outputs[0]} has rows of"
                " the old ones. Give the output another name and a new place, or change the view back."
            )
        rows = _came_and_went(checked, engine, relation)
        if earlier is not None:
            rows = concat(layout, [rows, Rows.from_table(layout, earlier)]).consolidated()
        yield Carried(view.name, rows.to_table())


def _came_and_went(checked: Checked, engine: Engine, relation: Relation) -> Rows:
    """The rows that a view has now, less those that it had in the checkpoint."""
    layout = row_layout(relation.schema)
    had = [
        part
        for name, size in checked.manifest.traces.get(relation.trace, {}).items()
        for part in Batch(
            str(engine.files.at_hand(relation.trace, name, size)), layout, size.content
        ).segments
    ]
    return concat(layout, [engine.content(relation.name), *(part.negated() for part in had)]).consolidated()
