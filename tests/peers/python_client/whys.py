"""What `berth why` says, as the client reads it."""

import functools
import json

from berth_client import Actor, Explanation, Never, Unknown, why
from berth_client.explain import read_answer
from nats_py.reference import NotAsDocumented, demand

from .fleet import refused, until


async def story(fleet, say):
    kinds()
    forms()
    program = fleet.system.binaries / "berth"
    ask = functools.partial(
        why,
        server=fleet.system.url,
        creds_file=fleet.creds("user", "anna"),
        ca_file=fleet.ca,
        program=program,
    )
    scheduler = await fleet.scheduler("anna", "whys")
    name = await fleet.volume("explained")
    alloc = await scheduler.register("asking", "n1", [name])
    mounted = await alloc.mount(overall=30)
    (well,) = await ask(f"volume/{name}")
    demand(well.subject == f"volume {name}" and well.cause == "nothing", f"a mounted one: {well}")
    demand(well.who == Actor("nobody"), f"nobody has to act: {well}")
    fleet.unmount(mounted[0].path, "n1")

    async def is_missed():
        (found,) = await ask("alloc/asking")
        return found if found.cause == "mount-missing" else None

    missing = await until("the lost mount is explained", 30, is_missed)
    demand(missing.who == Actor("you"), f"who acts: {missing}")
    demand(missing.next[0].startswith(f"berth volume republish {name} "), f"what helps: {missing}")
    demand(missing.sentence and missing.evidence, f"without words: {missing}")
    everything = fleet.creds("admin", "dev")
    unknown = await ask("nothing-has-this-name", creds_file=everything)
    demand(unknown == [], f"an unknown name is explained: {unknown}")
    # A node may have the name, and this user may not read nodes.
    (unread,) = await ask("nothing-has-this-name")
    demand(unread.cause == "right-missing", f"what may not be read: {unread}")
    (away,) = await why(name, "nats://127.0.0.1:1", program=program)
    demand(away.cause == "bus-away" and away.next, f"without a server: {away}")
    await refused("another program", Unknown, "BERTH0007", ask(name, program="/bin/false"))
    missing_program = ask(name, program=fleet.system.binaries / "no-such-program")
    await refused("no program", Never, "BERTH0001", missing_program)
    await refused("no time", Unknown, "BERTH0004", ask(name, overall=0.01))
    await alloc.stop("failed", missing.sentence)
    await alloc.wait("free", overall=30)
    await scheduler.close()
    say(f"why: {missing.sentence}; {missing.who.kind}: {missing.next[0]}")


def kinds():
    """Each kind of actor, and what a newer version may add."""
    base = {"subject": "volume x", "state": "free", "cause": "a-cause-of-later", "sentence": "so"}
    for who, actor in (
        ("you", Actor("you")),
        ({"plugin-operator": "p"}, Actor("plugin-operator", plugin="p")),
        ({"nobody": {"by": "2026"}}, Actor("nobody", by="2026")),
        ({"nobody": {"by": None}}, Actor("nobody")),
        ({"somebody": 1}, Actor("somebody")),
    ):
        found = Explanation.parse(base | {"who": who, "new": True})
        demand(found.who == actor and found.cause == "a-cause-of-later", f"{who}: {found}")


def forms():
    """Whatever another program prints is a refusal, and no fault of this package."""
    whole = {"subject": "x", "state": "s", "cause": "c", "sentence": "so", "who": "you"}
    demand(len(read_answer(json.dumps({"diagnoses": [whole]}).encode(), b"", 0)) == 1, "a whole one")
    for answer in (
        None,
        [],
        "text",
        {},
        {"diagnoses": None},
        {"diagnoses": ["text"]},
        {"diagnoses": [whole | {"who": {}}]},
        {"diagnoses": [whole | {"who": None}]},
        {"diagnoses": [whole | {"next": 1}]},
    ):
        try:
            found = read_answer(json.dumps(answer).encode(), b"", 0)
        except Unknown as unknown:
            demand(unknown.code == "BERTH0007", f"{answer}: {unknown}")
        else:
            raise NotAsDocumented(f"{answer} is read as {found}")
