"""Requests that wait, each kind in threads of its own: many of one kind must not hold up another."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

T = TypeVar("T")

_THREADS = 200
"""For requests that ask for something: queries wait for each other, commits for their end."""


class Waiting:
    """Threads for one kind of request."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._limiter: CapacityLimiter | None = None

    async def run(self, function: Callable[..., T], *arguments: Any, **more: Any) -> T:
        """What the function returns, in a thread; whoever asked may go away before it does."""
        self._limiter = self._limiter or CapacityLimiter(self._most)
        call = partial(function, *arguments, **more)
        return await anyio.to_thread.run_sync(call, limiter=self._limiter, abandon_on_cancel=True)


def allow_many() -> None:
    """Called once in the event loop: more threads than its default of 40."""
    anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
