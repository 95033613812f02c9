//! `berth trace`: what happened to claims and to volumes at their storage, and which requests about
//! them were refused.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::event::Event;
use berth_contract::message::claim::{ClaimStatus, ListClaims};
use berth_contract::message::history::{EventKind, ListEvents};
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_domain::{AllocId, SnapshotId, VolumeId};
use berth_service::clock;
use tokio::time::Instant;

use crate::args::Trace;
use crate::failure::Failure;
use crate::history::{EVENTS_MAX, History};
use crate::output::print_note;
use crate::session::Session;
use crate::show::Zone;
use crate::show::trace::{ClaimSelection, Drawing, TreeSource, draw, tree};

/// The most claims that are read. A trace is of one workload, which has a handful of claims.
const CLAIMS_MAX: usize = 64;
/// How long the claim service may take to answer, unless `--timeout` says otherwise.
const CLAIMS_READ_MAX: Duration = Duration::from_secs(5);
/// Kinds of events whose subject names a volume.
const OF_VOLUME: [EventKind; 4] =
    [EventKind::Claim, EventKind::Call, EventKind::Volume, EventKind::Request];

/// The names in one claim's events: the alloc, and the volume if only one is meant.
type NamedClaims = BTreeSet<(AllocId, Option<VolumeId>)>;

/// Prints the tree.
pub async fn trace(args: &Trace, session: &Session) -> Result<(), Failure> {
    let reader = Reader { session };
    let name = args.claim.as_str();
    let is_trace = is_trace_id(name);
    let named_events =
        if is_trace { reader.read_trace(name).await? } else { reader.read_volume(name).await? };
    let mut wanted = claims_of(&named_events);
    if !is_trace {
        wanted.extend(named(name));
    }
    let live = reader.read_live_claims(name, is_trace, &mut wanted).await;
    // The events are printed also when the claim service does not answer.
    let live = live.unwrap_or_else(|problem| {
        print_note(format_args!("how the claim stands now is not known: {problem}"));
        Vec::new()
    });
    let mut stored = reader.read_claims(&wanted).await?;
    // A refusal may be about no claim. An event that is read twice is drawn once.
    let of_storage = reader.read_storage(name, is_trace, &named_events).await?;
    stored.events.extend(named_events);
    stored.add(of_storage);
    let which = match (args.all, is_trace) {
        (true, _) => ClaimSelection::All,
        (false, true) => ClaimSelection::Trace(name),
        (false, false) => ClaimSelection::Newest,
    };
    let (begins, now) = (stored.begins, clock::now());
    let source = TreeSource { events: &stored.events, claims: &live, begins, now };
    let tree = tree(source, which);
    if tree.claims.is_empty() && tree.changes.is_empty() && tree.refusals.is_empty() {
        return Err(unknown(args, session).into());
    }
    if stored.has_older {
        print_note(format_args!("only the newest {EVENTS_MAX} events were looked at"));
    }
    let drawing = Drawing { zone: Zone::local(), all: args.all };
    session.output.reply(&tree, |tree| draw(tree, &drawing));
    Ok(())
}

fn is_trace_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The claims that the name may mean. Ids may contain slashes, so each slash may be the one between
/// volume and alloc.
fn named(text: &str) -> NamedClaims {
    let parted = text.match_indices('/').filter_map(|(at, _)| {
        let volume = VolumeId::new(&text[..at]).ok()?;
        Some((AllocId::new(&text[at + 1..]).ok()?, Some(volume)))
    });
    let alone = AllocId::new(text).ok().map(|alloc| (alloc, None));
    parted.chain(alone).take(CLAIMS_MAX).collect()
}

/// The newest claims in the events. If no event names a volume: the allocs in the events.
fn claims_of(events: &[Event]) -> NamedClaims {
    let claim_of = |event: &Event| Some((event.alloc.clone()?, event.volume.clone()));
    let mut claims = NamedClaims::new();
    for claim in events.iter().rev().filter_map(claim_of) {
        if claims.len() < CLAIMS_MAX {
            claims.insert(claim);
        }
    }
    let names_volume = claims.iter().any(|(_, volume)| volume.is_some());
    claims.retain(|(_, volume)| !names_volume || volume.is_some());
    claims
}

fn unknown(args: &Trace, session: &Session) -> Problem {
    let message = format!(
        "neither a claim nor an event is known of {:?} in namespace {}",
        args.claim, session.namespace
    );
    Problem::new(Code::NoSuchClaim, message).at_step("trace").next(
        "list what lives with `berth claim status`, and what happened with `berth events --kind \
         claim --last 1000`; events are kept for a week at most; is it another --namespace?",
    )
}

fn claim_key(claim: &ClaimStatus) -> (AllocId, Option<VolumeId>) {
    (claim.alloc.clone(), Some(claim.volume.clone()))
}

struct Reader<'a> {
    session: &'a Session,
}

/// The result of reading the claims.
#[derive(Default)]
struct Stored {
    events: Vec<Event>,
    has_older: bool,
    begins: Option<berth_domain::Timestamp>,
}

impl Stored {
    fn add(&mut self, other: Self) {
        self.events.extend(other.events);
        self.has_older |= other.has_older;
        self.begins = self.begins.max(other.begins);
    }
}

impl Reader<'_> {
    /// The events of a trace. The text may also be an alloc's id that looks like a trace's.
    async fn read_trace(&self, trace: &str) -> Result<Vec<Event>, Failure> {
        let of_trace = ListEvents { trace: Some(trace.to_owned()), ..ListEvents::default() };
        // An unreadable request has no namespace.
        let mut events = self.read(&of_trace, true).await?.events;
        if let Ok(alloc) = AllocId::new(trace) {
            let of_alloc = ListEvents { allocs: vec![alloc], ..ListEvents::default() };
            events.extend(self.read(&of_alloc, false).await?.events);
        }
        Ok(events)
    }

    /// The events of a volume's claims, and of refused requests about it.
    async fn read_volume(&self, volume: &str) -> Result<Vec<Event>, Failure> {
        let Ok(volume) = VolumeId::new(volume) else { return Ok(Vec::new()) };
        let kinds = vec![EventKind::Claim, EventKind::Request];
        let of_volume = ListEvents { kinds, volumes: vec![volume], ..ListEvents::default() };
        Ok(self.read(&of_volume, false).await?.events)
    }

    /// The events of volumes and snapshots at their storage: of the named one, or of those in the
    /// events of a trace.
    async fn read_storage(
        &self,
        name: &str,
        is_trace: bool,
        trace_events: &[Event],
    ) -> Result<Stored, Failure> {
        let mut wanted: BTreeSet<(VolumeId, Option<SnapshotId>)> = BTreeSet::new();
        if is_trace {
            let of_storage = trace_events.iter().filter(|event| event.alloc.is_none());
            wanted.extend(
                of_storage
                    .filter_map(|event| Some((event.volume.clone()?, event.snapshot.clone()))),
            );
        } else {
            wanted.extend(VolumeId::new(name).ok().map(|volume| (volume, None)));
            wanted.extend(name.rsplit_once('@').and_then(|(volume, snapshot)| {
                Some((VolumeId::new(volume).ok()?, Some(SnapshotId::new(snapshot).ok()?)))
            }));
        }
        if wanted.is_empty() {
            return Ok(Stored::default());
        }
        let kinds = vec![EventKind::Volume, EventKind::Snapshot, EventKind::Call];
        let volumes: BTreeSet<VolumeId> = wanted.iter().map(|(volume, _)| volume.clone()).collect();
        let volumes = volumes.into_iter().take(CLAIMS_MAX).collect();
        let mut stored =
            self.read(&ListEvents { kinds, volumes, ..ListEvents::default() }, false).await?;
        // A volume is shown with its snapshots, and a snapshot alone.
        let is_wanted = |volume: &VolumeId, snapshot: &Option<SnapshotId>| {
            let whole = (volume.clone(), None);
            wanted.contains(&whole) || wanted.contains(&(volume.clone(), snapshot.clone()))
        };
        stored.events.retain(|event| {
            let volume = event.volume.as_ref().filter(|_| event.alloc.is_none());
            volume.is_some_and(|volume| is_wanted(volume, &event.snapshot))
        });
        Ok(stored)
    }

    /// All events of some claims and their allocs.
    async fn read_claims(&self, wanted: &NamedClaims) -> Result<Stored, Failure> {
        let is_wanted = |event: &Event| {
            let Some(alloc) = &event.alloc else { return false };
            wanted.iter().any(|(of, volume)| {
                of == alloc
                    && (volume.is_none() || event.volume.is_none() || *volume == event.volume)
            })
        };
        let mut stored = Stored::default();
        // An alloc's events may be about claims on any volume; those are filtered out here.
        for (alloc, _) in wanted.iter().filter(|(_, volume)| volume.is_none()) {
            let of_alloc = ListEvents { allocs: vec![alloc.clone()], ..ListEvents::default() };
            stored.add(self.read(&of_alloc, false).await?);
        }
        let volumes: BTreeSet<&VolumeId> =
            wanted.iter().filter_map(|(_, volume)| volume.as_ref()).collect();
        if !volumes.is_empty() {
            let allocs: BTreeSet<&AllocId> = wanted.iter().map(|(alloc, _)| alloc).collect();
            // A request may name this many allocs at most.
            let requested = allocs.into_iter().take(CLAIMS_MAX).cloned();
            let of_allocs = ListEvents {
                kinds: vec![EventKind::Alloc],
                allocs: requested.collect(),
                ..ListEvents::default()
            };
            let of_volumes = ListEvents {
                kinds: OF_VOLUME.to_vec(),
                volumes: volumes.into_iter().take(CLAIMS_MAX).cloned().collect(),
                ..of_allocs.clone()
            };
            stored.add(self.read(&of_volumes, false).await?);
            stored.add(self.read(&of_allocs, false).await?);
        }
        stored.events.retain(is_wanted);
        Ok(stored)
    }

    /// The present claims, including those of a trace without events.
    async fn read_live_claims(
        &self,
        name: &str,
        is_trace: bool,
        wanted: &mut NamedClaims,
    ) -> Result<Vec<ClaimStatus>, Problem> {
        if is_trace && wanted.is_empty() {
            let mut live = self.claims(&ListClaims::default()).await?;
            live.retain(|claim| claim.trace.as_deref() == Some(name));
            wanted.extend(live.iter().map(claim_key));
            return Ok(live);
        }
        let volume = VolumeId::new(name).ok().filter(|_| !is_trace);
        let mut live = match volume {
            Some(_) => self.claims(&ListClaims { volume, ..ListClaims::default() }).await?,
            None => Vec::new(),
        };
        wanted.extend(live.iter().take(CLAIMS_MAX).map(claim_key));
        for (alloc, volume) in wanted.iter() {
            let status = ListClaims {
                alloc: Some(alloc.clone()),
                volume: volume.clone(),
                ..ListClaims::default()
            };
            for claim in self.claims(&status).await? {
                if !live.contains(&claim) {
                    live.push(claim);
                }
            }
        }
        Ok(live)
    }

    async fn read(&self, request: &ListEvents, with_fleet: bool) -> Result<Stored, Failure> {
        let mut history = History::new(self.session, with_fleet);
        let past = history.read_newest(request, EVENTS_MAX).await?;
        let events = past.events.into_iter().map(|entry| entry.event.event().clone());
        Ok(Stored { events: events.collect(), has_older: past.more, begins: past.begins })
    }

    /// The present claims, read once. Unreadable claims are named.
    async fn claims(&self, status: &ListClaims) -> Result<Vec<ClaimStatus>, Problem> {
        let deadline = Instant::now() + self.session.timeout.unwrap_or(CLAIMS_READ_MAX);
        let (session, namespace) = (self.session, &self.session.namespace);
        let claims = session.once::<verb::ClaimStatus>(namespace, status, deadline).await?;
        claims.unreadable.iter().for_each(print_note);
        Ok(claims.claims)
    }
}
