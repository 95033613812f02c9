//! Every bound of the system, in one place, related to each other where one must exceed another.
//!
//! A queue, list, map or retry without a line here is a bug.

use std::time::Duration;

/// The longest id, in bytes.
pub const ID_BYTES_MAX: usize = 256;
/// The longest text taken from a user or a plugin into a record (an error message, a name), in
/// bytes.
pub const TEXT_BYTES_MAX: usize = 1024;
/// The most entries in a map of parameters, context or topology segments. CSI bounds their bytes
/// only, which leaves room for no more than this.
pub const MAP_ENTRIES_MAX: usize = 2048;
/// The most bytes of all keys and values of such a map (CSI 1.12, size limits: 4 KiB).
pub const MAP_BYTES_MAX: usize = 4096;
/// The most bytes of what a controller says a node needs (`publish_context`): four times what CSI
/// allows, since the volume is attached by then, and refusing it helps nobody.
pub const PUBLISH_CONTEXT_BYTES_MAX: usize = 4 * MAP_BYTES_MAX;
/// The most capabilities, mount flags or topologies a volume may list.
pub const LIST_MAX: usize = 64;
/// The most claims of one volume.
pub const CLAIMS_MAX: usize = 20_000;
/// The most jobs that may provide one plugin.
pub const JOBS_PER_PLUGIN_MAX: usize = 256;
/// The most volumes one alloc may ask for.
pub const VOLUMES_PER_ALLOC_MAX: usize = 64;
/// The largest request or reply we read, in bytes (NATS's own default is 1 MiB).
pub const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// The most entries of one page of a list, and how many there are when nobody says.
pub const PAGE_MAX: usize = 1000;
/// The most bytes of one page of a list, as JSON: the rest of a message is for what is said beside.
pub const PAGE_BYTES_MAX: usize = MESSAGE_BYTES_MAX / 2;
/// Readers that wait for something newer in one process, at once.
pub const WAITING_READERS_MAX: usize = 128;
/// The longest path handed to a plugin, in bytes (a plugin must accept 128: CSI 1.12, size limits).
pub const PATH_BYTES_MAX: usize = 128;

/// How long one plugin call may take before its outcome is called uncertain, unless configured.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// What may be configured at most: so long an agent that was started anew remembers when it began.
pub const CALL_TIMEOUT_MAX: Duration = Duration::from_secs(3600);
/// The longest TTL that a node's lease may have.
pub const LEASE_TTL_MAX: Duration = Duration::from_secs(3600);
/// What is added to a deadline before a call that negates the first may be sent (safety rule 8);
/// the clocks of hosts must differ by less.
pub const CLOCK_MARGIN: Duration = Duration::from_secs(2);
/// A clock that differs by more is reported: half of the margin, in milliseconds.
pub const CLOCK_SKEW_REPORTED_MS: u64 = 1_000;
/// A reservation nobody came back for is undone after this, unless configured.
pub const ABANDONED_AFTER: Duration = Duration::from_secs(30);
/// A place in line is lost when its caller does not ask again for so long: it is asked for anew
/// every half of this at the latest, and whoever was killed is not waited for any longer.
pub const PLACE_KEPT: Duration = Duration::from_secs(20);
/// The first retry of a failed step comes within this.
pub const RETRY_FIRST: Duration = Duration::from_secs(1);
/// No retry waits longer.
pub const RETRY_MAX: Duration = Duration::from_secs(60);
/// A request on the bus that says no deadline of its own gets this one.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest a caller may wait in one request, for a claim or for a newer index.
pub const WAIT_MAX: Duration = Duration::from_secs(300);

const _: () = assert!(PLACE_KEPT.as_millis() > 2 * REQUEST_TIMEOUT.as_millis());
const _: () = assert!(RETRY_FIRST.as_millis() <= RETRY_MAX.as_millis());
const _: () = assert!(CALL_TIMEOUT.as_millis() <= CALL_TIMEOUT_MAX.as_millis());
const _: () = assert!(CLOCK_MARGIN.as_millis() < CALL_TIMEOUT.as_millis());
const _: () = assert!(REQUEST_TIMEOUT.as_millis() < WAIT_MAX.as_millis());
/// Records that cannot be read, named in one answer.
pub const UNREADABLE_MAX: usize = 100;
