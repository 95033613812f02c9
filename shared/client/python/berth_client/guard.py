"""The guard that runs an alloc, as it is named to the agent of the alloc's node.

Owns the forms of a guard: a process, a cgroup, a lock. Promises that a process is named with the
time of its start, so that a later process with the same id is not taken for it. Never ends a
guard.
"""

import fcntl
import os
import secrets
from pathlib import Path
from typing import IO

from .errors import Json

_START = 19  # index of field 22 of /proc/PID/stat among the fields after the name


def guard_request(pid: int | None, cgroup: str | None, lock: str | None) -> Json:
    """The guard as the contract has it: exactly one of the three."""
    given = {"pid": pid, "cgroup": cgroup, "lock": lock}
    guard: Json = {name: value for name, value in given.items() if value is not None}
    if len(guard) != 1:
        raise ValueError("name exactly one of pid, cgroup and lock")
    return guard | ({"start": process_start(pid)} if pid is not None else {})


def process_start(pid: int) -> int:
    """When a process of this host was started, in clock ticks since the boot."""
    try:
        return parse_start(Path(f"/proc/{pid}/stat").read_text(errors="replace"))
    except FileNotFoundError:
        raise ProcessLookupError(f"there is no process {pid}") from None


def parse_start(stat: str) -> int:
    """The name may have blanks and parentheses: it ends at the last parenthesis."""
    return int(stat.rpartition(")")[2].split()[_START])


def new_lock(runs: str) -> IO[bytes]:
    """Makes an empty file in the agent's directory, and locks it. A process that inherits it keeps
    the lock."""
    path = os.path.join(runs, f"{secrets.token_hex(8)}.lock")
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    file = open(path, "rb")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return file
