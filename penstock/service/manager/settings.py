"""How the service is run."""

from __future__ import annotations

import ipaddress
import sys
from dataclasses import dataclass, field
from pathlib import Path

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Settings:
    """What `penstock serve` was told."""

    directory: Path
    host: str = "127.0.0.1"
    port: int = 8080
    database: str | None = None
    spares: int = 1
    spare_workers: int = 8
    auth: bool = False
    allow_paths: tuple[Path, ...] = ()
    """Where connectors of pipelines may read and write files, where keys are needed."""
    secrets: Path | None = None
    """The directory of what `${secret:NAME}` stands for, if it is not the one in the service's directory."""
    log_format: str = "text"
    """Of the logs of runners: `text` or `json`."""
    max_request_bytes: int = 32 * MEBIBYTE
    """Of any request but those that push rows."""
    max_ingress_bytes: int = 1024 * MEBIBYTE
    """Of a request that pushes rows."""
    poll_seconds: float = 0.2
    start_seconds: float = 120.0
    """A process that has not answered for so long after its start is given up."""
    stop_seconds: float = 600.0
    """So long pipelines may take to stop when the service stops."""
    runner_command: tuple[str, ...] = field(default=(sys.executable, "-m", "penstock.service.runner"))

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{self.directory / 'manager.db'}"

    @property
    def runners(self) -> Path:
        return self.directory / "runners"

    @property
    def pipelines(self) -> Path:
        return self.directory / "pipelines"

    @property
    def secrets_directory(self) -> Path:
        return self.secrets or self.directory / "secrets"

    @property
    def allowed_paths(self) -> list[str] | None:
        """Where connectors may read and write files; None if anywhere: who has no key is the owner."""
        return (
            [str(path) for path in (self.directory / "files", *self.allow_paths)] if self.needs_keys else None
        )

    @property
    def needs_keys(self) -> bool:
        """Whether requests must carry an API key: always where others can reach the port."""
        return self.auth or not is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a service that listens there.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
