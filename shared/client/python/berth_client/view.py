"""An alloc as it was read, and what that means for its scheduler.

Owns the conditions: mounted, ended, free, lost. Promises that each depends only on the view. Never
sends a request.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from .errors import Json

Until = Literal["mounted", "ended", "free"]
BAD_MOUNTS = ("dead", "missing")
GIVEN_UP = ("unpublishing", "node-detached")  # states of a claim that is being released


@dataclass(frozen=True)
class Claim:
    """A claim of the alloc."""

    volume: str
    state: str
    mount: str | None
    """The state of the mount, as the node reports it."""
    error: str | None

    @classmethod
    def parse(cls, claim: Json) -> "Claim":
        """From a `ClaimStatus`."""
        mount = claim.get("mount") or {}
        error = mount.get("error") or claim.get("error")
        return cls(claim["volume"], claim["state"], mount.get("state"), error)


@dataclass(frozen=True)
class View:
    """An alloc with its claims, at one moment."""

    state: str
    owner: str | None
    by: str | None
    note: str | None
    volumes: frozenset[str]
    claims: tuple[Claim, ...]
    is_whole: bool
    """Whether every record about it could be read."""

    @classmethod
    def parse(cls, alloc: Json, claims: Iterable[Json], is_whole: bool) -> "View":
        """From an `AllocStatus`, or from an `AllocStub` and claims that were listed after it."""
        index = alloc.get("index")
        volumes = (
            volume if isinstance(volume, str)
            else f"{volume['source']}[{index}]" if volume.get("per_alloc") else volume["source"]
            for volume in alloc.get("volumes") or ()
        )
        parsed = tuple(Claim.parse(claim) for claim in claims)
        owner, by, note = alloc.get("owner"), alloc.get("by"), alloc.get("note")
        return cls(alloc["state"], owner, by, note, frozenset(volumes), parsed, is_whole)

    @property
    def has_ended(self) -> bool:
        """Whether its run is over."""
        return self.state != "live"


@dataclass(frozen=True)
class Lost:
    """Why a workload has to end, although its scheduler did not stop its alloc."""

    kind: Literal["ended", "owner", "released", "mount"]
    """The alloc has ended; it belongs to another owner; a claim is released; a mount is dead or
    missing."""
    detail: str

    def __str__(self) -> str:
        return self.detail


def reached(view: View | None, until: Until) -> bool | None:
    """Whether the alloc has reached this condition: false if it never will, none if it has not yet.
    Without a view, the alloc is not on record any more."""
    if until == "mounted":
        if view is None or view.has_ended:
            return False
        mounted = {
            claim.volume
            for claim in view.claims
            if (claim.state, claim.mount) == ("taken", "mounted")
        }
        return True if view.volumes <= mounted else None
    if view is None:
        return True
    is_free = not view.claims and view.is_whole
    return True if view.has_ended and (until == "ended" or is_free) else None


def why_lost(view: View | None, owner: str, by: str) -> Lost | None:
    """Why the workload has to end; none if it may run on."""
    if view is None:
        return Lost("ended", "the alloc has ended, and is not on record any more")
    if view.has_ended:
        return Lost("ended", f"the alloc is {view.state}: {view.note or 'no reason was given'}")
    if (view.owner, view.by) != (owner, by):
        return Lost("owner", f"the alloc belongs to owner {view.owner} of {view.by}")
    for claim in view.claims:
        if claim.state in GIVEN_UP:
            return Lost("released", f"the claim on volume {claim.volume} is {claim.state}")
        if claim.mount in BAD_MOUNTS:
            why = f": {claim.error}" if claim.error else ""
            return Lost("mount", f"the mount of volume {claim.volume} is {claim.mount}{why}")
    return None
