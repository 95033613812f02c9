"""Looking: streams, buckets, services, records."""

import json

from .reference import demand
from .wire import until

EVENTS = "BERTH_EVENTS"


async def streams(wire, say):
    """Every bucket and stream of the page is there, and says what it is."""
    found = {info.config.name: info for info in await wire.nats.jetstream().streams_info()}
    for name in [f"KV_{bucket}" for bucket in wire.page.keys] + [EVENTS]:
        demand(name in found, f"there is no stream {name}")
        demand(found[name].config.description, f"{name} has no description")
    say(f"streams and buckets, each with its description: {', '.join(sorted(found))}")


async def services(wire, say):
    """What runs is what the page lists, endpoint by endpoint."""
    listed = {(one.service, one.name): one for one in wire.page.endpoints}

    async def all_there():
        # A collector leads, and so answers, a moment after it has started.
        infos, _ = await wire.services()
        served = {(info.name, endpoint.name) for info in infos for endpoint in info.endpoints}
        return infos if served >= listed.keys() else None

    infos = await until("every endpoint of the page is served", 10, all_there)
    for info in infos:
        demand(info.metadata["reference"] == f"docs/contract.md#{info.name}", f"{info.metadata}")
        demand(info.metadata["writes"], f"{info.name} does not say what it writes")
        names = [endpoint.name for endpoint in info.endpoints]
        demand(len(names) == len(set(names)), f"{info.name} has two endpoints of one name")
        for endpoint in info.endpoints:
            on_page = listed.get((info.name, endpoint.name))
            demand(on_page, f"{info.name} {endpoint.name} is not on the page")
            facts = endpoint.metadata
            demand(facts["description"], f"{endpoint.name} has no description")
            demand(facts["request"].replace("::", ".") == on_page.request, f"{endpoint.name}: {facts}")
            demand(facts["reply"].replace("::", ".") == on_page.reply, f"{endpoint.name}: {facts}")
            demand(facts["reference"].endswith(f"#{on_page.anchor}"), f"{endpoint.name}: {facts}")
    kinds = sorted({info.name for info in infos})
    say(f"{len(infos)} micro services of {len(kinds)} kinds answer PING, INFO and STATS alike")
    say(f"  {', '.join(kinds)}")


async def records(wire, say):
    """Every key has a form of the page, and every value is a record, or lease, of its type."""
    count = 0
    for bucket, forms in wire.page.keys.items():
        kv = await wire.nats.jetstream().key_value(bucket)
        for key, value in await everything(kv):
            found = next((kind for form, *kind in forms if form.fullmatch(key)), None)
            demand(found, f"{bucket} {key} has no form of the page")
            kind, is_record = found
            check = wire.page.check_record if is_record else wire.page.check_type
            check(kind, value, f"{bucket} {key}")
            demand(not is_record or value["schema"] in (1, 2), f"{bucket} {key}: {value}")
            count += 1
    say(f"{count} records read, each of the type that the page gives its key")


def examples(page, say):
    """Every example is valid, and with a fault in any field it is not."""
    valid = refused = 0

    def refuse(name, value, why):
        nonlocal refused
        demand(page.schema.fault(name, value), f"the schema takes a {name} with {why}")
        refused += 1

    for name, one in page.schema.defs.items():
        for example in one.get("examples", ()):
            fault = page.schema.fault(name, example)
            demand(fault is None, f"an example of {name} is none: {fault}")
            valid += 1
        if not one.get("examples"):
            continue
        example = page.example(name)
        for missing in one["required"]:
            without = {key: example[key] for key in example if key != missing}
            refuse(name, without, f"no {missing}")
        for key, said in one["properties"].items():
            wrong = "true" if "boolean" in said.get("type", ()) else True
            refuse(name, example | {key: wrong}, f"a wrong {key}")
        if one.get("additionalProperties") is False:
            refuse(name, example | {"no_such_field": 1}, "an unknown field")
    say(f"JSON Schema: {valid} examples are valid, and {refused} made wrong in one field are not")


def errors(page, say):
    """Every code has an example."""
    shown = {one["code"] for one in page.schema.defs["Problem"]["examples"]}
    demand(page.codes == shown, f"not shown, or no codes: {page.codes ^ shown}")
    say(f"{len(page.codes)} error codes, each with a reply of its own")


async def everything(kv):
    """All keys with their values."""
    found, watcher = [], await kv.watchall(ignore_deletes=True)
    while (entry := await watcher.updates(timeout=5)) is not None:
        found.append((entry.key, json.loads(entry.value)))
    await watcher.stop()
    return found


async def at_rest(wire):
    """The statistics at a moment without a request under way. Agents report now and then."""
    _, stats = await wire.services()
    busy = any(endpoint.data["in_flight"] for one in stats for endpoint in one.endpoints)
    return None if busy else stats


async def statistics(wire, say):
    """What the endpoints counted of all this."""
    stats = await until("nothing is under way", 20, lambda: at_rest(wire))
    requests = sum(endpoint.num_requests for one in stats for endpoint in one.endpoints)
    errors = sum(endpoint.num_errors for one in stats for endpoint in one.endpoints)
    for one in stats:
        for endpoint in one.endpoints:
            by_code = endpoint.data["errors"]
            demand(sum(by_code.values()) == endpoint.num_errors, f"{one.name} {endpoint.name}")
            demand(by_code.keys() <= wire.page.codes, f"{by_code}")
    say(f"statistics: {requests} requests, {errors} of them refused, counted by code")
