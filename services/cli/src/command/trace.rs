//! `berth trace`: what happened to claims, and which requests about them were refused.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_bus::event::{EventLog, LAST_MAX, Query};
use berth_contract::code::Code;
use berth_contract::event::Event;
use berth_contract::message::claim::{ClaimStatus, Claims, Status};
use berth_contract::problem::Problem;
use berth_contract::stream::EVENTS;
use berth_contract::subject::{EventsOf, Namespaced, event_filter, refusal_filter};
use berth_domain::{AllocId, VolumeId};
use berth_service::clock;
use tokio::time::Instant;

use super::events::{READING, events_of};
use crate::args::Trace;
use crate::failure::Failure;
use crate::output::say;
use crate::session::Session;
use crate::show::Zone;
use crate::show::trace::{Drawing, Known, Which, draw, tree};

/// A trace is one workload's: a handful of claims. Of more only these are drawn.
const CLAIMS_MAX: usize = 64;
/// How long the claim service may take to say how one stands, unless said otherwise.
const ASKING: Duration = Duration::from_secs(5);
/// Kinds of events that name a volume.
const OF_VOLUME: [&str; 3] = ["claim", "call", "volume"];

/// The claims that are meant.
type Wanted = BTreeSet<WantedClaims>;

/// The claims of an alloc, on a volume, or both: what is not given may be any.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct WantedClaims {
    alloc: Option<AllocId>,
    volume: Option<VolumeId>,
}

impl WantedClaims {
    /// What each event about them names.
    fn id(&self) -> &str {
        let volume = || self.volume.as_ref().map(VolumeId::as_str);
        self.alloc.as_ref().map(AllocId::as_str).or_else(volume).unwrap_or_default()
    }

    /// Whether an event is about them, or about the alloc alone.
    fn cover(&self, event: &Event) -> bool {
        let Self { alloc, volume } = self;
        let of_volume = volume.is_none() || *volume == event.volume;
        match alloc {
            None => of_volume,
            Some(_) => *alloc == event.alloc && (of_volume || event.volume.is_none()),
        }
    }
}

/// Prints the tree.
pub async fn trace(args: &Trace, session: &Session) -> Result<(), Failure> {
    let reader = Reader { session, log: session.bus.event_log(&EVENTS) };
    let asked = args.claim.as_str();
    let is_trace = is_trace_id(asked);
    let traced = if is_trace { reader.of_trace(asked).await? } else { Vec::new() };
    let mut wanted = if is_trace { claims_of(&traced) } else { named(asked) };
    let live = reader.live(asked, is_trace, &mut wanted).await;
    // Events tell their story also when nobody answers for the records.
    let live = live.unwrap_or_else(|problem| {
        say(format_args!("how the claim stands now is not known: {problem}"));
        Vec::new()
    });
    let mut stored = reader.of_claims(&wanted).await?;
    // A refusal of the trace may be about no claim. What is read twice is shown once.
    stored.events.extend(traced);
    let which = match (args.all, is_trace) {
        (true, _) => Which::All,
        (false, true) => Which::Trace(asked),
        (false, false) => Which::Newest,
    };
    let (begins, now) = (stored.begins, clock::now());
    let known = Known { events: &stored.events, claims: &live, begins, now };
    let tree = tree(known, which);
    if tree.claims.is_empty() && tree.refusals.is_empty() {
        return Err(unknown(args, session).into());
    }
    if stored.more {
        say(format_args!("only the newest {LAST_MAX} events were looked at"));
    }
    let drawing = Drawing { zone: Zone::here(), all: args.all };
    session.output.reply(&tree, |tree| draw(tree, &drawing));
    Ok(())
}

fn is_trace_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The claims that the words may mean: of an alloc, on a volume, or of one on the other. Ids may
/// have slashes too, so each may be the one that parts volume and alloc.
fn named(text: &str) -> Wanted {
    let parted = text.match_indices('/').filter_map(|(at, _)| {
        let volume = VolumeId::new(&text[..at]).ok()?;
        let alloc = AllocId::new(&text[at + 1..]).ok()?;
        Some(WantedClaims { alloc: Some(alloc), volume: Some(volume) })
    });
    let alloc = AllocId::new(text).ok().map(Some);
    let volume = VolumeId::new(text).ok().map(Some);
    let alone = [
        alloc.map(|alloc| WantedClaims { alloc, volume: None }),
        volume.map(|volume| WantedClaims { alloc: None, volume }),
    ];
    parted.chain(alone.into_iter().flatten()).take(CLAIMS_MAX).collect()
}

/// The claims that events are about; their allocs, when they are about none.
fn claims_of(events: &[Event]) -> Wanted {
    let named = |event: &Event| {
        let (alloc, volume) = (event.alloc.clone(), event.volume.clone());
        alloc.is_some().then_some(WantedClaims { alloc, volume })
    };
    let found: Wanted = events.iter().filter_map(named).collect();
    let whole = found.iter().any(|claims| claims.volume.is_some());
    let found = found.into_iter().filter(|claims| !whole || claims.volume.is_some());
    found.take(CLAIMS_MAX).collect()
}

fn unknown(args: &Trace, session: &Session) -> Problem {
    let message = format!(
        "neither a claim nor an event is known of {:?} in namespace {}",
        args.claim, session.namespace
    );
    Problem::new(Code::NoSuchClaim, message).at("trace").next(
        "list what lives with `berth claim status`, and what happened with `berth events --kind \
         claim --last 1000`; events are kept for a week at most; is it another --namespace?",
    )
}

struct Reader<'a> {
    session: &'a Session,
    log: EventLog,
}

/// What was read of the claims.
#[derive(Default)]
struct Stored {
    events: Vec<Event>,
    more: bool,
    begins: Option<berth_domain::Timestamp>,
}

impl Reader<'_> {
    /// The events of a trace; of an alloc, where the alloc's id looks like a trace's.
    async fn of_trace(&self, trace: &str) -> Result<Vec<Event>, Failure> {
        let is_of = |event: &Event| {
            let names = event.alloc.as_ref().map(AllocId::as_str);
            let traces = [&event.trace, &event.claim_trace].map(Option::as_deref);
            traces.contains(&Some(trace)) || names == Some(trace)
        };
        let of = events_of(&self.session.namespace);
        let mut filters = vec![event_filter(of, None, None)];
        if of != EventsOf::All {
            // A request that cannot be read names no namespace.
            filters.push(refusal_filter(EventsOf::None, None, None));
        }
        Ok(self.read(&filters, trace, is_of).await?.events)
    }

    /// All that was told of some claims and their allocs.
    async fn of_claims(&self, wanted: &Wanted) -> Result<Stored, Failure> {
        let of = events_of(&self.session.namespace);
        if wanted.is_empty() {
            return Ok(Stored::default());
        }
        let is_wanted = |event: &Event| wanted.iter().any(|claims| claims.cover(event));
        // An alloc alone may have claims on any volume, which are filtered out here.
        if wanted.iter().any(|claims| claims.volume.is_none()) {
            let all = [event_filter(of, None, None)];
            let ids: BTreeSet<&str> = wanted.iter().map(WantedClaims::id).collect();
            let hint = ids.first().filter(|_| ids.len() == 1).copied().unwrap_or_default();
            return self.read(&all, hint, is_wanted).await;
        }
        let volumes: BTreeSet<&VolumeId> =
            wanted.iter().filter_map(|claims| claims.volume.as_ref()).collect();
        let allocs: BTreeSet<&AllocId> =
            wanted.iter().filter_map(|claims| claims.alloc.as_ref()).collect();
        let of_refusals = volumes.iter().map(|volume| refusal_filter(of, Some(volume), None));
        let of_volumes = volumes.iter().flat_map(|volume| {
            OF_VOLUME.map(|kind| event_filter(of, Some(kind), Some(volume.as_str())))
        });
        let of_allocs =
            allocs.iter().map(|alloc| event_filter(of, Some("alloc"), Some(alloc.as_str())));
        let filters: Vec<String> = of_volumes.chain(of_allocs).chain(of_refusals).collect();
        self.read(&filters, "", is_wanted).await
    }

    /// The claims that live, also one of a trace of which no event tells.
    async fn live(
        &self,
        asked: &str,
        is_trace: bool,
        wanted: &mut Wanted,
    ) -> Result<Vec<ClaimStatus>, Problem> {
        if is_trace && wanted.is_empty() {
            let mut live = self.claims(&Status::default()).await?;
            live.retain(|claim| claim.trace.as_deref() == Some(asked));
            let named = |claim: &ClaimStatus| WantedClaims {
                alloc: Some(claim.alloc.clone()),
                volume: Some(claim.volume.clone()),
            };
            wanted.extend(live.iter().map(named));
            return Ok(live);
        }
        let mut live = Vec::new();
        for WantedClaims { alloc, volume } in wanted.iter() {
            let (alloc, volume) = (alloc.clone(), volume.clone());
            let status = Status { alloc, volume, ..Status::default() };
            for claim in self.claims(&status).await? {
                if !live.contains(&claim) {
                    live.push(claim);
                }
            }
        }
        Ok(live)
    }

    /// Events that hold a text and that `keep` wants.
    async fn read(
        &self,
        filters: &[String],
        text: &str,
        keep: impl Fn(&Event) -> bool,
    ) -> Result<Stored, Failure> {
        let within = self.session.timeout.unwrap_or(READING);
        let query = Query { filters, last: LAST_MAX, since: None, within };
        // As it stands in JSON: most events need not be read to see that they are others'.
        let text = serde_json::to_string(text).unwrap_or_default();
        let text = text.trim_matches('"').as_bytes();
        let holds = |body: &[u8]| text.is_empty() || body.windows(text.len()).any(|at| at == text);
        let read = |body: &[u8]| {
            let event: Event = serde_json::from_slice(body).ok()?;
            Some(event).filter(&keep)
        };
        let stored =
            self.log.read(query, |event| holds(&event.body) && read(&event.body).is_some()).await;
        let stored = stored.map_err(|error| error.into_problem("events"))?;
        let events = stored.events.iter().filter_map(|event| read(&event.body)).collect();
        Ok(Stored { events, more: stored.more, begins: stored.begins })
    }

    /// The claims that live, asked for once. Those that cannot be read are named.
    async fn claims(&self, status: &Status) -> Result<Vec<ClaimStatus>, Problem> {
        let question = self.session.about(Namespaced::ClaimStatus);
        let deadline = Instant::now() + self.session.timeout.unwrap_or(ASKING);
        let claims: Claims = self.session.once(&question, status, deadline).await?;
        claims.unreadable.iter().for_each(say);
        Ok(claims.claims)
    }
}
