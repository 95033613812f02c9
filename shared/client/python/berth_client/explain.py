"""Why a volume, an alloc, a node or a plugin is as it is: the answer of `berth why --json`.

Owns the types of that answer. Promises that causes of a newer version can be read: a cause is a
word. Never explains by itself: the rules are only in the program.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import Json, refuse

NOTHING_FOUND = 3  # exit code of `berth why` when nothing has the name


@dataclass(frozen=True)
class Actor:
    """Who must act: `nobody`, `plugin-operator` or `you`, which is the operator of Berth."""

    kind: str
    plugin: str | None = None
    """The plugin whose operator must act."""
    by: str | None = None
    """The latest time at which it goes on by itself, if that is known."""

    @classmethod
    def parse(cls, who: str | Json) -> "Actor":
        """From the field `who`."""
        if isinstance(who, str):
            return cls(who)
        kind, detail = next(iter(who.items()))
        if kind == "plugin-operator":
            return cls(kind, plugin=str(detail))
        return cls(kind, by=detail.get("by") if isinstance(detail, dict) else None)


@dataclass(frozen=True)
class Explanation:
    """The decisive cause for one volume, snapshot, alloc, node or plugin that has the name."""

    subject: str
    """`volume data`, `alloc web-1`."""
    state: str
    """The state in words, for people."""
    cause: str
    """The kind of the cause, for programs, such as `held-by-process`; `nothing` if all is well."""
    sentence: str
    """The cause in one sentence, for people."""
    who: Actor
    next: tuple[str, ...] = ()
    """Commands that help, in order. What follows a `#` is a comment."""
    evidence: tuple[str, ...] = ()
    """What shows the cause."""
    also: tuple[str, ...] = ()
    """Other faults."""
    not_known: tuple[str, ...] = ()
    """What could not be read. A cause may be hidden there."""
    since: str | None = None

    @classmethod
    def parse(cls, entry: Json) -> "Explanation":
        """From one entry of `diagnoses`."""

        def lines(field: str) -> tuple[str, ...]:
            return tuple(str(line) for line in entry.get(field, ()))

        return cls(
            subject=str(entry["subject"]),
            state=str(entry["state"]),
            cause=str(entry["cause"]),
            sentence=str(entry["sentence"]),
            who=Actor.parse(entry["who"]),
            next=lines("next"),
            evidence=lines("evidence"),
            also=lines("also"),
            not_known=lines("not_known"),
            since=entry.get("since"),
        )


async def why(
    name: str,
    server: str | Sequence[str],
    creds_file: str | Path | None = None,
    ca_file: str | Path | None = None,
    *,
    namespace: str = "default",
    program: str | Path = "berth",
    overall: float = 30.0,
) -> list[Explanation]:
    """Explains each volume, alloc, node and plugin that has the name, or the `volume@snapshot`.

    It runs the program `berth`, which reads what this identity may read. The list is empty if
    nothing has the name."""
    servers = server if isinstance(server, str) else ",".join(server)
    command = [str(program), "--nats", servers, "--namespace", namespace, "--json"]
    command += ["--creds", str(creds_file)] if creds_file else []
    command += ["--tlsca", str(ca_file)] if ca_file else []
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *command, "why", "--", name, stdout=pipe, stderr=pipe
        )
    except OSError as fault:
        following = "install the program `berth`, or name it in `program`"
        raise refuse("BERTH0001", f"{program} cannot be run: {fault}", following) from fault
    try:
        stdout, stderr = await asyncio.wait_for(process.communicate(), overall)
    except asyncio.TimeoutError as late:
        raise refuse("BERTH0004", f"{program} has not answered within {overall} s") from late
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return read_answer(stdout, stderr, process.returncode)


def read_answer(stdout: bytes, stderr: bytes, code: int | None) -> list[Explanation]:
    """The explanations that the program has printed. That the bus is away is one, too."""
    if code == NOTHING_FOUND:
        return []
    try:
        answer: dict[str, Any] = json.loads(stdout)
        return [Explanation.parse(entry) for entry in answer["diagnoses"]]
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration) as wrong:
        output = (stderr or stdout).decode(errors="replace").strip()
        raise refuse("BERTH0007", f"`berth why` ended with {code}: {output}") from wrong
