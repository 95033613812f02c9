"""Volumes: what an alloc asks for, where it fits, and what it gets.

Owns the values of `volume.placement` and `agent.mount-all`. Promises that a text in place of a
volume means the volume with that id. Never reserves anything: a placement is true only at its
moment.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from .errors import Json


@dataclass(frozen=True)
class Volume:
    """A volume that an alloc asks for."""

    source: str
    """Its id; with `per_alloc`, the id without the index."""
    alias: str | None = None
    """The workload's name for it; the source if absent."""
    read_only: bool = False
    access: str | None = None
    """The access mode, such as `single-node-writer`."""
    attachment: str | None = None
    """`file-system` or `block-device`."""
    per_alloc: bool = False
    """Whether each alloc has a volume of its own: `data[0]` for index 0."""
    fs_type: str | None = None
    flags: tuple[str, ...] = ()
    """Mount flags."""
    group: str | None = None
    """The group for which a file system is mounted."""


VolumeLike = Union[Volume, str]


def volume_requests(volumes: Sequence[VolumeLike]) -> list[Json]:
    """The volumes as the contract has them."""
    return [_request(Volume(like) if isinstance(like, str) else like) for like in volumes]


def _request(volume: Volume) -> Json:
    mount = {"fs_type": volume.fs_type, "flags": list(volume.flags), "group": volume.group}
    fields: dict[str, Any] = {
        "source": volume.source,
        "alias": volume.alias,
        "read_only": volume.read_only,
        "access": volume.access,
        "attachment": volume.attachment,
        "per_alloc": volume.per_alloc,
        "mount": {name: value for name, value in mount.items() if value},
    }
    return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True)
class Mounted:
    """A volume that is mounted for an alloc."""

    name: str
    """The workload's name for it."""
    volume: str
    path: str
    """Its path on the node."""
    read_only: bool

    @property
    def variable(self) -> str:
        """The environment variable for the path, as `berth run` calls it: `BERTH_VOLUME_DATA`."""
        return "BERTH_VOLUME_" + re.sub("[^A-Za-z0-9]", "_", self.name).upper()


@dataclass(frozen=True)
class Obstacle:
    """Why a volume cannot be mounted on a node."""

    volume: str
    code: str
    message: str
    can_wait: bool
    """Whether a mount with `wait` waits until it is gone."""


@dataclass(frozen=True)
class Candidate:
    """A node, and its obstacles."""

    node: str
    free: int | None
    """How many more volumes the fullest of the volumes' plugins can attach there; none without a
    limit."""
    obstacles: tuple[Obstacle, ...]


@dataclass
class Nodes:
    """All nodes, by whether they can host these volumes."""

    now: list[Candidate] = field(default_factory=list)
    later: list[Candidate] = field(default_factory=list)
    """A mount with `wait` gets in line there."""
    never: list[Candidate] = field(default_factory=list)
    """An operator has to change something first."""
    waiting: int = 0
    """How many claims already wait in line for the volumes."""
    index: int = 0
    """The index of the answer, with which a change can be waited for."""

    def add(self, page: Json, is_first: bool) -> None:
        """Adds a page of `volume.placement`."""
        if is_first:
            self.index = page.get("index") or 0
            self.waiting = sum(volume["waiting"] for volume in page.get("volumes") or ())
        for node in page["nodes"]:
            slots = node.get("slots") or ()
            free = [slot["free"] for slot in slots if slot.get("free") is not None]
            obstacles = tuple(
                Obstacle(
                    entry["volume"], entry["code"], entry["message"], bool(entry.get("can_wait"))
                )
                for entry in node.get("obstacles") or ()
            )
            candidate = Candidate(node["node"], min(free, default=None), obstacles)
            can_wait = bool(node.get("fits_later"))
            group = self.now if node["fits"] else self.later if can_wait else self.never
            group.append(candidate)
