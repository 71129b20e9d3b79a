"""Processes of the operating system: started in a group of their own, known again by pid and start time."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

_REAP_SECONDS = 5.0
_SAME_SECONDS = 2.0
"""The start time is computed from the clock, which is set now and then."""

_PRIVATE = ("PENSTOCK_DATABASE", "PENSTOCK_API_KEY")

_children: dict[int, subprocess.Popen[bytes]] = {}
"""Those that this manager started: they have to be waited for, and they have an exit code."""


def spawn(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> tuple[int, float]:
    """Start a process that outlives this one; its pid, and when it started."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**_inherited(), **environment},
            start_new_session=True,
        )
    _children[child.pid] = child
    try:
        return child.pid, start_of(child.pid)
    except psutil.NoSuchProcess:
        return child.pid, 0.0


def start_of(pid: int) -> float:
    """When a process started: on Linux in ticks since the machine did, for clocks are set now and then."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
        return float(after_name.split()[19])
    except (FileNotFoundError, ProcessLookupError) as error:
        if Path("/proc/self/stat").exists():
            raise psutil.NoSuchProcess(pid) from error
        return float(psutil.Process(pid).create_time())


def _inherited() -> dict[str, str]:
    """What runners get of the manager's environment: a program may read it, so no secret of the manager."""
    return {name: value for name, value in os.environ.items() if name not in _PRIVATE}


def is_alive(pid: int, started: float) -> bool:
    """Whether that process, not another with its pid, is still there."""
    child = _children.get(pid)
    if child is not None and child.poll() is not None:
        return False
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and abs(start_of(pid) - started) < _SAME_SECONDS
    except psutil.NoSuchProcess:
        return False


def exit_code(pid: int) -> int | None:
    """How a process ended; None if it runs, or if another manager had started it."""
    child = _children.get(pid)
    return None if child is None else child.poll()


def exit_reason(pid: int) -> str:
    """How a process that is gone ended, in words."""
    _wait(_children.get(pid))
    code = exit_code(pid)
    if code is None:
        return "ended while another manager watched it, so its exit code is not known"
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = "; the system does that when memory runs out" if -code == signal.SIGKILL else ""
        return f"was killed by {name}{hint}"
    return f"ended with exit code {code}"


def kill_group(pid: int, started: float) -> None:
    """Kill a process and all that it started, also when it is gone already and they are not."""
    for process in _group(pid, started):
        try:
            process.kill()
        except psutil.NoSuchProcess:
            pass  # it ended meanwhile


def forget(pid: int) -> None:
    """Nobody will ask for the exit code any more."""
    _wait(_children.pop(pid, None))


def _wait(child: subprocess.Popen[bytes] | None) -> None:
    """Its threads may take a moment longer than itself, and only then it has an exit code."""
    if child is not None:
        try:
            child.wait(_REAP_SECONDS)
        except subprocess.TimeoutExpired:
            pass  # subprocess looks after it from now on


def _group(pid: int, started: float) -> list[psutil.Process]:
    """The living processes of the group; none if the pid belongs to another process by now."""
    if psutil.pid_exists(pid) and not is_alive(pid, started) and not _is_zombie(pid):
        return []
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == pid:
                found.append(process)
        except ProcessLookupError:
            continue
    return found


def _is_zombie(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def with_argument(prefix: str) -> list[psutil.Process]:
    """Processes that have an argument which begins so."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(argument.startswith(prefix) for argument in process.cmdline()):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found
