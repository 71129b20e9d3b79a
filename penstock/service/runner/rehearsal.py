"""A small pipeline that a spare runs before it gets a real one: what is slow the first time is done by then.

The JVM loads and compiles what every pipeline uses, and Spark's Python workers are up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

from penstock.pipeline import Pipeline

_log = logging.getLogger("penstock")

_PROGRAM = """
CREATE TABLE left_side (id BIGINT PRIMARY KEY, kind STRING, amount DECIMAL(8, 2), at TIMESTAMP);
CREATE TABLE right_side (kind STRING, name STRING);
CREATE VIEW joined AS
SELECT r.name, count(*) AS n, sum(l.amount) AS amount, max(l.at) AS last
FROM left_side l JOIN right_side r ON l.kind = r.kind GROUP BY r.name;
CREATE VIEW chosen AS SELECT id, amount * 2 AS twice FROM left_side WHERE amount > 1;
"""
_ROWS = 3


def rehearse(workers: int, storage: Path, goes_on: Callable[[], bool]) -> bool:
    """Run it as long as nothing else is to be run; whether it ran to its end."""
    try:
        if goes_on():
            with Pipeline("rehearsal", _PROGRAM, storage=storage, config={"workers": workers}) as pipeline:
                pipeline.insert("right_side", [{"kind": "a", "name": "b"}])
                for id_ in range(_ROWS):
                    if not goes_on():
                        return False
                    pipeline.insert("left_side", [{"id": id_, "kind": "a", "amount": Decimal(2)}])
                    pipeline.flush()
                    pipeline.query("SELECT * FROM joined ORDER BY n")
                return True
    except Exception:
        # Whatever it is, a pipeline may be here by now that goes on.
        _log.warning("the rehearsal failed; the first start may be slow", exc_info=True)
    return False
