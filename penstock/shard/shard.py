"""A shard, as those who use it see it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.errors import BoundsError, DamagedError, ShardError
from penstock.shard import parts
from penstock.shard.machine import PATIENCE_SECONDS, Machine
from penstock.shard.rows import TIME, between, consolidated, forwarded, schema_with_time
from penstock.shard.state import Batch, Fence, State
from penstock.shard.stores.place import Place

LEASE_SECONDS = 60.0
"""A reader or writer of which nothing is heard for so long is gone."""


class Shard:
    """Opened by one process; writers and readers are made of it. Any thread may call it."""

    def __init__(self, machine: Machine, schema: pa.Schema, lease: float) -> None:
        self.machine = machine
        self.schema = schema
        self.lease = lease

    @classmethod
    def open(
        cls,
        place: Place,
        name: str,
        schema: pa.Schema | None = None,
        *,
        owner: str = "",
        patience: float = PATIENCE_SECONDS,
        lease: float = LEASE_SECONDS,
    ) -> Shard:
        """The shard of a name. With a schema it is made if it is not there, for an owner, and refused if it
        has another schema or another owner."""
        machine = Machine(place, name, patience)
        if schema is not None:
            machine.create(State(secrets.token_hex(16), parts.encode_schema(schema), owner))
        found = parts.decode_schema(machine.refresh().schema)
        if schema is not None and not found.equals(schema):
            raise ShardError(
                f"{machine} has other columns: {_shown(found)}; this program has {_shown(schema)}. Give it"
                " another name."
            )
        if schema is not None and machine.state.owner != owner:
            raise ShardError(
                f"{machine} has the transactions of another pipeline ({machine.state.owner}), whose numbers"
                " mean something else. Give it another name, or delete it."
            )
        return cls(machine, found, lease)

    def __str__(self) -> str:
        return str(self.machine)

    @property
    def upper(self) -> int:
        """The first time that is not complete yet, as it is now."""
        return self.machine.refresh().upper

    @property
    def since(self) -> int:
        """The first time that can be read, as it is now."""
        return self.machine.refresh().since

    def raise_fence(self, fence: Fence) -> None:
        """From now on nothing of an earlier generation is appended. `FencedError` if a later one has it."""

        def change(state: State, _: int) -> State | None:
            state.refuse_fenced(fence)
            return None if state.fence == fence else replace(state, fence=fence)

        self.machine.update(change)

    # -- reading --------------------------------------------------------------------------------

    def changes(self, lower: int, upper: int) -> pa.Table:
        """The changes from `lower` to before `upper`, each at its own time."""
        return consolidated(between(self._rows(lower, upper, exact=True), lower, upper))

    def snapshot(self, at: int) -> pa.Table:
        """What the shard holds at a time: rows with `_weight`."""
        rows = between(self._rows(0, at + 1, exact=False), 0, at + 1)
        return consolidated(forwarded(rows, at)).drop_columns([TIME])

    def _rows(self, lower: int, upper: int, *, exact: bool) -> pa.Table:
        """All rows of the batches that have changes between two times, and perhaps others."""
        if upper > self.machine.state.upper:
            self.machine.refresh()
        while True:
            number, state = self.machine.number, self.machine.state
            if exact:
                state.exact_from(lower)
            else:
                state.refuse_gone(upper - 1)
            if upper > state.upper:
                raise BoundsError(f"{self} is complete to before time {state.upper}, not to before {upper}")
            found = self.rows_of(state.between(lower, upper))
            if found is not None:
                return found
            # What was merged is deleted at some time, also while a reader that nobody knows of reads it.
            self.machine.refresh()
            if self.machine.number == number:
                missing = [key for key in sorted(state.keys) if self.get(key) is None]
                raise DamagedError(
                    f"{self} is damaged: {', '.join(missing)} is missing. Restore it from a copy of"
                    f" {self.machine.place}."
                )

    def rows_of(self, batches: Sequence[Batch]) -> pa.Table | None:
        """All rows of some batches; None if one of their parts is not there any more."""
        found = [schema_with_time(self.schema).empty_table()]
        for part in (part for batch in batches for part in batch.parts):
            data = self.get(part.key)
            if data is None:
                return None
            found.append(parts.decode(data, part, str(self.machine.place)))
        return pa.concat_tables(found)

    # -- objects --------------------------------------------------------------------------------

    def get(self, key: str) -> bytes | None:
        """An object; a store that does not answer is asked again for a while."""
        return self.machine.patiently(lambda: self.machine.place.blobs.get(key))

    def put(self, key: str, data: bytes) -> None:
        """Put an object; likewise."""
        self.machine.patiently(lambda: self.machine.place.blobs.put(key, data))


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
