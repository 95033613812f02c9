"""Why a volume, an alloc, a node or a plugin is as it is: the answer of `berth why --json`.

Owns the types of that answer. Promises that causes of a newer version can be read: a cause is a
word. Never explains by itself: the rules are in the program, so that there is one copy of them.
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
    """Whose operator."""
    by: str | None = None
    """When it goes on by itself, at the latest, where that is known."""

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
    """The decisive cause for one thing that has the name."""

    subject: str
    """`volume data`, `alloc web-1`."""
    state: str
    """In words, for people."""
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
    def parse(cls, one: Json) -> "Explanation":
        """From one entry of `diagnoses`."""

        def lines(field: str) -> tuple[str, ...]:
            return tuple(str(line) for line in one.get(field, ()))

        return cls(
            subject=str(one["subject"]),
            state=str(one["state"]),
            cause=str(one["cause"]),
            sentence=str(one["sentence"]),
            who=Actor.parse(one["who"]),
            next=lines("next"),
            evidence=lines("evidence"),
            also=lines("also"),
            not_known=lines("not_known"),
            since=one.get("since"),
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
    """Explains all that has the name: a volume, an alloc, a node, a plugin, or `volume@snapshot`.

    It runs the program `berth`, which gathers what this identity may read. An empty list says that
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
        printed, complaint = await asyncio.wait_for(process.communicate(), overall)
    except asyncio.TimeoutError as late:
        raise refuse("BERTH0004", f"{program} has not answered within {overall} s") from late
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return read_answer(printed, complaint, process.returncode)


def read_answer(printed: bytes, complaint: bytes, code: int | None) -> list[Explanation]:
    """What the program has printed, in any form. A bus that is away is an answer, too."""
    if code == NOTHING_FOUND:
        return []
    try:
        answer: dict[str, Any] = json.loads(printed)
        return [Explanation.parse(one) for one in answer["diagnoses"]]
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration) as wrong:
        said = (complaint or printed).decode(errors="replace").strip()
        raise refuse("BERTH0007", f"`berth why` ended with {code}: {said}") from wrong
