"""What the storage has, by the driver's own list or its files, beside what Berth's records name."""

from hostpath.storage import external, records
from nats_py.reference import demand


class Storage:
    """One driver's storage."""

    def __init__(self, bus, driver, can, directory):
        self.bus, self.driver, self.can = bus, driver, can
        self.tmp = directory / "tmp"
        self.before = {"volumes": set(), "snapshots": set()}

    async def note_before(self):
        """Some drivers have volumes of their own from the start."""
        for kind in self.before:
            self.before[kind] = await self.stored(kind) or set()

    async def stored(self, kind):
        """The ids at the storage; none if nobody can tell."""
        if self.can[f"list_{kind}"]:
            listed = await external(self.bus, kind == "snapshots")
            there = {one["external_id"] for one in listed if one["registration"] != "not-listed"}
            return there - self.before[kind]
        if self.driver.in_tmp and kind == "volumes":
            return {path.name for path in self.tmp.iterdir() if path.is_dir()}
        return None

    async def compare(self):
        """The records and the storage name the same things. Returns how many of each."""
        counted = []
        for kind, on_record in zip(self.before, await records(self.bus.nats)):
            known = set(on_record.values())
            demand(len(known) == len(on_record), f"{kind} that are on record twice: {on_record}")
            stored = await self.stored(kind)
            agree = stored is None or stored == known
            demand(agree, f"{kind} at the storage: {stored}, on record: {on_record}")
            counted.append(len(known))
        return counted

    def told(self):
        """By what the two were compared."""
        ways = [
            "its list" if self.can[f"list_{kind}"]
            else "its files" if self.driver.in_tmp and kind == "volumes"
            else "nothing: it cannot list"
            for kind in self.before
        ]
        return f"volumes by {ways[0]}, snapshots by {ways[1]}"
