"""Errors of the services, as the advice that a scheduler gets."""

import asyncio

from berth_client import Elsewhere, Never, Scheduler, Unknown, Wait
from nats_py.reference import demand

from .fleet import refused


async def story(fleet, say):
    scheduler = await fleet.scheduler("anna", "refusals")
    register = scheduler.register
    missing = await refused("no volume", Never, "BERTH0101", register("x", "n1", ["nothing"]))
    demand(missing.next and missing.trace and not missing.retryable, f"incomplete: {missing}")
    demand(missing.problem["faults"], f"without faults: {missing}")
    await refused("no node", Elsewhere, "BERTH0203", register("x", "n9"))
    await refused("bad input", Never, "BERTH0001", register("x", "n1", index=-1))
    alloc = await register("placed", "n1")
    await refused("another node", Never, "BERTH0111", register("placed", "n2"))
    await refused("no process", Never, "BERTH0310", alloc.guard(cgroup="/sys/fs/cgroup/nothing"))
    await refused("a revision", Never, "BERTH0009", register("placed", "n1", note="y", revision=1))
    await alloc.stop()
    await refused("an ended one", Never, "BERTH0302", register("placed", "n1"))
    await denied(fleet)
    await unanswered(fleet, scheduler)
    await closed(fleet, scheduler)
    say("refusals have the advice of their codes: never, elsewhere, wait, unknown")


async def denied(fleet):
    """The server refuses the subject, and the caller is told at once."""
    work = Scheduler.connect(
        fleet.system.url, fleet.creds("user", "anna"), fleet.ca, owner="x", namespace="other"
    )
    await refused("another namespace", Never, "BERTH0010", asyncio.wait_for(work, 5))
    work = Scheduler.connect("nats://127.0.0.1:1", owner="x", overall=1)
    await refused("no server", Wait, "BERTH0005", work)


async def unanswered(fleet, scheduler):
    """No agent is there; and an agent that is there does not answer."""
    wire = scheduler._session.wire
    about = {"alloc": "placed", "namespace": "default"}
    work = wire.ask("agent.mount-all", about, node="n9", overall=1)
    await refused("no agent", Wait, "BERTH0003", work)
    fleet.signal_agent("n2", "STOP")
    try:
        work = wire.once("agent.status", {}, node="n2", attempt=0.5)
        await refused("a frozen agent", Unknown, "BERTH0004", work)
    finally:
        fleet.signal_agent("n2", "CONT")


async def closed(fleet, scheduler):
    """What is waited for is refused when its scheduler is closed, and the next one stops it."""
    left = await scheduler.register("left", "n1")
    waiting = asyncio.create_task(left.lost())
    await asyncio.sleep(0.2)
    await scheduler.close()
    await refused("a wait at the end", Wait, "BERTH0005", waiting)
    await refused("a wait after the end", Wait, "BERTH0005", left.lost())
    following = await fleet.scheduler("anna", "refusals")
    own = await following.own()
    demand([one.id for one in own] == ["left"], f"its own after a restart: {own}")
    demand(len(await following.stop_all()) == 1, "it is not stopped")
    await following.close()
