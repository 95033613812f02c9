//! The world: two volumes, and the progress of each alloc's caller.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use berth_domain::access::{AccessMode, AttachmentMode, Capability, CapabilityFilter, Mode};
use berth_domain::retry::Schedule;
use berth_domain::volume::deadlock::{Deadlock, InLine, take_order};
use berth_domain::volume::{
    Begin, CallOwner, Command, Context, HandleUse, Outcome, Policy, Route, State, Take, Volume,
    VolumeSpec, Write as Stored, invariant, step,
};
use berth_domain::{AllocId, AttemptId, NodeId, Timestamp, VolumeId, WorkerId};

use super::{Asking, Mutation, Search};

/// A breach, and the steps that led to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// What went wrong.
    pub what: String,
    /// The steps that led there.
    pub story: Vec<String>,
}

/// The progress of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// It asks for the volume at this position of its order.
    Taking(usize),
    /// It has both volumes.
    Runs,
    /// A volume was refused. It releases the volumes that it took, from this position backwards.
    Undoing(usize),
    /// A volume was refused, and everything that must be released is released.
    Refused,
    /// The alloc has ended.
    Ended,
}

#[derive(Debug, Clone)]
struct Caller {
    progress: Progress,
    /// Whether it has seen that it must give up to break a circle. It acts on that later: other
    /// callers may see the same meanwhile.
    sees_circle: bool,
    /// Whether it was refused because of a circle.
    gave_up: bool,
}

#[derive(Debug, Clone)]
pub(super) struct World {
    search: Search,
    volumes: [Volume; 2],
    callers: [Caller; 2],
    revision: u64,
    story: Vec<String>,
}

#[expect(clippy::expect_used, reason = "the ids are written here")]
mod names {
    use super::{AllocId, VolumeId};

    pub(super) fn volume(at: usize) -> VolumeId {
        VolumeId::new(["x", "y"][at]).expect("an id")
    }

    pub(super) fn alloc(at: usize) -> AllocId {
        AllocId::new(["a", "b"][at]).expect("an id")
    }
}
use names::{alloc, volume};

impl World {
    pub(super) fn new(search: Search) -> Self {
        let caller = Caller { progress: Progress::Taking(0), sees_circle: false, gave_up: false };
        let volumes = [0, 1].map(|_| Volume { spec: Some(spec()), ..Volume::default() });
        let callers = [caller.clone(), caller];
        let mut first = Self { search, volumes, callers, revision: 0, story: Vec::new() };
        if search.has_one {
            for who in 0..2 {
                first.take(who, who);
            }
        }
        first
    }

    /// The volumes in the order in which the alloc takes them.
    fn order(&self, who: usize) -> [usize; 2] {
        let own = if who == 0 { [0, 1] } else { [1, 0] };
        let together = self.search.asking == Asking::Together;
        if !together || self.search.mutation == Some(Mutation::OwnOrder) {
            return own;
        }
        let sorted = take_order(own.map(volume).to_vec());
        if sorted[0] == volume(0) { [0, 1] } else { [1, 0] }
    }

    /// A text that is equal for equivalent worlds.
    pub(super) fn print(&self) -> String {
        let mut ranks: Vec<u64> = Vec::new();
        for volume in &self.volumes {
            ranks.extend(volume.claims.iter().map(|(_, claim)| claim.epoch));
        }
        ranks.sort_unstable();
        let mut print = format!("{:?}", self.callers);
        for volume in &self.volumes {
            for (alloc, claim) in &volume.claims {
                let rank = ranks.iter().position(|epoch| *epoch == claim.epoch);
                let calls = claim.progress.attempt.is_some();
                // Writing to a string does not fail.
                let _ = write!(print, "|{alloc}{:?}{rank:?}{calls}", claim.state);
            }
            print.push('/');
        }
        print
    }

    pub(super) fn is_at_rest(&self) -> bool {
        let ended = self.callers.iter().all(|caller| caller.progress == Progress::Ended);
        ended && self.volumes.iter().all(|volume| volume.claims.iter().next().is_none())
    }

    pub(super) fn breach(&self, what: &str) -> Breach {
        Breach { what: what.to_owned(), story: self.story.clone() }
    }

    /// All worlds that may follow this one.
    pub(super) fn successors(&self) -> Result<Vec<Self>, Breach> {
        let mut all = Vec::new();
        for who in 0..2 {
            all.extend(self.caller_acts(who));
            for at in 0..2 {
                all.extend(self.worker_acts(who, at));
            }
        }
        all.iter().try_for_each(Self::check)?;
        Ok(all)
    }

    fn check(&self) -> Result<(), Breach> {
        for at in &self.volumes {
            if let Some(what) = invariant::broken(at) {
                return Err(self.breach(&what));
            }
            if at.holders().count() > 1 {
                return Err(self.breach("an exclusive volume has two claims"));
            }
        }
        if self.callers.iter().all(|caller| caller.gave_up) {
            return Err(self.breach("each alloc in the circle was refused"));
        }
        for who in 0..2 {
            let kept = usize::from(self.search.has_one);
            let together = self.search.asking == Asking::Together;
            let taken = (0..2).filter(|at| self.is_taken(who, *at)).count();
            if self.callers[who].progress == Progress::Refused && together && taken != kept {
                let what = format!("a refused request left {taken} claims and not {kept}");
                return Err(self.breach(&what));
            }
        }
        Ok(())
    }

    fn is_taken(&self, who: usize, at: usize) -> bool {
        let claim = self.volumes[at].claims.get(&alloc(who));
        claim.is_some_and(|claim| claim.state == State::Taken)
    }

    /// The next step of the alloc's caller, if it has one.
    fn caller_acts(&self, who: usize) -> Option<Self> {
        let mut next = self.clone();
        match self.callers[who].progress {
            Progress::Taking(place) => next.ask(who, place),
            Progress::Undoing(place) => next.undo(who, place),
            Progress::Runs | Progress::Refused => {
                next.tell(who, "ends");
                next.callers[who].progress = Progress::Ended;
            }
            Progress::Ended => return None,
        }
        Some(next)
    }

    /// Asks for the volume at this position.
    fn ask(&mut self, who: usize, place: usize) {
        let at = self.order(who)[place];
        let (taken, was_in_line) = (self.take(who, at), self.is_in_line(who, at));
        if taken {
            self.tell(who, &format!("has {}", volume(at)));
            let last = place == 1;
            self.callers[who].progress =
                if last { Progress::Runs } else { Progress::Taking(place + 1) };
            return;
        }
        let waits = self.search.wait && was_in_line;
        if waits && !self.callers[who].sees_circle {
            self.callers[who].sees_circle = self.is_to_give_up(who);
            self.tell(who, &format!("is in line for {}", volume(at)));
            return;
        }
        if waits {
            self.callers[who].gave_up = true;
            let (alloc, reason) = (alloc(who), "deadlock".to_owned());
            self.apply(at, &Command::Release { alloc, epoch: None, reason });
        }
        self.tell(who, &format!("is refused {}", volume(at)));
        self.callers[who].progress = match self.search.asking {
            Asking::Together if self.search.mutation != Some(Mutation::NoUndo) => {
                Progress::Undoing(place)
            }
            _ => Progress::Refused,
        };
    }

    /// Releases the volume before this position, unless the alloc had it before the request.
    fn undo(&mut self, who: usize, place: usize) {
        let Some(before) = place.checked_sub(1) else {
            self.callers[who].progress = Progress::Refused;
            return;
        };
        let at = self.order(who)[before];
        let had = at == who && self.search.has_one;
        if !had || self.search.mutation == Some(Mutation::UndoAll) {
            let (alloc, reason) = (alloc(who), "undone".to_owned());
            self.apply(at, &Command::Release { alloc, epoch: None, reason });
            self.tell(who, &format!("gives {} up", volume(at)));
        }
        self.callers[who].progress = Progress::Undoing(before);
    }

    fn is_in_line(&self, who: usize, at: usize) -> bool {
        self.volumes[at].in_line(&volume(at), &alloc(who)).is_some()
    }

    fn is_to_give_up(&self, who: usize) -> bool {
        let lines = |alloc: &AllocId| {
            let ended = (0..2).any(|one| {
                names::alloc(one) == *alloc && self.callers[one].progress == Progress::Ended
            });
            if ended {
                return Vec::new();
            }
            let line = |at: usize| self.volumes[at].in_line(&volume(at), alloc);
            (0..2).filter_map(line).collect::<Vec<InLine>>()
        };
        match self.search.mutation {
            Some(Mutation::OwnOrder | Mutation::NoSearch) => false,
            // The mutation treats all tickets as equal.
            Some(Mutation::AllGiveUp) => {
                let same = |alloc: &AllocId| {
                    let mut lines = lines(alloc);
                    for line in &mut lines {
                        line.ticket = 0;
                    }
                    lines
                };
                Deadlock::find(&alloc(who), same).is_some()
            }
            _ => Deadlock::find(&alloc(who), lines).is_some(),
        }
    }

    /// The worker continues the release of a claim.
    fn worker_acts(&self, who: usize, at: usize) -> Option<Self> {
        let claim = self.volumes[at].claims.get(&alloc(who))?;
        let wanted = self.callers[who].progress != Progress::Ended;
        let command = match &claim.progress.attempt {
            Some(attempt) => Command::Answer {
                owner: CallOwner::Claim(alloc(who)),
                attempt: attempt.id.clone(),
                outcome: Outcome::Done { publish_context: BTreeMap::new() },
                worker: None,
            },
            None => Command::Begin(Begin {
                owner: CallOwner::Claim(alloc(who)),
                worker: worker(),
                wanted,
                early: false,
                proven: None,
                executor: None,
            }),
        };
        // A caller keeps its place in line by asking again, and both callers do that.
        let leaves = claim.state != State::Waiting || !wanted;
        let mut next = self.clone();
        (leaves && next.apply(at, &command)).then(|| {
            next.tell(who, &format!("is released by the worker from {}", volume(at)));
            next
        })
    }

    fn take(&mut self, who: usize, at: usize) -> bool {
        let take = Take {
            alloc: alloc(who),
            node: node(who),
            mode: Mode::Write,
            capability: CapabilityFilter::default(),
            wait: self.search.wait,
            route: Ok(Route::default()),
            worker: worker(),
        };
        self.apply(at, &Command::Take(take));
        self.is_taken(who, at)
    }

    /// Decides a command and stores its write; returns whether there was one.
    fn apply(&mut self, at: usize, command: &Command) -> bool {
        let Ok(step) = step(&self.volumes[at], command, &self.context()) else { return false };
        self.revision += 1;
        let claims = &mut self.volumes[at].claims;
        match step.write {
            Some(Stored::PutClaim(alloc, mut claim)) => {
                claim.epoch = if claim.epoch == 0 { self.revision } else { claim.epoch };
                claims.insert(alloc, claim);
            }
            Some(Stored::DeleteClaim(alloc)) => drop(claims.remove(&alloc)),
            Some(
                Stored::PutSpec(_)
                | Stored::DeleteSpec
                | Stored::PutSnapshot(..)
                | Stored::DeleteSnapshot(_),
            )
            | None => return false,
        }
        true
    }

    fn tell(&mut self, who: usize, what: &str) {
        self.story.push(format!("{} {what}", alloc(who)));
    }

    fn context(&self) -> Context {
        Context {
            now: Timestamp::from_unix_ms(1_000_000),
            attempt: attempt(self.revision),
            jitter: 0,
            policy: Policy {
                call_timeout: Duration::from_secs(60),
                clock_margin: Duration::ZERO,
                abandoned_after: Duration::from_secs(600),
                place_kept: Duration::from_secs(20),
                retry: Schedule { first: Duration::ZERO, max: Duration::ZERO },
            },
            handle: HandleUse::default(),
            copies: Vec::new(),
            mounts: Vec::new(),
        }
    }
}

#[expect(clippy::expect_used, reason = "the ids are written here")]
fn node(who: usize) -> NodeId {
    NodeId::new(["n1", "n2"][who]).expect("an id")
}

#[expect(clippy::expect_used, reason = "the ids are written here")]
fn worker() -> WorkerId {
    WorkerId::new("w").expect("an id")
}

#[expect(clippy::expect_used, reason = "the ids are written here")]
fn attempt(revision: u64) -> AttemptId {
    AttemptId::new(format!("t{revision}")).expect("an id")
}

#[expect(clippy::expect_used, reason = "the ids are written here")]
fn spec() -> VolumeSpec {
    let access = AccessMode::SingleNodeWriter;
    VolumeSpec {
        capabilities: vec![Capability { access, attachment: AttachmentMode::FileSystem }].into(),
        create_index: 1,
        ..VolumeSpec::empty(&"plugin".parse().expect("an id"))
    }
}
