"""A standby: a thread that fetches every checkpoint soon after it was pushed."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime
from typing import Any

from penstock.errors import PenstockError
from penstock.sync.follow import Followed, Following

_log = logging.getLogger("penstock")


class Standby:
    """Follows until it is stopped; what fails is told, and tried again after the next pause."""

    def __init__(self, following: Following) -> None:
        self.followed: Followed | None = None
        self.error: PenstockError | None = None
        self.last_pull: datetime | None = None
        self._following = following
        self._stopping = threading.Event()
        self._over = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._stopping.clear()
        self._following.go_on()
        self._thread = threading.Thread(target=self._run, name="penstock standby", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, and with it the fetch that is under way."""
        self._stopping.set()
        self._following.interrupt()
        if self._thread is not None:
            self._thread.join()

    def interrupt(self) -> None:
        """Let whatever is under way fail soon, and take nothing over any more."""
        self._over = True
        self._following.interrupt()

    def activate(self) -> Followed | None:
        """Take over; if that fails, it stands by as before. Returns what there is to go on from."""
        self.stop()
        try:
            self._following.go_on()
            if self._over:
                self._following.interrupt()
            followed = self._following.take_over()
            if followed is None:
                self._following.refuse_nothing()
            return followed
        except BaseException:
            self.start()
            raise

    def _run(self) -> None:
        while True:
            try:
                self.followed = self._following.fetch() or self.followed
                self.error = None
                self.last_pull = datetime.now(UTC)
            except PenstockError as error:
                if self._stopping.is_set():
                    return
                if str(error) != str(self.error):
                    _log.error("the standby could not fetch a checkpoint, and tries again: %s", error)
                self.error = error
            except Exception as error:
                _log.exception("the standby could not fetch a checkpoint, and tries again")
                self.error = PenstockError(f"{type(error).__name__}: {error}")
            if self._stopping.wait(self._following.config.pull_interval):
                return

    def stats(self) -> dict[str, Any]:
        """How far behind it is, as plain JSON."""
        followed = self.followed
        age = None if followed is None else (datetime.now(UTC) - followed.at).total_seconds()
        return {
            "checkpoint": None if followed is None else followed.checkpoint,
            "transaction": None if followed is None else followed.transaction,
            "source": None if followed is None else str(followed.source),
            "age_seconds": age,
            "last_pull": None if self.last_pull is None else self.last_pull.isoformat(),
            "error": None if self.error is None else str(self.error),
            "fetching": str(self._following.copied),
        }
