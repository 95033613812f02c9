"""A copy that takes the driver longer than Berth's call has, and a driver that refuses its own retry.

The answer comes late, and is the only one that says what is at the storage.
"""

from nats_py.reference import demand

from .bus import until
from .life import MIB, created, empty
from .storage import compare

# `berth dev` is started with calls of 2 s. That one is overdue is seen long before the answer, also on
# a loaded machine.
LATE = {"rpc": "CreateVolume", "when": "after", "delay_ms": 12000, "times": 1}
REFUSED = {"rpc": "CreateVolume", "when": "before", "code": "ALREADY_EXISTS"}


async def story(bus, storage, proxy, say):
    await created(bus, "origin", "n1", size=MIB)
    proxy.plant(LATE)
    await bus.create("late", "n1", **{"from": {"volume": "origin"}})

    async def is_overdue():
        operation = (await bus.status("late"))["storage"].get("operation", {})
        return operation.get("tries", 0) > 0 and operation.get("uncertain")

    await until("the call for the copy has failed, and may have done its work", is_overdue)
    proxy.plant(REFUSED)
    external_id = (await bus.ready("late"))["external_id"]
    proxy.plant()
    [name] = [one["VolName"] for id, one in storage.volumes().items() if id == external_id]
    calls = [line for line in proxy.calls() if line.get("args", {}).get("name") == name]
    demand([line["entry"] for line in calls] == ["begin", "end"], f"calls for the copy: {calls}")
    counted = await compare(bus, storage)
    demand(counted[0] == 2, f"{counted[0]} volumes at the storage")
    for volume in ("late", "origin"):
        await bus.deleted(volume)
    await empty(bus, storage)
    say("a copy whose answer came after its call had failed: made by one call, ready, deleted")
