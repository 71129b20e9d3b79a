"""What the replicas of a generation compute, as far as another generation has to know it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from penstock.errors import StateError


@dataclass(frozen=True)
class Computed:
    """Of one program."""

    mark: str
    """The same for the same tables and views."""
    relations: Mapping[str, str] = field(default_factory=dict)
    """A mark of each table and view, by its name in lower case."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """The tables that connectors read into."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    """The views and tables that outputs get which outlive a run."""
    tables: Sequence[str] = ()
    """Those whose rows are input; the group keeps them."""

    @property
    def text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def of(cls, text: str) -> Computed:
        return cls(**json.loads(text))

    def keeps(self, output: str, before: Computed) -> bool:
        """Whether an output goes on with the changes of what it had before."""
        if output not in before.outputs:
            return False
        now, then = self.outputs[output].lower(), before.outputs[output].lower()
        return self.relations[now] == before.relations.get(then)

    def refuse_after(self, before: Computed, led: frozenset[str]) -> None:
        """Whether this can follow on another generation; `led` are the outputs that only one may write."""
        self._refuse_tables(before)
        for connector, table in before.inputs.items():
            if self.inputs.get(connector) != table:
                raise StateError(
                    f"the generation that runs reads the connector {connector} into {table}, and this program"
                    " does not: keep it until this generation was promoted, then take it out in another one"
                )
        for output in led & before.outputs.keys():
            if not self.keeps(output, before):
                raise StateError(
                    f"the output {output} has changes of what {before.outputs[output]} was in the generation"
                    " that runs, and this program computes something else: give the connector another name,"
                    " and it begins with all rows; or write a shard, which is brought over"
                )

    def _refuse_tables(self, before: Computed) -> None:
        """The rows of a table are those that the generation before took in, and has to go on with."""
        kept = {table.lower() for table in before.tables}
        for table in self.tables:
            name = table.lower()
            if name in kept and self.relations[name] != before.relations[name]:
                raise StateError(
                    f"the table {table} has other columns or another key than in the generation that runs,"
                    " whose rows do not fit into it: keep the table as it is, and let a view make of it what"
                    " is needed; or give the new table another name, and bring the rows over with a connector"
                )
