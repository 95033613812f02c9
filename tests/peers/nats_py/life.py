"""One volume's life: by `claim.take`, and by an agent's mount."""

import json
from datetime import datetime, timedelta, timezone

from nats.errors import TimeoutError as NoMore

from .reference import demand
from .wire import new_trace, until

VOLUME, PLUGIN = "peer.data", "dev.berth"
CLAIMS = "default.peer=2Edata.claim"


async def story(wire, system, say):
    volumes = await wire.nats.jetstream().key_value("berth-volumes")
    watcher = await volumes.watch("default.peer=2Edata.>")
    demand(await watcher.updates(timeout=5) is None, "somebody else's volume is there")
    events = await wire.nats.subscribe("berth.v1.event.default.>")

    await register(wire, system, say)
    await take_and_release(wire, volumes, watcher, events, say)
    await mount_and_stop(wire, system, events, say)
    await expect(wire, say)
    await forget(wire, say)

    detached = await wire.ask("volume-detach", {"id": VOLUME, "node": "n1"})
    demand(detached.body.get("gone"), f"detached, as it was already: {detached}")
    gone = await wire.ask("volume-deregister", {"id": VOLUME, "reason": "the story is told"})
    demand(gone.body.get("gone"), f"deregistered: {gone}")
    left = [key for key, _ in await every_key(volumes)]
    demand(not left, f"keys are left: {left}")
    await watcher.stop()
    await events.unsubscribe()
    say("volume deregistered; the bucket holds nothing of it")


async def register(wire, system, say):
    system.provision("peer-storage")
    document = {
        "id": VOLUME,
        "plugin": PLUGIN,
        "external_id": "peer-storage",
        "capability": [{"access": "single-node-writer", "attachment": "file-system"}],
    }
    registered = await wire.ask("volume-register", document)
    demand(registered.body.get("changed"), f"registered: {registered}")
    again = await wire.ask("volume-register", document)
    demand(again.body.get("changed") is False, f"registered again: {again}")
    listed = await wire.ask("volume-list", {"plugin": PLUGIN})
    demand([one["id"] for one in listed.body["volumes"]] == [VOLUME], f"listed: {listed}")
    shown = await wire.ask("volume-status", {"id": VOLUME})
    demand(shown.body["health"]["healthy"], f"status: {shown}")
    plugins = await wire.ask("plugin-status", {"id": PLUGIN})
    demand(plugins.body["plugins"][0]["attaches"], f"plugin: {plugins}")
    nodes = await wire.ask("node-status", {})
    states = {one["id"]: one["state"] for one in nodes.body["nodes"]}
    demand(states == {"n1": "ready", "n2": "ready"}, f"nodes: {nodes}")
    say(f"volume {VOLUME} registered on plugin {PLUGIN}, with nodes n1 and n2 ready")


async def take_and_release(wire, volumes, watcher, events, say):
    """By the claim service alone: nothing is mounted, the controller attaches and detaches."""
    alloc = {"id": "by-take", "node": "n1", "volumes": [{"source": VOLUME}]}
    live = await wire.ask("alloc-register", alloc)
    demand(live.body.get("state") == "live", f"alloc: {live}")
    trace = new_trace()
    take = {"alloc": "by-take", "volume": VOLUME, "node": "n1"}
    granted = await wire.ask("claim-take", take, trace=trace, within=10)
    demand(granted.body.get("external_id") == "peer-storage", f"grant: {granted}")
    record = json.loads((await volumes.get(f"{CLAIMS}.by-take")).value)
    demand((record["state"], record["node"]) == ("taken", "n1"), f"record: {record}")
    demand(record["trace"] == trace, "the record does not name the request's trace")
    wire.page.check_record("Claim", record, "the record")
    mine = await wire.ask("claim-status", {"alloc": "by-take"})
    demand(mine.body["claims"][0]["epoch"] == granted.body["epoch"], f"claims: {mine}")
    told = names(await follow(events, "claim.taken", wire.page, "trace", trace))
    demand(states_of(told) == ["publishing", "taken"], f"events of the claim: {told}")
    say("claim.take granted it to alloc by-take; the record says taken, with the request's trace")
    say(f"  events of that one trace: {', '.join(told)}")

    other = {"id": "other", "node": "n2", "volumes": [{"source": VOLUME}]}
    await wire.ask("alloc-register", other)
    held = await wire.ask("claim-take", {"alloc": "other", "volume": VOLUME, "node": "n2"})
    demand(held.code == "BERTH0106" and "by-take" in held.body["message"], f"held: {held}")
    say(f"another's claim.take is refused: {held.code}, {held.body['message']}")
    await wire.ask("alloc-stop", {"id": "other"})

    await wire.ask("claim-release", {"alloc": "by-take", "volume": VOLUME})
    release = await follow(events, "claim.freed", wire.page, "claim_trace", trace)
    told, traces = names(release), {event["trace"] for event in release}
    demand(len(traces) == 1 and trace not in traces, f"traces of the release: {traces}")
    steps = ["unpublishing", "node-detached", "freed"]
    demand(states_of(told) == steps, f"events of the release: {told}")
    states = []
    while (entry := await next_entry(watcher)) is not None:
        if entry.key == f"{CLAIMS}.by-take":
            gone = entry.operation is not None
            states.append("deleted" if gone else json.loads(entry.value)["state"])
    demand(states[-1:] == ["deleted"] and "taken" in states, f"watched: {states}")
    say(f"claim.release; the watch saw {', '.join(dedup(states))}")
    say(f"  events of one trace, which names the claim's: {', '.join(dedup(told))}")
    stopped = await wire.ask("alloc-stop", {"id": "by-take"})
    demand(stopped.body["state"] == "stopped", f"stopped: {stopped}")


async def mount_and_stop(wire, system, events, say):
    """By an agent: staged and published for real, and taken down when the alloc ends."""
    alloc = {"id": "by-mount", "node": "n2", "volumes": [{"source": VOLUME}]}
    await wire.ask("alloc-register", alloc)
    mount = {"namespace": "default", "alloc": "by-mount", "volume": VOLUME}
    mounted = await wire.ask("agent-mount", mount, node="n2", within=15)
    path = mounted.body.get("path")
    demand(path and system.mounted(path, "n2"), f"mounted: {mounted}")
    status = await wire.ask("agent-status", {}, node="n2")
    demand([one["path"] for one in status.body["mounts"]] == [path], f"agent: {status}")
    demand(status.body["controllers"] == [PLUGIN], f"agent: {status}")
    say("agent.mount on n2: the path it answers is in that agent's mount table")
    chosen = str(system.chosen.resolve())
    seen = await wire.ask("agent-mount", mount | {"path": chosen}, node="n2", within=15)
    demand(seen.body.get("path") == chosen, f"mounted at a chosen path: {seen}")
    demand(system.mounted(chosen, "n2"), f"{chosen} is in no mount table")
    say("agent.mount with a path below --bind-below: mounted there, too")

    trace = new_trace()
    await wire.ask("alloc-stop", {"id": "by-mount", "state": "complete"}, trace=trace)

    async def is_free():
        shown = await wire.ask("volume-status", {"id": VOLUME})
        return not shown.body["claims"]

    await until("the volume is free", 20, is_free)
    demand(not system.mounted(path, "n2"), f"{path} is still mounted")
    shown = await wire.ask("alloc-status", {"id": "by-mount"})
    demand(shown.body["state"] == "complete" and not shown.body["claims"], f"alloc: {shown}")
    ended = [one["id"] for one in (await wire.ask("alloc-list", {"node": "n2"})).body["allocs"]]
    demand("by-mount" in ended, f"allocs: {ended}")
    say("alloc.stop: unmounted, detached and free again")


async def expect(wire, say):
    """A job that provides the plugin counts, and a plugin that is used cannot be deleted."""
    job = {"plugin": PLUGIN, "job": "peer", "controllers": 1, "nodes": 3}
    told = await wire.ask("plugin-expect", job)
    demand(told.body.get("changed"), f"expected: {told}")
    again = await wire.ask("plugin-expect", job)
    demand(again.body.get("changed") is False, f"expected again: {again}")
    shown = (await wire.ask("plugin-status", {"id": PLUGIN})).body["plugins"][0]
    demand(shown["nodes"] == {"healthy": 2, "expected": 3}, f"counted: {shown}")
    demand([one["job"] for one in shown["jobs"]] == ["peer"], f"jobs: {shown}")
    shown = await wire.ask("volume-status", {"id": VOLUME})
    demand(shown.body["health"]["description"] == "2 of 3 nodes healthy", f"health: {shown}")
    used = await wire.ask("plugin-delete", {"id": PLUGIN})
    demand(used.code == "BERTH0214" and VOLUME in used.body["message"], f"used: {used}")
    back = await wire.ask("plugin-expect", {"plugin": PLUGIN, "job": "peer"})
    demand(back.body.get("changed"), f"taken back: {back}")
    say(f"plugin.expect counts; plugin.delete is refused: {used.code}, {used.body['message']}")


async def forget(wire, say):
    """An alloc that has ended and holds nothing may go; one that lives may not."""
    live = {"id": "by-peer", "node": "n1"}
    await wire.ask("alloc-register", live)
    soon = timestamp(1)
    for alloc, before, code in [
        ("by-peer", soon, "BERTH0306"),
        ("by-take", "2020-01-01T00:00:00.000Z", "BERTH0306"),
        ("by-take", soon, ""),
    ]:
        said = await wire.ask("alloc-forget", {"id": alloc, "before": before})
        demand(said.code == code, f"forget {alloc} before {before}: {said}")
    again = await wire.ask("alloc-forget", {"id": "by-take", "before": soon})
    demand(again.body.get("known") is False, f"forgotten twice: {again}")
    await wire.ask("alloc-stop", {"id": "by-peer"})
    swept = await wire.ask("gc-force", {"kinds": ["allocs"], "grace_ms": 0})
    lines = [line for line in swept.body["collected"] if line.startswith("alloc by-mount ")]
    demand(len(lines) == 1, f"swept: {swept}")
    say(f"alloc.forget forgets what has ended; gc.force: {lines[0]}")


async def follow(events, last, page, field, trace):
    """The events that name a trace in a field, up to the last; each is as the page says."""
    told = []
    while True:
        try:
            message = await events.next_msg(timeout=15)
        except NoMore:
            demand(False, f"no event {last}; there were {names(told)}")
        event = json.loads(message.data)
        page.check_type("Event", event, message.subject)
        kind = event["event"].split(".")[0]
        demand(message.subject.startswith(f"berth.v1.event.default.{kind}."), message.subject)
        if event.get(field) == trace:
            told.append(event)
            if event["event"] == last:
                return told


def timestamp(seconds):
    """So many seconds from now."""
    at = datetime.now(timezone.utc) + timedelta(seconds=seconds)
    return at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


async def next_entry(watcher):
    try:
        return await watcher.updates(timeout=0.5)
    except NoMore:
        return None


async def every_key(kv):
    found, watcher = [], await kv.watch("default.peer=2Edata.>", ignore_deletes=True)
    while (entry := await watcher.updates(timeout=5)) is not None:
        found.append((entry.key, entry.value))
    await watcher.stop()
    return found


def names(events):
    return [event["event"] for event in events]


def states_of(told):
    """What became of the claim: attempts may fail and be made again, so each once."""
    states = (name.removeprefix("claim.") for name in told if name.startswith("claim."))
    return dedup([state for state in states if state != "failed"])


def dedup(told):
    return [name for at, name in enumerate(told) if at == 0 or told[at - 1] != name]
