//! The list of all metrics: name, unit, labels, meaning.
//!
//! To add one, add it here; `docs/metrics.md` is written from this file, and a test compares them.

use std::fmt::Write as _;

use super::instrument::{About, Counter, Gauge, Histogram, Metric};

/// Histogram bounds, in seconds, for what ends within a minute.
const SHORT: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Histogram bounds, in seconds, for what a workload or an operator ends.
const LONG: &[f64] = &[0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 21_600.0, 86_400.0];

const fn count(labels: &[&str]) -> usize {
    labels.len()
}

macro_rules! registry {
    ($(
        $(#[doc = $meaning:literal])+
        $kind:ident $name:ident = $text:literal, $unit:literal, [$($label:ident),*]
            $(, $bounds:ident)?;
    )+) => {
        $(
            $(#[doc = $meaning])+
            pub static $name: $kind<{ count(&[$(stringify!($label)),*]) }> = $kind::new(
                About {
                    name: $text,
                    unit: $unit,
                    meaning: concat!($($meaning),+),
                    labels: &[$(stringify!($label)),*],
                }
                $(, $bounds)?
            );
        )+

        /// All metrics, in the order of the page.
        pub static ALL: &[&dyn Metric] = &[$(&$name),+];
    };
}

registry! {
    /// Requests answered. `code` is `ok` or the code of `docs/errors.md`.
    Counter REQUESTS_SERVED = "berth.requests.served", "{request}", [service, endpoint, code];
    /// From the arrival of a request to its answer.
    Histogram REQUESTS_SERVED_DURATION =
        "berth.requests.served.duration", "s", [service, endpoint], SHORT;
    /// Requests made of other services. `outcome` is `ok`, a code of `docs/errors.md`,
    /// or what kept the request from being answered.
    Counter REQUESTS_MADE = "berth.requests.made", "{request}", [step, outcome];
    /// From a request to its answer, or to giving up.
    Histogram REQUESTS_MADE_DURATION = "berth.requests.made.duration", "s", [step], SHORT;

    /// Guarded writes. `outcome` is `stored`, `conflict` (another writer was first),
    /// `refused`, `unavailable` or `unknown`.
    Counter COMMITS = "berth.commits", "{write}", [bucket, outcome];
    /// From a write to its resolved acknowledgement.
    Histogram COMMITS_DURATION = "berth.commits.duration", "s", [bucket], SHORT;
    /// Writes sent once more, because their acknowledgement was lost or the stream had no leader.
    Counter COMMITS_SENT_AGAIN = "berth.commits.sent_again", "{write}", [bucket];
    /// Writes that were stored with others in one batch, because many came at once.
    Counter COMMITS_TOGETHER = "berth.commits.together", "{write}", [bucket];
    /// Deleted keys that were purged, with their history, once their markers were old.
    Counter KEYS_PURGED = "berth.keys.purged", "{key}", [bucket];

    /// Comparisons of the keys in memory with those of the bucket, every five minutes or so.
    /// `result` is `same`, `differs` (all keys are read again then), or `none` where none could be
    /// made.
    Counter MIRROR_COMPARISONS = "berth.mirror.comparisons", "{comparison}", [bucket, result];

    /// How far the process's clock is from nats-server's, in milliseconds, ahead or behind.
    /// Services measure it; agents measure theirs against the registry's.
    Gauge CLOCK_SKEW = "berth.clock.skew", "ms", [];

    /// Whether the bus is connected: 0 or 1.
    Gauge BUS_CONNECTED = "berth.bus.connected", "{connection}", [];
    /// Connections to the bus that were made, the first included.
    Counter BUS_CONNECTS = "berth.bus.connects", "{connection}", [];
    /// Connections to the bus that were lost.
    Counter BUS_DISCONNECTS = "berth.bus.disconnects", "{connection}", [];
    /// What nats-server's permissions refused this process. `kind` is `publish` or `subscribe`.
    Counter BUS_DENIALS = "berth.bus.denials", "{refusal}", [kind];

    /// Rights of this version that the process's identity lacks, by its `.creds` file.
    Gauge ACCESS_MISSING = "berth.access.missing", "{right}", [];
    /// Events that nats-server refused this process, and that it keeps until it may send them.
    Gauge EVENTS_KEPT = "berth.events.kept", "{event}", [];
    /// Events of this process that are lost: more came than it can keep or send.
    Counter EVENTS_LOST = "berth.events.lost", "{event}", [];

    /// How many copies a bucket or stream has fewer than the cluster could hold, or than
    /// `nats.replicas` says. Services check it every five minutes.
    Gauge BUS_COPIES_MISSING = "berth.bus.copies_missing", "{copy}", [stream];

    /// Calls to plugins. `code` is gRPC's, `OK` included, or `UNREACHABLE`, `LATE` or
    /// `BROKEN` where the plugin gave none, `TOO_LARGE` or `CONTRADICTS` where its answer was not
    /// taken.
    Counter PLUGIN_CALLS = "berth.plugin.calls", "{call}", [rpc, code];
    /// From a call to the plugin's answer, or to giving up.
    Histogram PLUGIN_CALLS_DURATION = "berth.plugin.calls.duration", "s", [rpc], SHORT;

    /// Changes that an agent wrote to its journal. Each is one sync of its disk.
    Counter JOURNAL_WRITES = "berth.journal.writes", "{write}", [];

    /// Operations of the agent or of `berth-docker` on the host (mounts, checks, reads of `/proc`)
    /// that have run past their deadlines. Each holds a thread.
    Gauge HOST_OPERATIONS_HUNG = "berth.host.operations_hung", "{operation}", [];

    /// Keys in the work queue, including those whose time has not come.
    Gauge RECONCILE_QUEUED = "berth.reconcile.queued", "{key}", [];
    /// Keys that are due and wait for a free slot. In the watcher, one plugin's controller has a
    /// number of slots, and so has one plugin on one node.
    Gauge RECONCILE_HELD_BACK = "berth.reconcile.held_back", "{key}", [];
    /// Keys that are being worked on.
    Gauge RECONCILE_RUNNING = "berth.reconcile.running", "{key}", [];

    /// Claims granted.
    Counter CLAIMS_GRANTED = "berth.claims.granted", "{claim}", [plugin];
    /// Claims refused. `code` is that of `docs/errors.md`.
    Counter CLAIMS_REFUSED = "berth.claims.refused", "{claim}", [code];
    /// Refused requests for which no event was sent, because too many were refused at once.
    Counter REFUSALS_UNTOLD = "berth.refusals.untold", "{request}", [];
    /// Events of agents that were dropped, because their node told more than its share.
    Counter EVENTS_REFUSED = "berth.events.refused", "{event}", [];
    /// Claims that were released to the end and deleted.
    Counter CLAIMS_RELEASED = "berth.claims.released", "{claim}", [plugin];
    /// How long claims were in each state.
    Histogram CLAIMS_STATE_DURATION = "berth.claims.state.duration", "s", [state], LONG;
    /// Claims that wait for their volume.
    Gauge CLAIMS_WAITING = "berth.claims.waiting", "{claim}", [];
    /// Attempts at calls for claims and for changes of the storage, by how they ended.
    Counter ATTEMPTS = "berth.attempts", "{attempt}", [call, outcome];
    /// Questions of the watcher that a claim service refused, because a record is newer than it.
    Counter CHECKPOINTS_NEWER = "berth.checkpoints.newer", "{request}", [];
    /// Attempts after the first at the same step.
    Counter ATTEMPTS_RETRIED = "berth.attempts.retried", "{attempt}", [call];
    /// How long changes of the storage took, from their request to their end: `call` is the last
    /// call.
    Histogram STORAGE_CHANGES_DURATION = "berth.storage.changes.duration", "s", [call], LONG;
    /// Changes of volumes and snapshots at the storage that are under way.
    Gauge STORAGE_CHANGES_UNDER_WAY = "berth.storage.changes.under_way", "{change}", [];
    /// Releases and changes of the storage retried before their time, because their plugin or node
    /// is there again.
    Counter RELEASES_WOKEN_EARLY = "berth.releases.woken_early", "{claim}", [];
    /// Leases that are held, by nodes and by leaders.
    Gauge LEASES = "berth.leases", "{lease}", [kind];

    /// Spans and metrics that were dropped: `unsent`, or `overflowed` when the queue was full.
    Counter TELEMETRY_DROPPED = "berth.telemetry.dropped", "{item}", [signal, reason];
}

/// The reference page, `docs/metrics.md`.
pub fn page() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         For operators who collect metrics. After this page you know what each metric counts.\n\n\
         Every service exports these metrics by OTLP. Where `telemetry.metrics_listen` is set, it \
         also serves them at\n`GET /metrics` in Prometheus's text form: dots become underscores, \
         counters end in `_total` and times in `_seconds`.\n[tracing.md](tracing.md) shows how to \
         switch either on. A label has at most 64 values; further values count as `other`.\n\
         No label holds a volume, alloc, node or namespace: those are in traces.\n\n\
         At the same address `/healthz` says whether the process works, and `/readyz` whether it \
         answers requests ([doctor.md](doctor.md)).\n\n\
         | metric | kind | unit | labels | meaning |\n| --- | --- | --- | --- | --- |\n",
    );
    for metric in ALL {
        let About { name, unit, meaning, labels } = metric.about();
        let (kind, labels) = (metric.kind(), labels.join(", "));
        let meaning = meaning.trim_start();
        // Writing to a string cannot fail.
        let _ = writeln!(page, "| `{name}` | {kind} | {unit} | {labels} | {meaning} |");
    }
    page
}
