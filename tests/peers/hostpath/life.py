"""Everything once, without a fault: what a person does with volumes of one host."""

from pathlib import Path

from nats_py.reference import demand

from .bus import Refused
from .storage import compare

MIB = 1 << 20


async def story(bus, storage, say):
    plain = await created(bus, "plain", "n1", size=MIB)
    topologies = plain["topologies"]
    demand(topologies == [{"topology.hostpath.csi/node": "n1"}], f"topology: {topologies}")
    path = Path(await bus.mounted("writer", "n1", "plain"))
    path.joinpath("f").write_text("first")
    at_driver = storage.path(plain["external_id"]) / "f"
    demand(at_driver.read_text() == "first", f"{at_driver} is not what was written at {path}")
    say("created on n1, mounted, written: the driver's own directory has the file")

    await bus.persist("volume.expand", {"id": "plain", "size": 3 * MIB})
    grown = await bus.ready("plain")
    size = storage.volumes()[plain["external_id"]]["VolSize"]
    demand((grown["capacity_bytes"], size) == (3 * MIB, 3 * MIB), f"grown: {grown}, {size}")
    demand("operation" not in grown["storage"], f"grown: {grown['storage']}")
    say("grown to 3 MiB while it is mounted")

    await bus.cut("monday", "plain")
    path.joinpath("f").write_text("second")
    await bus.stopped("writer", "plain")
    await created(bus, "copy", "n1", **{"from": {"volume": "plain"}})
    await created(bus, "restored", "n1", **{"from": {"volume": "plain", "snapshot": "monday"}})
    for volume, content in (("copy", "second"), ("restored", "first")):
        path = Path(await bus.mounted(f"reader-{volume}", "n1", volume))
        read = path.joinpath("f").read_text()
        demand(read == content, f"{volume} reads {read!r}")
        await bus.stopped(f"reader-{volume}", volume)
    say("a snapshot, a volume made of it, and a copy: each has its moment's content")

    await bus.cut("both", "plain", "copy")
    demand(len(storage.groups()) in (0, 1), f"groups: {storage.groups()}")
    await elsewhere(bus)
    counted = await compare(bus, storage)
    say(f"group snapshot; {counted[0]} volumes and {counted[1]} snapshots, as recorded")

    await bus.snapshot_deleted("copy", "both", group=True)
    await bus.deleted("plain")
    await bus.snapshot_deleted("plain", "monday")
    for volume in ("copy", "restored"):
        await bus.deleted(volume)
    await empty(bus, storage)
    say("deleted; the driver's state is empty")


async def created(bus, id, node, **document):
    await bus.create(id, node, **document)
    return await bus.ready(id)


async def elsewhere(bus):
    """The other node does not get a volume that is bound to this one."""
    try:
        await bus.mounted("afar", "n2", "plain")
    except Refused as refused:
        await bus.persist("alloc.stop", {"id": "afar"})
        demand("n1" in str(refused), f"refused for another reason: {refused}")
    else:
        demand(False, "n2 mounted a volume of n1")


async def empty(bus, storage):
    """Neither the records nor the driver have anything."""
    demand(await compare(bus, storage) == (0, 0), f"left: {storage.volumes()}")
    demand(not storage.snapshots() and not storage.groups(), "snapshots are left at the driver")
