//! Every bound of the system, in one place. Assertions say which bound must exceed which.
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
/// The most bytes of all keys and values of such a map (CSI 1.13, size limits: 4 KiB).
pub const MAP_BYTES_MAX: usize = 4096;
/// The most bytes of a controller's `publish_context`: four times what CSI allows. The volume is
/// attached by then, and a refusal would not help.
pub const PUBLISH_CONTEXT_BYTES_MAX: usize = 4 * MAP_BYTES_MAX;
/// The most capabilities, mount flags or topologies a volume may list.
pub const LIST_MAX: usize = 64;
/// The most claims of one volume.
pub const CLAIMS_MAX: usize = 20_000;
/// The most snapshots of one volume.
pub const SNAPSHOTS_MAX: usize = 1000;
/// The most volumes of one group of snapshots.
pub const GROUP_MAX: usize = LIST_MAX;
/// The most classes.
pub const CLASSES_MAX: usize = 1000;
/// The most pages of one list of a plugin, and the most entries: a plugin may never end its list.
pub const PLUGIN_PAGES_MAX: usize = 1000;
/// The most entries that are read of one list of a plugin.
pub const PLUGIN_ENTRIES_MAX: usize = 100_000;
/// The largest size of a volume, in bytes (CSI's sizes are signed).
pub const VOLUME_BYTES_MAX: u64 = i64::MAX as u64;
/// A volume that was created for the run of an alloc is deleted if that alloc is not registered
/// this long after.
pub const RUN_REGISTERED_WITHIN: Duration = Duration::from_secs(300);
/// The most jobs that may provide one plugin.
pub const JOBS_PER_PLUGIN_MAX: usize = 256;
/// The most volumes of one alloc.
pub const VOLUMES_PER_ALLOC_MAX: usize = 64;
/// The most labels of one alloc.
pub const META_ENTRIES_MAX: usize = 32;
/// The most bytes of all labels of one alloc, keys and values.
pub const META_BYTES_MAX: usize = 2048;
/// The most requests in one bulk request.
pub const BULK_MAX: usize = LIST_MAX;
/// The most allocs that one request stops or adopts. The reply says whether there are more.
pub const OWNED_BATCH_MAX: usize = 500;
/// The largest request or reply we read, in bytes (NATS's own default is 1 MiB).
pub const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// The most faults of one input that an answer lists. It says how many more there are.
pub const FAULTS_MAX: usize = 100;
/// The most entries of one page of a list, and the default.
pub const PAGE_MAX: usize = 1000;
/// The most bytes of one page of a list, as JSON. The rest of a message is for other fields.
pub const PAGE_BYTES_MAX: usize = MESSAGE_BYTES_MAX / 2;
/// The longest path handed to a plugin, in bytes (a plugin must accept 128: CSI 1.13, size limits).
pub const PATH_BYTES_MAX: usize = 128;

/// Timeout of one plugin call, unless configured. After it the outcome is uncertain.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest call timeout that may be configured. An agent remembers its start for this long.
pub const CALL_TIMEOUT_MAX: Duration = Duration::from_secs(3600);
/// The longest TTL that a node's lease may have.
pub const LEASE_TTL_MAX: Duration = Duration::from_secs(3600);
/// Added to a call's deadline before the opposite call may be sent (safety rule 8). The clocks of
/// hosts must differ by less.
pub const CLOCK_MARGIN: Duration = Duration::from_secs(2);
/// Clock differences above this are reported, in milliseconds: half of the margin.
pub const CLOCK_SKEW_REPORTED_MS: u64 = 1_000;
/// A reservation whose caller sent no further request is undone after this, unless configured.
pub const ABANDONED_AFTER: Duration = Duration::from_secs(30);
/// A waiting claim is deleted if its caller does not send the request again for this long. Callers
/// send it again after half of this at the latest.
pub const PLACE_KEPT: Duration = Duration::from_secs(20);
/// The longest wait before the first retry of a failed step.
pub const RETRY_FIRST: Duration = Duration::from_secs(1);
/// The longest wait between retries.
pub const RETRY_MAX: Duration = Duration::from_secs(60);
/// The longest wait between retries of a call under which the plugin's process ends each time, if
/// [`RETRY_MAX`] or its configured value is shorter.
pub const CRASH_RETRY_MAX: Duration = Duration::from_secs(300);
/// Timeout of a request that has no deadline header.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest that a request's work is for its caller, whatever deadline the caller set: a clock
/// may be wrong.
pub const WAIT_MAX: Duration = Duration::from_secs(300);
/// The longest that one request is held while it waits for others, for a claim or for a newer
/// index. Nobody says that its caller has gone, so a caller that is there asks again.
pub const HELD_MAX: Duration = Duration::from_secs(15);

const _: () = assert!(PLACE_KEPT.as_millis() > 2 * REQUEST_TIMEOUT.as_millis());
const _: () = assert!(RETRY_FIRST.as_millis() <= RETRY_MAX.as_millis());
const _: () = assert!(RETRY_MAX.as_millis() < CRASH_RETRY_MAX.as_millis());
const _: () = assert!(CALL_TIMEOUT.as_millis() <= CALL_TIMEOUT_MAX.as_millis());
const _: () = assert!(CLOCK_MARGIN.as_millis() < CALL_TIMEOUT.as_millis());
const _: () = assert!(REQUEST_TIMEOUT.as_millis() < HELD_MAX.as_millis());
const _: () = assert!(HELD_MAX.as_millis() < PLACE_KEPT.as_millis());
const _: () = assert!(HELD_MAX.as_millis() < WAIT_MAX.as_millis());
/// The most unreadable records that one reply names.
pub const UNREADABLE_MAX: usize = 100;
