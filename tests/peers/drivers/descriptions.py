"""The drivers that are run, and in each case what cannot be asked of the driver itself."""

from dataclasses import dataclass
from enum import Enum

from hostpath.bus import PLUGIN, TOPOLOGY_KEY


class CopiesOf(Enum):
    """What a driver says that a copy was made of. Berth holds it to CSI there."""

    SOURCE = "its source"
    NOTHING = "nothing"  # the copy is ready, with this fault on record
    ANOTHER = "another volume or snapshot"  # the copy is failed, and can only be deleted


@dataclass(frozen=True)
class Driver:
    """A driver of others. What it can do, it announces; the rest is here."""

    name: str  # its directory, with the go.mod that pins it
    plugin: str
    flags: tuple = ()
    # A driver whose processes all say the same node id has one node.
    nodes: int = 1
    # Each process knows only what it has made itself: the controller of n1 is the only one. On
    # other nodes the proxy answers for it that there is none.
    one_controller: bool = False
    # Its volumes are bound to their nodes, by this key.
    topology_key: str = ""
    # Whether it mounts anything. A mock driver says OK, and nothing is in the kernel's mount table.
    mounts: bool = True
    # The judge's rule that its answers break: what it says of a mount, and the kernel does not.
    false_report: str = ""
    # Whether a process that is started again knows what the one before has made.
    remembers: bool = False
    # Whether it answers OK when it unmounts what is not mounted any more. If not, and an agent was
    # killed at that moment, a person has to confirm that nothing is left on the node.
    unmounts_again: bool = True
    copies: CopiesOf = CopiesOf.SOURCE
    # All its snapshots have the same id, and are said to be of its first volume.
    one_snapshot: bool = False
    # Its volumes are directories in /tmp, whatever its flags are: it gets a /tmp of its own.
    in_tmp: bool = False


DRIVERS = (
    Driver(
        name="hostpath",
        plugin=PLUGIN,
        flags=(
            "--endpoint=${SOCKET}",
            "--nodeid=${NODE}",
            "--statedir=${DIR}/hostpath-${NODE}",
        ),
        nodes=2,
        topology_key=TOPOLOGY_KEY,
        remembers=True,
    ),
    Driver(
        name="hostpath-1.0",
        plugin="csi-hostpath",
        flags=("--endpoint=${SOCKET}", "--nodeid=${NODE}", "-v=5"),
        nodes=2,
        one_controller=True,
        unmounts_again=False,
        false_report="still-mounted",
        copies=CopiesOf.NOTHING,
        in_tmp=True,
    ),
    Driver(
        name="mock-driver",
        plugin="io.kubernetes.storage.mock",
        mounts=False,
        false_report="not-mounted",
        copies=CopiesOf.ANOTHER,
    ),
    Driver(
        name="dell-gocsi",
        plugin="mock.gocsi.rexray.com",
        mounts=False,
        false_report="not-mounted",
        copies=CopiesOf.NOTHING,
        one_snapshot=True,
    ),
    Driver(
        name="rexray-gocsi",
        plugin="mock.gocsi.rexray.com",
        mounts=False,
        false_report="not-mounted",
        copies=CopiesOf.NOTHING,
        one_snapshot=True,
    ),
)
