"""Every endpoint once with what its page shows as an example, and with what is wrong."""

import json
import time
from datetime import datetime, timedelta, timezone

from .reference import demand

# Where the page's examples live is not here: they are sent about things that do not exist.
IDS = {"ns": "team a", "node": "n1", "plugin": "dev.berth"}


async def every_endpoint(wire, say):
    did, refused = [], []
    for endpoint in wire.page.endpoints:
        answer = await wire.ask(endpoint.anchor, example(wire.page, endpoint), **IDS)
        (refused if answer.code else did).append(endpoint.anchor)
        for body in (b"{", b"[1]", b"\xff", b'"text"'):
            bad = await wire.ask(endpoint.anchor, body, **IDS)
            demand(bad.code == "BERTH0001" and bad.body["faults"], f"{endpoint.anchor}: {bad}")
        await wrong_kinds(wire, endpoint)
        if not endpoint.any_clock:
            late = await wire.ask(endpoint.anchor, {}, deadline=int(time.time() * 1000) - 1, **IDS)
            demand(late.code == "BERTH0002", f"{endpoint.anchor} was late: {late}")
            demand(late.body["retryable"], f"{endpoint.anchor} was late: {late}")
    nodes = await wire.ask("node-status", {})
    known = {one["id"]: one.get("gone") for one in nodes.body["nodes"]}
    demand(list(known) == ["n1", "n2", "peer.example"], f"nodes: {known}")
    demand(known["peer.example"], "the node of the example is not remembered as gone")
    say(f"each endpoint with the page's example: {len(did)} did it, {len(refused)} refused:")
    say(f"  did: {', '.join(did)}")
    say("each endpoint with no JSON, wrong kinds and a deadline past: the code that is documented")
    await as_micro_req_sends(wire, say)


async def wrong_kinds(wire, endpoint):
    """All faults of an input come at once, each with its path."""
    fields = wire.page.fields(endpoint.request)
    if not fields:
        return
    bad = await wire.ask(endpoint.anchor, {name: {"no": [1]} for name in fields}, **IDS)
    demand(bad.code == "BERTH0001" and not bad.body["retryable"], f"{endpoint.anchor}: {bad}")
    said = {fault["path"].split(".")[0].split("[")[0] for fault in bad.body["faults"]}
    silent = {name for name, kind in fields.items() if is_plain(kind)} - said
    demand(not silent, f"{endpoint.anchor}: nothing is said of {silent}")


def is_plain(kind):
    """Whether it is a text, a number, or true or false."""
    types = kind.get("type", "object")
    types = [types] if isinstance(types, str) else types
    return not {"object", "array"}.intersection(types)


async def as_micro_req_sends(wire, say):
    """`nats micro req` sends to the subject that an endpoint lists, wildcard and all."""
    reply = await wire.nats.request("berth.v1.volume.list.*.*.*", b"{}", timeout=5)
    listed = json.loads(reply.data)
    wire.page.check_type("volume.Volumes", listed, "volume-list")
    say("a request to an endpoint's listed subject, as `nats micro req` sends it, is answered")


def example(page, endpoint):
    """The page's example, for this system and for now."""
    body = page.example(endpoint.request)
    for name, kind in page.fields(endpoint.request).items():
        if name in body and kind.get("format") == "date-time":
            soon = datetime.now(timezone.utc) + timedelta(seconds=2 if name == "deadline" else 0)
            body[name] = soon.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    if endpoint.anchor == "node-leave":
        # A condition on a record that is not this system's.
        del body["revision"]
    if endpoint.anchor == "node-gone":
        # Nor is the revision that the example saw: its node has no record here.
        body["seen"] = 0
    if body.get("node") == "host.example":
        # A node that reports is known from then on, so it is one of our own.
        body["node"] = "peer.example" if endpoint.anchor.startswith("node-") else "n1"
    return body
