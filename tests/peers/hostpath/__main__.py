"""Volumes at the storage of a Go driver: `python -m hostpath BINARIES HOSTPATHPLUGIN [SEED]`.

Owns one system of its own, whose driver has berth-csi-proxy in front. Promises exit code 0 only if
the driver's own state was what Berth's records say: after each operation was done once, after an
answer that came too late, after a storm of kills and faults, and when all is deleted; and if the
judge finds nothing wrong in the calls that the proxy has logged.
"""

import asyncio
import shutil
import sys
import time
from pathlib import Path

import nats

from nats_py.reference import NotAsDocumented
from nats_py.system import System

from . import away, late, life, storm
from .bus import PLUGIN, Bus, until
from .proxy import Proxy
from .storage import NODES, Storage

STARTED = time.monotonic()
# For how long a call of the driver may take, in milliseconds. The upstream driver ignores it.
SLOW_MS = 150
WITHIN = 1200  # seconds: a bound against a hang
FILE = f"""\
id = "{PLUGIN}"
command = [
    "BEHIND",
    "${{CSI_ENDPOINT}}",
    "${{NODE}}",
    "${{DIR}}",
    "PROXY",
    "DRIVER",
    "--endpoint=unix://${{DIR}}/behind-${{NODE}}.sock",
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
    bus, storage, proxy = Bus(client), Storage(system), Proxy(system)

    async def is_there():
        shown = (await bus.persist("plugin.status", {"id": PLUGIN}, to=()))["plugins"]
        return shown and shown[0]["nodes"]["healthy"] == 2

    try:
        await until(f"{PLUGIN} is healthy on both nodes", is_there)
        await life.story(bus, storage, say)
        await away.story(bus, storage, system, say)
        await late.story(bus, storage, proxy, say)
        await storm.story(bus, storage, proxy, system, say, seed)
        await storm.clear(bus)
        await life.empty(bus, storage)
        # A killed driver leaves the files of a volume or snapshot that it has not recorded yet.
        say(f"all deleted; the driver's state is empty; its own remains: {len(storage.files())}")
        names, codes = storage.calls()
        say(f"  calls: {storm.told(names)}")
        say(f"  answers: {storm.told(codes)}")
        say(f"the judge of the calls: {proxy.judge()}")
    finally:
        await client.close()


def keep_logs(system):
    """Of a failed run: the logs and the driver's state, in target/failed/hostpath."""
    kept = Path(__file__).resolve().parents[3] / "target" / "failed" / "hostpath"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    copies = {"dev/log": "log"}
    for node in NODES:
        copies[f"hostpath-{node}/state.json"] = f"{node}-state.json"
        copies[f"calls-{node}.jsonl"] = f"calls-{node}.jsonl"
    # A run that failed early has not made them all, and its own fault is to be told.
    for name, copy in copies.items():
        source = system.dir / name
        if source.is_dir():
            shutil.copytree(source, kept / copy)
        elif source.is_file():
            shutil.copy(source, kept / copy)
    print(f"hostpath: the logs are in {kept}", file=sys.stderr)


def main():
    binaries, driver = (Path(path).resolve() for path in sys.argv[1:3])
    file = FILE.replace("BEHIND", str(Path(__file__).resolve().parent / "behind.sh"))
    file = file.replace("PROXY", str(binaries / "berth-csi-proxy")).replace("DRIVER", str(driver))
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    try:
        with System(binaries, file) as system:
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
