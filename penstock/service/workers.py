"""How many tasks of a pipeline run at the same time."""

from __future__ import annotations

import os


def effective_workers(asked: int) -> int:
    """No more than there are cores: the reference's default of 8 would only cost on a small machine.

    >>> effective_workers(1)
    1
    """
    return max(1, min(asked, os.cpu_count() or asked))
