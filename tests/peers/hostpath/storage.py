"""What the storage has, by the driver's own files, beside what Berth's records name."""

import json
import re
from collections import Counter
from pathlib import Path

from nats_py.reference import demand

from .bus import until

NODES = ("n1", "n2")


class Storage:
    """The state directories of the driver, one for each node."""

    def __init__(self, system):
        self.dir = system.dir
        self.logs = system.dir / "dev" / "log"

    def state(self, node):
        """state.json. A driver may be replacing it."""
        file = self.dir / f"hostpath-{node}" / "state.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def all(self, kind):
        return [one for node in NODES for one in self.state(node).get(kind) or []]

    def volumes(self):
        return {one["VolID"]: one for one in self.all("Volumes")}

    def snapshots(self):
        return {one["Id"]: one for one in self.all("Snapshots")}

    def groups(self):
        """Group snapshots, where the driver keeps them."""
        return self.all("GroupSnapshots")

    def files(self):
        """What lies in the state directories beside state.json."""
        found = (path for node in NODES for path in Path(self.dir, f"hostpath-{node}").iterdir())
        return {path.name for path in found if not path.name.startswith("state.json")}

    def path(self, external_id):
        """Where a volume's files are."""
        return Path(self.volumes()[external_id]["VolPath"])

    def calls(self):
        """The driver's calls that changed something, by their names, and by their codes."""
        told = "".join(file.read_text(errors="replace") for file in self.logs.glob("plugin1-*.log"))
        calls = re.findall(r"GRPC call: /csi\.v1\.\w+/(\w+)(?: (\w+))?", told)
        reading = re.compile(r"Get|Probe|List|Validate|NodeGet|\w+GetCap")
        changing = [one for one in calls if not reading.match(one[0])]
        return Counter(name for name, _ in changing), Counter(code for _, code in changing)


async def records(nats):
    """The driver's ids of the volumes and snapshots on record, read from the bucket itself."""
    bucket = await nats.jetstream().key_value("berth-volumes")
    watcher = await bucket.watch("default.>", ignore_deletes=True)
    volumes, snapshots = {}, {}
    while (entry := await watcher.updates(timeout=5)) is not None:
        parts = entry.key.split(".")
        record = json.loads(entry.value)
        if parts[2] == "spec":
            volumes[parts[1]] = record.get("external_id")
        elif parts[2] == "snapshot":
            snapshots[f"{parts[1]}@{parts[3]}"] = record.get("external_id")
    await watcher.stop()
    return volumes, snapshots


async def compare(bus, storage):
    """The records, the driver's files and the driver's lists name the same things."""
    for kind, (on_record, stored) in {
        "volumes": ((await records(bus.nats))[0], storage.volumes()),
        "snapshots": ((await records(bus.nats))[1], storage.snapshots()),
    }.items():
        known = [id for id in on_record.values() if id]
        demand(len(known) == len(set(known)), f"{kind} that are on record twice: {on_record}")
        orphans = {id: stored[id] for id in set(stored) - set(known)}
        demand(not orphans, f"{kind} at the storage that no record knows: {orphans}")
        lost = {name: id for name, id in on_record.items() if id not in stored}
        demand(not lost, f"{kind} on record that are not at the storage: {lost}")
        listed = await external(bus, kind == "snapshots")
        told = {one["external_id"]: one["registration"] for one in listed}
        demand(set(told) == set(known), f"{kind} of the driver's list: {told}, known: {known}")
        demand(set(told.values()) <= {"known"}, f"{kind} of the driver's list: {told}")
    for id, volume in storage.volumes().items():
        demand(Path(volume["VolPath"]).is_dir(), f"volume {id} has no files")
    members = {id for group in storage.groups() for id in group["SnapshotIDs"]}
    lost = members - set(storage.snapshots())
    demand(not lost, f"groups at the storage name snapshots that are gone: {lost}")
    return len(storage.volumes()), len(storage.snapshots())


async def external(bus, snapshots):
    """The driver's list, once each host's part can be asked: one may have just come back."""
    listed = []

    async def is_whole():
        listed[:], missing = await pages(bus, snapshots)
        return not missing

    await until("each host is asked for its list", is_whole)
    return listed


async def pages(bus, snapshots):
    """All pages, and which hosts were not asked."""
    body = {"plugin": bus.plugin, "snapshots": snapshots}
    listed, missing = [], []
    while True:
        answer = await bus.persist("volume.external", body)
        missing += answer.get("not_asked", [])
        demand(not answer.get("truncated"), "the driver's list is cut off")
        listed += answer.get("snapshots" if snapshots else "volumes", [])
        if "next" not in answer:
            return listed, missing
        body["after"] = answer["next"]
