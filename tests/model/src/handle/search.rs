//! The search: every reachable state, nearest first.

use std::collections::{HashSet, VecDeque};
use std::fmt;

use berth_domain::volume::OtherClaim;

use super::decide::{Decider, Decision, Heads, is_there};
use super::world::{
    Ask, Batch, External, Filter, Key, Message, Messages, NAMES, Name, Pending, Stage, World,
    Write, head,
};
use super::{Mutation, Scenario, Start};
use crate::fingerprint::{Quick, fingerprint};
use crate::safety::Breach;

/// The most steps in which the world must come to rest without new requests.
const REST_MAX: usize = 40;

/// The actions that may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// The replica that sees everything decides, and stores its decision.
    AtOnce(Ask),
    /// The replica whose mirror lags gets a request.
    Begin(Ask),
    /// That replica asks the leader, and decides on what it then sees.
    AskLeader,
    /// The batch of that replica reaches the server.
    Send,
    /// That replica is killed, or gives up.
    Drop,
    /// The mirror of that replica applies the next message.
    Advance,
    /// The marker of a handle's key is purged after the mirror has seen it.
    Purge(External),
    /// A claim service of an older version registers a volume.
    OldRegister(Name),
    /// That service deregisters a volume.
    OldDeregister(Name),
}

/// The result of a search.
#[derive(Debug, Default)]
pub struct Report {
    /// The number of states. States that behave alike count once.
    pub states: usize,
    /// Whether these are all states; otherwise the search stopped at its limit or at a breach.
    pub complete: bool,
    /// The breach, and the actions that led to it.
    pub found: Option<(Breach, String)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = if self.complete { "all" } else { "not all" };
        write!(f, "{all} {} states", self.states)
    }
}

/// Searches at most `states_max` states. From each state, everything must come to rest. If a rule
/// is taken away, only the damage is looked for.
pub fn search(scenario: Scenario, states_max: usize) -> Report {
    let mut report = Report::default();
    let mut search = Search { scenario, decider: Decider::new(scenario), rests: HashSet::new() };
    let mut seen: HashSet<u64, Quick> = HashSet::default();
    let mut origins: Vec<(Option<usize>, Action)> = Vec::new();
    let initial = search.initial();
    seen.insert(fingerprint(&initial));
    let mut ahead = VecDeque::from([(initial, None)]);
    let story = |origins: &[(Option<usize>, Action)], mut at: Option<usize>, last: String| {
        let mut lines = vec![last];
        while let Some((from, by)) = at.map(|at| origins[at]) {
            lines.push(format!("{by:?}"));
            at = from;
        }
        lines.reverse();
        lines.join("\n")
    };
    while let Some((world, at)) = ahead.pop_front() {
        if report.states == states_max {
            return report;
        }
        report.states += 1;
        if scenario.mutation.is_none()
            && let Err(breach) = search.comes_to_rest(&world)
        {
            let story = story(&origins, at, breach.to_string());
            report.found = Some((breach, story));
            return report;
        }
        for action in search.actions(&world) {
            match search.next(&world, action) {
                Ok(after) => {
                    if seen.insert(fingerprint(&after)) {
                        ahead.push_back((after, Some(origins.len())));
                        origins.push((at, action));
                    }
                }
                Err(breach) => {
                    let story = story(&origins, at, format!("{action:?}: {breach}"));
                    report.found = Some((breach, story));
                    return report;
                }
            }
        }
    }
    report.complete = true;
    report
}

struct Search {
    scenario: Scenario,
    decider: Decider,
    /// The states that are known to come to rest.
    rests: HashSet<Messages>,
}

impl Search {
    fn initial(&mut self) -> World {
        let mut world = World::default();
        if self.scenario.start == Start::Twice {
            let values = &mut self.decider.values;
            let spec = values.spec(External::Shared);
            let (spec, claim) = (values.number_spec(&spec), values.number_claim(&values.taken()));
            let keys = NAMES.map(|name| [(Key::Spec(name), spec), (Key::Claim(name), claim)]);
            let messages = (1..).zip(keys.into_iter().flatten());
            world.stored.extend(
                messages.map(|(revision, (key, value))| {
                    (key, Message { revision, value: Some(value) })
                }),
            );
            world.mirror.clone_from(&world.stored);
        }
        world
    }

    fn actions(&mut self, world: &World) -> Vec<Action> {
        let mut actions = Vec::new();
        if world.ahead.len() < self.scenario.lag_max {
            let asks = self.decider.asks(&world.stored);
            actions.extend(asks.into_iter().map(Action::AtOnce));
            if self.scenario.older_service {
                actions.extend(NAMES.map(Action::OldRegister));
                actions.extend(NAMES.map(Action::OldDeregister));
            }
        }
        match &world.pending {
            None => {
                // The answer of a call goes to the replica that made the call, which may be either.
                let asks = self.decider.asks(&world.mirror).into_iter();
                // If no other name holds a claim, it makes no difference which replica ends one.
                let is_release = |ask: &Ask| matches!(ask, Ask::Begin(_) | Ask::Answer(_));
                let asks =
                    asks.filter(|ask| self.scenario.start == Start::Twice || !is_release(ask));
                actions.extend(asks.map(Action::Begin));
            }
            Some(Pending { stage: Stage::Asks { .. }, .. }) => {
                actions.extend([Action::AskLeader, Action::Drop]);
            }
            Some(Pending { stage: Stage::Sends(_), .. }) => {
                if world.ahead.len() <= self.scenario.lag_max {
                    actions.push(Action::Send);
                }
                actions.push(Action::Drop);
            }
        }
        if !world.ahead.is_empty() {
            actions.push(Action::Advance);
        }
        actions.extend([External::Shared, External::Own].map(Action::Purge));
        actions
    }

    fn next(&mut self, before: &World, action: Action) -> Result<World, Breach> {
        let mut world = before.clone();
        match action {
            Action::AtOnce(ask) => self.at_once(&mut world, ask)?,
            Action::Begin(ask) => {
                let twice = self.is_twice(&world.stored, ask);
                self.decide(&mut world, ask, twice, &Heads::default())?;
            }
            Action::AskLeader => self.ask_leader(&mut world)?,
            Action::Send => self.send(&mut world)?,
            Action::Drop => world.pending = None,
            Action::Advance => world.advance(),
            Action::Purge(external) => {
                let key = Key::Handle(external);
                let is_seen = world.ahead.iter().all(|(other, _)| *other != key);
                if is_seen && !is_there(&world.stored, key) {
                    world.stored.remove(&key);
                }
            }
            Action::OldRegister(name) => {
                if !is_there(&world.stored, Key::Spec(name)) {
                    let spec = self.decider.values.spec(External::Shared);
                    let spec = self.decider.values.number_spec(&spec);
                    store_unguarded(&mut world, Key::Spec(name), Some(spec));
                }
            }
            Action::OldDeregister(name) => {
                let is_claimed = is_there(&world.stored, Key::Claim(name));
                if is_there(&world.stored, Key::Spec(name)) && !is_claimed {
                    store_unguarded(&mut world, Key::Spec(name), None);
                }
            }
        }
        if let Some(Pending { ask, twice: true, .. }) = world.pending {
            let twice = self.is_twice(&world.stored, ask);
            world.pending.iter_mut().for_each(|pending| pending.twice = twice);
        }
        world.normalise();
        Ok(world)
    }

    /// The decision is made on the newest records, and stored before anything else happens.
    fn at_once(&mut self, world: &mut World, ask: Ask) -> Result<(), Breach> {
        let twice = self.is_twice(&world.stored, ask);
        let known = NAMES.map(Filter::Volume).into_iter();
        let known = known.chain([External::Shared, External::Own].map(Filter::Handle));
        let known = known.map(|filter| (filter, head(&world.stored, filter))).collect();
        let heads = Heads { known, all: true };
        match self.decider.decide(&world.stored, ask, &heads) {
            Decision::Nothing | Decision::Asks { .. } => Ok(()),
            Decision::Again => self.check_again(&world.stored, ask),
            Decision::Sends(batch) => {
                let before = world.stored.clone();
                if world.store(&batch.writes).is_none() {
                    return Err(Breach::new(format!("a guard is off at the leader: {batch:?}")));
                }
                self.check(&before, &world.stored, ask, twice, &batch)
            }
        }
    }

    fn decide(
        &mut self,
        world: &mut World,
        ask: Ask,
        twice: bool,
        heads: &Heads,
    ) -> Result<(), Breach> {
        let stage = match self.decider.decide(&world.mirror, ask, heads) {
            Decision::Nothing => None,
            Decision::Again => {
                self.check_again(&world.stored, ask)?;
                None
            }
            Decision::Asks { all, filters } => Some(Stage::Asks { all, filters }),
            Decision::Sends(batch) => Some(Stage::Sends(batch)),
        };
        world.pending = stage.map(|stage| Pending { ask, twice, stage });
        Ok(())
    }

    /// The leader's revision may be lower than the one that was seen. The records below it are then
    /// read again.
    fn ask_leader(&mut self, world: &mut World) -> Result<(), Breach> {
        let Some(Pending { ask, twice, stage: Stage::Asks { all, filters } }) =
            world.pending.take()
        else {
            return Ok(());
        };
        let mut heads = Heads { all, ..Heads::default() };
        for filter in filters {
            let head = head(&world.stored, filter);
            if head < super::world::head(&world.mirror, filter) {
                world.mirror.retain(|key, _| key.filter() != filter);
                let again = world.stored.iter().filter(|(key, _)| key.filter() == filter);
                world.mirror.extend(again.map(|(key, message)| (*key, *message)));
            } else {
                world.reach(filter);
            }
            heads.known.insert(filter, head);
        }
        if all {
            world.reach_all();
        }
        self.decide(world, ask, twice, &heads)
    }

    fn send(&mut self, world: &mut World) -> Result<(), Breach> {
        let Some(Pending { ask, twice, stage: Stage::Sends(batch) }) = world.pending.take() else {
            return Ok(());
        };
        let is_whole = !self.scenario.is(Mutation::NotAtomic);
        let now = if is_whole { batch.writes.len() } else { 1 };
        let before = world.stored.clone();
        let Some(stored) = world.store(&batch.writes[..now]) else {
            let takes =
                |write: &Write| matches!(write.key, Key::Handle(_)) && write.value.is_some();
            let all = batch.writes.iter().any(takes) || matches!(ask, Ask::Free(..));
            let own = Filter::Volume(ask.volume());
            let filters = batch.writes.iter().map(|write| write.key.filter()).chain([own]);
            let stage = Stage::Asks { all, filters: filters.collect() };
            world.pending = Some(Pending { ask, twice, stage });
            return Ok(());
        };
        // A replica applies its own commit at once, before messages that its mirror has not seen
        // yet.
        for (key, message) in stored {
            world.apply(key, message);
        }
        self.check(&before, &world.stored, ask, twice, &batch)?;
        if now < batch.writes.len() {
            let rest = Batch { writes: batch.writes[now..].to_vec(), detaches: false };
            world.pending = Some(Pending { ask, twice, stage: Stage::Sends(rest) });
        }
        Ok(())
    }

    /// Whether the other name is registered for the handle of the request.
    fn is_twice(&self, stored: &Messages, ask: Ask) -> bool {
        let registered = |name| self.decider.values.registered(stored, name);
        let external = match ask {
            Ask::Register(_, external) => Some(external),
            _ => registered(ask.volume()),
        };
        external.is_some() && external == registered(ask.volume().other())
    }

    /// Checks each batch that is stored.
    fn check(
        &self,
        was: &Messages,
        is: &Messages,
        ask: Ask,
        twice: bool,
        batch: &Batch,
    ) -> Result<(), Breach> {
        let (name, values) = (ask.volume(), &self.decider.values);
        let other = name.other();
        let external = values.registered(is, name);
        let is_new = external.is_some() && external != values.registered(was, name);
        let both = external.is_some() && external == values.registered(is, other);
        if is_new && both && (twice || !self.scenario.older_service) {
            return Err(Breach::new("a second name was registered for one handle"));
        }
        let is_granted = values.claim(is, name).is_some() && values.claim(was, name).is_none();
        if is_granted && both && values.claim(is, other).is_some() {
            return Err(Breach::new("both names of one handle hold claims"));
        }
        if is_granted && both && twice && !self.scenario.older_service {
            return Err(Breach::new("a claim was granted while two names were registered"));
        }
        let stands = external.zip(values.claim(was, other)).is_some_and(|(external, claim)| {
            let (volume, handle) = (values.volume(other), values.handle(external));
            let beside = OtherClaim::from_claim(volume, &handle, values.alloc(other), claim);
            beside.is_some_and(|beside| beside.stands)
        });
        if batch.detaches && both && stands {
            return Err(Breach::new("detached under the claim of the other name"));
        }
        self.check_keys(was, is)
    }

    /// A key that names a volume stays while the volume is registered with it. Where no older
    /// version runs, each volume has its key.
    fn check_keys(&self, was: &Messages, is: &Messages) -> Result<(), Breach> {
        let values = &self.decider.values;
        for name in NAMES {
            let Some(external) = values.registered(is, name) else { continue };
            let owns = |messages| values.owner(messages, external) == Some(name);
            if values.registered(was, name) == Some(external) && owns(was) && !owns(is) {
                return Err(Breach::new("a volume has lost the key of its handle"));
            }
            // Where a mutation leaves the key out, only the damage that follows counts.
            let is_broken =
                self.scenario.is(Mutation::NoKey) || self.scenario.is(Mutation::NotAtomic);
            let is_clean = !self.scenario.older_service && self.scenario.start == Start::Empty;
            if is_clean && !is_broken && !owns(is) {
                return Err(Breach::new("a volume is registered without the key of its handle"));
            }
        }
        Ok(())
    }

    fn check_again(&self, stored: &Messages, ask: Ask) -> Result<(), Breach> {
        let has_claim = self.decider.values.claim(stored, ask.volume().other()).is_some();
        if has_claim && self.is_twice(stored, ask) {
            return Err(Breach::new("a claim was granted once more beside that of the other name"));
        }
        Ok(())
    }

    /// Without new requests, all claims are released, a second name is deregistered, keys are
    /// repaired, and the volume can be granted again.
    fn comes_to_rest(&mut self, world: &World) -> Result<(), Breach> {
        let mut world = World { stored: world.stored.clone(), ..World::default() };
        world.normalise();
        if !self.rests.insert(world.stored.clone()) {
            return Ok(());
        }
        for _ in 0..REST_MAX {
            let asks = self.decider.asks(&world.stored);
            let is_chore = |ask: &Ask| {
                matches!(ask, Ask::Begin(_) | Ask::Answer(_) | Ask::Reserve(_) | Ask::Free(..))
            };
            let chores = asks.into_iter().filter(is_chore);
            let twice = self.is_twice(&world.stored, Ask::Take(Name::A));
            let chores = chores.chain(twice.then_some(Ask::Deregister(Name::B)));
            let mut is_changed = false;
            for ask in chores {
                let before = world.stored.clone();
                self.at_once(&mut world, ask)?;
                world.ahead.clear();
                is_changed |= world.stored != before;
            }
            if !is_changed {
                return self.is_at_rest(&mut world);
            }
            world.normalise();
        }
        Err(Breach::new("chores that do not come to an end"))
    }

    fn is_at_rest(&mut self, world: &mut World) -> Result<(), Breach> {
        if NAMES.iter().any(|name| is_there(&world.stored, Key::Claim(*name))) {
            return Err(Breach::new("a claim is never freed"));
        }
        for name in
            NAMES.into_iter().filter(|name| is_there(&world.stored.clone(), Key::Spec(*name)))
        {
            let mut world = world.clone();
            self.at_once(&mut world, Ask::Take(name))?;
            if !is_there(&world.stored, Key::Claim(name)) {
                return Err(Breach::new("a volume that is registered once is not granted"));
            }
        }
        Ok(())
    }
}

fn store_unguarded(world: &mut World, key: Key, value: Option<u16>) {
    let stored = world.store(&[Write { key, value, guard: None }]);
    debug_assert!(stored.is_some());
}
