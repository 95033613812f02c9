"""Subjects of the contract.

Owns the form of each subject that this package sends to or listens at. Promises one token for
each id, as docs/contract.md says. Never takes a subject from its caller.
"""

import re

_PLAIN = re.compile(rb"[^A-Za-z0-9_/-]")


def token(text: str) -> str:
    """An id as one token of a subject."""
    return _PLAIN.sub(lambda byte: b"=%02X" % byte[0][0], text.encode()).decode()


def untoken(text: str) -> str:
    """The id that a token stands for."""
    decoded = re.sub(rb"=([0-9A-F]{2})", lambda code: bytes.fromhex(code[1].decode()),
                     text.encode())
    return decoded.decode(errors="replace")


def request(verb: str, namespace: str, actor: tuple[str, str], node: str | None = None) -> str:
    """The subject of a verb such as `alloc.register`; with `node`, of that node's agent."""
    noun, _, action = verb.partition(".")
    agent = f"{token(node)}." if node is not None else ""
    kind, name = actor
    return f"berth.v1.{noun}.{agent}{action}.{token(namespace)}.{kind}.{token(name)}"


def events_wanted_by(namespace: str, actor: tuple[str, str]) -> str:
    """The events of the allocs that this actor registered or adopted."""
    kind, name = actor
    return f"berth.v1.event.{token(namespace)}.*.*.*.{kind}.{token(name)}.*.*"


def alloc_of_event(subject: str) -> str | None:
    """The alloc that an event is about."""
    tokens = subject.split(".")
    return untoken(tokens[6]) if len(tokens) > 6 and tokens[6] != "_" else None
