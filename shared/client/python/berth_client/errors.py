"""Refusals: why something was not done, and what a scheduler does about it.

Owns the only exception that this package raises for an answer of Berth, or for a missing answer.
Promises that its class is the advice. Never loses a field of the service's error: `problem` has
all of them.
"""

from collections.abc import Mapping
from typing import Any

from .advice import Advice, advice_for

Json = dict[str, Any]


class Refused(Exception):
    """A request was refused. Always one of the four classes below."""

    def __init__(self, problem: Mapping[str, Any]):
        self.problem = dict(problem)
        self.code = str(problem["code"])
        """The reason, stable for programs."""
        self.message = str(problem["message"])
        """The reason with its facts, for people."""
        self.next = str(problem.get("next") or "")
        """What a person can try."""
        self.trace = str(problem.get("trace") or "")
        """The trace of the request: `berth trace` shows it."""
        self.retryable = bool(problem.get("retryable"))
        """Whether the same request may succeed later, without a change by hand."""
        super().__init__(self.code, self.message)

    def __str__(self) -> str:
        step = f"{self.problem['step']}: " if self.problem.get("step") else ""
        following = f"; {self.next}" if self.next else ""
        trace = f" (trace {self.trace})" if self.trace else ""
        return f"{self.code} {step}{self.message}{following}{trace}"


class Wait(Refused):
    """Ask again, later: the reason may pass by itself, or when other allocs end."""


class Elsewhere(Refused):
    """Place the alloc on another node."""


class Never(Refused):
    """Give the alloc up, or change what it asks for. A person may have to act first."""


class Unknown(Refused):
    """The request may have been done. Ask again, which is harmless."""


_CLASSES: dict[Advice, type[Refused]] = {
    "wait": Wait,
    "elsewhere": Elsewhere,
    "never": Never,
    "unknown": Unknown,
}


def refusal(problem: Mapping[str, Any]) -> Refused:
    """The exception for a `Problem` of the contract."""
    advice = advice_for(str(problem["code"]), bool(problem.get("retryable")))
    return _CLASSES[advice](problem)


def refuse(code: str, message: str, following: str = "", **fields: Any) -> Refused:
    """A refusal that this package states itself, in the contract's form."""
    retryable = advice_for(code, False) in ("wait", "unknown")
    problem = {"code": code, "message": message, "next": following, "retryable": retryable}
    return refusal(problem | fields)
