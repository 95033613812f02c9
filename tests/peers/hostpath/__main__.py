"""Volumes at the storage of a Go driver: `python -m hostpath BINARIES HOSTPATHPLUGIN [SEED]`.

Owns one system of its own. Promises exit code 0 only if the driver's own state was what Berth's
records say: after each operation was done once, after a storm of kills, and when all is deleted.
"""

import asyncio
import shutil
import sys
import time
from pathlib import Path

import nats

from nats_py.reference import NotAsDocumented
from nats_py.system import System

from . import away, life, storm
from .bus import PLUGIN, Bus, until
from .storage import NODES, Storage

STARTED = time.monotonic()
# For how long a call of the driver may take, in milliseconds. The upstream driver ignores it.
SLOW_MS = 150
WITHIN = 240  # seconds
FILE = f"""\
id = "{PLUGIN}"
command = [
    "DRIVER",
    "--endpoint=${{CSI_ENDPOINT}}",
    "--nodeid=${{NODE}}",
    "--drivername={PLUGIN}",
    "--statedir=${{DIR}}/hostpath-${{NODE}}",
    "--check-volume-lifecycle",
    "-v=5",
]
env = {{ SLOW_MS = "{SLOW_MS}" }}
"""


def say(text):
    """A line of the story."""
    print(f"{time.monotonic() - STARTED:5.1f}s  {text}", flush=True)


async def tell(system, seed):
    client = await nats.connect(
        system.url,
        name="peer/hostpath",
        max_reconnect_attempts=-1,
        **system.identity.options(),
    )
    bus, storage = Bus(client), Storage(system)

    async def is_there():
        shown = (await bus.persist("plugin.status", {"id": PLUGIN}, to=()))["plugins"]
        return shown and shown[0]["nodes"]["healthy"] == 2

    try:
        await until(f"{PLUGIN} is healthy on both nodes", is_there)
        await life.story(bus, storage, say)
        await away.story(bus, storage, system, say)
        await storm.story(bus, storage, system, say, seed)
        await storm.clear(bus)
        await life.empty(bus, storage)
        # A killed driver leaves the files of a volume or snapshot that it has not recorded yet.
        say(f"all deleted; the driver's state is empty; its own remains: {len(storage.files())}")
        names, codes = storage.calls()
        say(f"  calls: {storm.told(names)}")
        say(f"  answers: {storm.told(codes)}")
    finally:
        await client.close()


def keep_logs(system):
    """Of a failed run: the logs and the driver's state, in target/failed/hostpath."""
    kept = Path(__file__).resolve().parents[3] / "target" / "failed" / "hostpath"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(system.dir / "dev" / "log", kept)
    for node in NODES:
        shutil.copy(system.dir / f"hostpath-{node}" / "state.json", kept / f"{node}-state.json")
    print(f"hostpath: the logs are in {kept}", file=sys.stderr)


def main():
    binaries, driver = (Path(path).resolve() for path in sys.argv[1:3])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    try:
        with System(binaries, FILE.replace("DRIVER", str(driver))) as system:
            try:
                asyncio.run(asyncio.wait_for(tell(system, seed), WITHIN))
            except BaseException as fault:
                # The end finds what is left of a failure, and says only that.
                print(f"hostpath: FAILED, seed {seed}: {fault!r}", file=sys.stderr)
                keep_logs(system)
                raise
    except NotAsDocumented as fault:
        print(f"hostpath: NOT AS IT SHOULD BE: {fault}", file=sys.stderr)
        return 1
    say("stopped; no process, no mount and no file is left")
    return 0


sys.exit(main())
