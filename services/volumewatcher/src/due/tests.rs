//! Which claims may be asked about, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_domain::access::{AccessMode, AttachmentMode, Capability, CapabilityFilter, Mode};
use berth_domain::volume::{
    Attempt, Begin, CallKind, CallOwner, Claims, Command, Context, HandleUse, Outcome, Policy,
    Route, Step, Take, VolumeSpec, Write, step,
};
use berth_domain::{AttemptId, WorkerId};

use super::*;

const WANTED: WorkFacts = WorkFacts { wanted: true, gone: false, early: false };
const ENDED: WorkFacts = WorkFacts { wanted: false, gone: false, early: false };

fn alloc(at: usize) -> AllocId {
    AllocId::new(format!("a{at}")).unwrap()
}

fn node(at: usize) -> NodeId {
    NodeId::new(format!("n{at}")).unwrap()
}

fn context(ms: u64) -> Context {
    Context {
        now: Timestamp::from_unix_ms(ms),
        attempt: AttemptId::new(format!("t{ms}")).unwrap(),
        jitter: 0,
        policy: Policy::default(),
        handle: HandleUse::default(),
        copies: Vec::new(),
        mounts: Vec::new(),
    }
}

/// A volume with claims of these allocs, each on its node, changed by the domain's own commands.
struct Site(Volume, u64);

impl Site {
    fn new(claims: &[(usize, usize)]) -> Self {
        let capability = Capability {
            access: AccessMode::MultiNodeMultiWriter,
            attachment: AttachmentMode::FileSystem,
        };
        let spec = serde_json::json!({"plugin": "p", "capabilities": [capability]});
        let spec: VolumeSpec = serde_json::from_value(spec).unwrap();
        let volume = Volume { spec: Some(spec), claims: Claims::default(), ..Volume::default() };
        let mut site = Self(volume, 1_000_000);
        for (at, node_index) in claims {
            let route = Route { controller: true, ..Route::default() };
            let worker = WorkerId::new("claim").unwrap();
            let take = Take {
                alloc: alloc(*at),
                node: node(*node_index),
                mode: Mode::Write,
                capability: CapabilityFilter::default(),
                wait: false,
                route: Ok(route),
                worker,
            };
            let call = site.apply(&Command::Take(take)).call;
            if let Some(attempt) = call {
                site.answer(*at, &attempt);
            }
        }
        site
    }

    fn apply(&mut self, command: &Command) -> Step {
        self.1 += 10;
        let stepped = step(&self.0, command, &context(self.1)).unwrap();
        match stepped.write.clone() {
            Some(Write::PutClaim(alloc, mut claim)) => {
                // The projection fills in the epoch in this way.
                claim.epoch = if claim.epoch == 0 { self.1 } else { claim.epoch };
                self.0.claims.insert(alloc, claim);
            }
            Some(Write::DeleteClaim(alloc)) => drop(self.0.claims.remove(&alloc)),
            other => assert_eq!(other, None),
        }
        stepped
    }

    fn answer(&mut self, at: usize, attempt: &Attempt) -> Step {
        self.outcome(at, attempt, Outcome::Done { publish_context: BTreeMap::new() })
    }

    fn outcome(&mut self, at: usize, attempt: &Attempt, outcome: Outcome) -> Step {
        let attempt = attempt.id.clone();
        self.apply(&Command::Answer {
            owner: CallOwner::Claim(alloc(at)),
            attempt,
            outcome,
            worker: None,
        })
    }

    fn begin(&mut self, at: usize) -> Attempt {
        self.try_begin(at).expect("the call may begin")
    }

    fn try_begin(&mut self, at: usize) -> Option<Attempt> {
        let begin = Command::Begin(Begin {
            owner: CallOwner::Claim(alloc(at)),
            worker: WorkerId::new("w").unwrap(),
            wanted: false,
            early: false,
            proven: None,
            executor: None,
        });
        step(&self.0, &begin, &context(self.1 + 10)).ok()?;
        self.apply(&begin).call
    }

    fn due(&self, at: usize, facts: WorkFacts) -> Due {
        let look = VolumeLook::new(&self.0, Timestamp::from_unix_ms(self.1 + 10)).unwrap();
        look.due(&CallOwner::Claim(alloc(at)), facts)
    }

    fn going(&self) -> BTreeSet<&str> {
        let look = VolumeLook::new(&self.0, Timestamp::from_unix_ms(self.1 + 10)).unwrap();
        look.may_go_on(|_, _| ENDED).into_iter().map(AllocId::as_str).collect()
    }
}

/// A recorded attempt of a publish.
fn attempt(deadline: Timestamp) -> Attempt {
    let (id, worker) = (AttemptId::new("publish").unwrap(), WorkerId::new("claim").unwrap());
    Attempt { id, call: CallKind::ControllerPublish, worker, deadline, bound: None }
}

fn on_node(at: usize) -> Due {
    Due::Now(Executor::Node(PluginId::new("p").unwrap(), node(at)))
}

fn controller() -> Due {
    Due::Now(Executor::Controller(PluginId::new("p").unwrap()))
}

#[test]
fn a_release_waits_for_who_executes_its_next_call() {
    let mut site = Site::new(&[(1, 1)]);
    assert_eq!(site.due(1, WANTED), Due::Rest);
    assert_eq!(site.due(1, ENDED), on_node(1));
    let detach = site.begin(1);
    assert_eq!(site.due(1, ENDED), Due::At(detach.deadline), "its call is under way");
    site.answer(1, &detach);
    assert_eq!(site.due(1, ENDED), controller());
    let unpublish = site.begin(1);
    assert_eq!(unpublish.call, CallKind::ControllerUnpublish);
    assert_eq!(site.due(1, ENDED), Due::At(unpublish.deadline));
}

#[test]
fn a_failed_call_waits_for_its_time_unless_something_changed() {
    let mut site = Site::new(&[(1, 1)]);
    let detach = site.begin(1);
    site.outcome(1, &detach, Outcome::Failed("no".into()));
    let next_try = site.0.claims.get(&alloc(1)).unwrap().progress.next_try.unwrap();
    assert_eq!(site.due(1, ENDED), Due::At(next_try));
    assert_eq!(site.due(1, WorkFacts { early: true, ..ENDED }), on_node(1));
    site.1 = next_try.unix_ms();
    assert_eq!(site.due(1, ENDED), on_node(1), "its time has come");
}

/// Rule 14: an abandoned reservation is undone once its publish can no longer act.
#[test]
fn a_reservation_is_looked_at_when_its_publish_may_act_no_more() {
    let mut site = Site::new(&[(1, 1)]);
    let deadline = Timestamp::from_unix_ms(site.1 + 5_000);
    let mut claim = site.0.claims.remove(&alloc(1)).unwrap();
    (claim.state, claim.progress.attempt) = (State::Publishing, Some(attempt(deadline)));
    site.0.claims.insert(alloc(1), claim);
    let last = deadline.after(limits::CLOCK_MARGIN);
    assert_eq!(site.due(1, WANTED), Due::At(last));
    assert_eq!(site.due(1, ENDED), controller(), "that it is given up is to be seen");
    site.1 = last.unix_ms() - 10;
    assert_eq!(site.due(1, WANTED), Due::At(last));
    site.1 += 1;
    assert_eq!(site.due(1, WANTED), controller());
}

/// Rule 9: a claim beside another one on its node needs no call, so it waits for its own call only.
#[test]
fn a_claim_that_needs_no_call_waits_for_none_of_others() {
    let mut site = Site::new(&[(1, 1), (2, 1), (3, 2)]);
    let other_attempt = site.begin(3);
    let mut alone = site.0.claims.get(&alloc(1)).unwrap().clone();
    alone.state = State::NodeDetached;
    site.0.claims.insert(alloc(1), alone.clone());
    assert_eq!(site.due(1, ENDED), controller());
    alone.progress.attempt = Some(attempt(other_attempt.deadline));
    site.0.claims.insert(alloc(1), alone.clone());
    assert_eq!(site.due(1, ENDED), Due::At(other_attempt.deadline), "its own publish may act");
    alone.progress.attempt = None;
    site.0.claims.insert(alloc(1), alone);
    site.0.claims.remove(&alloc(2));
    assert_eq!(site.due(1, ENDED), Due::At(other_attempt.deadline), "now it needs a call");
}

#[test]
fn an_unanswered_call_is_not_passed_early() {
    let mut site = Site::new(&[(1, 1)]);
    let detach = site.begin(1);
    site.outcome(1, &detach, Outcome::Unanswered("silence".into()));
    assert_eq!(site.due(1, WorkFacts { early: true, ..ENDED }), Due::At(detach.deadline));
}

#[test]
fn what_is_on_a_node_that_is_gone_leaves_it_wanted_or_not() {
    let mut site = Site::new(&[(1, 1), (2, 2)]);
    let gone = WorkFacts { gone: true, ..WANTED };
    assert_eq!(site.due(1, gone), controller());
    // Nothing acts on the node any more, whatever the record says.
    site.begin(1);
    assert_eq!(site.due(1, gone), controller());
    assert_eq!(site.due(2, WANTED), Due::Rest);
}

#[test]
fn a_place_in_line_ends_with_its_time() {
    let mut site = Site::new(&[(1, 1)]);
    let until = Timestamp::from_unix_ms(site.1 + 500);
    let mut claim = site.0.claims.remove(&alloc(1)).unwrap();
    (claim.state, claim.controller, claim.place_until) = (State::Waiting, false, Some(until));
    site.0.claims.insert(alloc(1), claim);
    assert_eq!(site.due(1, WANTED), Due::At(until));
    assert_eq!(site.due(1, ENDED), controller());
    site.1 += 500 + u64::try_from(Duration::from_secs(1).as_millis()).unwrap();
    assert_eq!(site.due(1, WANTED), controller());
}

/// On a volume that allocs join and leave all the time.
#[test]
fn no_newcomer_is_released_before_an_older_claim() {
    let mut site = Site::new(&[(9, 1), (5, 1), (1, 1)]);
    for at in [1, 5, 9] {
        let release = Command::Release { alloc: alloc(at), epoch: None, reason: String::new() };
        site.apply(&release);
    }
    for (at, oldest) in [(9, "a9"), (5, "a5"), (1, "a1")] {
        assert_eq!(site.going(), BTreeSet::from([oldest]));
        let detach = site.begin(at);
        site.answer(at, &detach);
        // The claim needs no call while others are there, and a controller call if it is the last.
        while let Some(attempt) = site.0.claims.contains_key(&alloc(at)).then(|| site.begin(at)) {
            site.answer(at, &attempt);
        }
    }
}

/// Of thousands of claims that leave one volume, few are asked about at each step, and each of
/// these may begin its call.
#[test]
fn only_those_are_woken_that_can_go_on_side_by_side() {
    let claims: Vec<(usize, usize)> = (0..30).map(|at| (at, at % 3)).collect();
    let mut site = Site::new(&claims);
    for at in 0..30 {
        let release = Command::Release { alloc: alloc(at), epoch: None, reason: String::new() };
        site.apply(&release);
    }
    let mut steps = 0;
    while !site.0.claims.is_empty() {
        let woken: Vec<usize> =
            site.going().iter().map(|alloc| alloc[1..].parse().unwrap()).collect();
        assert!((1..=3).contains(&woken.len()), "{woken:?}");
        let mut begun = Vec::new();
        for at in woken {
            let before = site.0.claims.len();
            match site.try_begin(at) {
                Some(attempt) => begun.push((at, attempt)),
                None => assert!(site.0.claims.len() < before, "a{at} asked in vain"),
            }
        }
        for (at, attempt) in begun {
            site.answer(at, &attempt);
        }
        steps += 1;
        assert!(steps < 200);
    }
}
