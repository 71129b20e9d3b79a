"""Changes for a Python function, in the process of the pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from penstock.connectors.interface import NOTHING, Output
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from penstock.sql import Connector, View


class CallbackOutput(Output):
    """Calls `function(transaction, changes)` for each transaction that changes the view.

    At least once: after a crash, or when the function raised, the same transaction may come again, with the
    same number and the same changes. A function that stores the number together with what it makes of the
    changes can tell. A function that raises `UnreachableError` is called again after a pause; any other
    exception is final.
    """

    remembers = False
    by_every_replica = True

    def __init__(self, name: str, function: Callable[[int, pa.Table], object]) -> None:
        self.name = name
        self._function = function

    @classmethod
    def from_config(cls, connector: Connector, view: View) -> Self:
        raise ConnectorError(
            f"connector {connector.name}: a callback is a Python function; a program cannot name it"
        )

    def open(self, owner: str, schema: pa.Schema) -> int:
        return NOTHING

    def write(self, transaction: int, changes: pa.Table) -> None:
        try:
            self._function(transaction, changes)
        except ConnectorError:
            raise
        except Exception as error:
            raise ConnectorError(
                f"connector {self.name}: the function raised {type(error).__name__}: {error}"
            ) from error
