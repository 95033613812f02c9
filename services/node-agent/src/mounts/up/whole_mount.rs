//! The mounts of whole allocs that are under way, and the requests that wait for them.
//!
//! **Owns** one [`WholeMount`] for each alloc whose volumes are claimed and mounted together. A
//! request that is repeated joins it. Its work goes on when a request's deadline has passed, and
//! what it has reached is kept for as long as a place in line: a request that is repeated with
//! deadlines shorter than the work comes to its end all the same.
//!
//! **Promises** that no request joins once the work is closed, so that nothing is given up under a
//! request that waits for it.
//!
//! **Never** claims, mounts or gives up anything: [`super::mount_all`] does.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::agent::{MountAll, MountedAll};
use berth_contract::problem::Problem;
use berth_domain::limits::WAIT_MAX;
use berth_domain::{AllocId, Namespace, PluginId, Timestamp, VolumeId, VolumeKey};
use berth_service::clock;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::mounts::claims::held_until;

/// Largest number of allocs whose volumes are being mounted, or wait for a repeated request.
const WORKS_MAX: usize = 1024;
/// Largest number of those for one sender.
const WORKS_PER_SENDER_MAX: usize = WORKS_MAX / 4;
/// Time before its deadline at which a request is answered that the work goes on. Shorter than that
/// of the claim service's requests, whose answers say more.
const ANSWER_BEFORE_DEADLINE: Duration = Duration::from_millis(100);

type AllocKey = (Namespace, AllocId);

/// What is under way, by alloc. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct WholeMounts(Arc<Mutex<HashMap<AllocKey, Arc<WholeMount>>>>);

/// The volumes of one alloc are being claimed and mounted.
#[derive(Debug)]
pub(super) struct WholeMount {
    pub(super) request: MountAll,
    sender: Option<String>,
    /// How long what was reached is kept after the last request's deadline.
    kept_for: Duration,
    state: watch::Sender<WorkState>,
    details: Mutex<WorkDetails>,
}

#[derive(Debug)]
struct WorkState {
    /// A request has come since the last answer.
    is_awaited: bool,
    /// The latest deadline of all requests.
    reach: Timestamp,
    /// Until when a caller counts as there, without another request.
    held: Timestamp,
    /// How many times the requests that waited were answered.
    answers: u64,
    last: Option<Result<MountedAll, Problem>>,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Working,
    /// The last try ended without success; what was reached is kept.
    Idle,
    /// No request may join it any more.
    Closed,
    /// Another request takes over what was reached.
    Replaced,
    /// It does nothing more.
    Gone,
}

#[derive(Debug, Default)]
struct WorkDetails {
    /// What is being claimed, or mounted by this plugin.
    at: Option<(VolumeKey, Option<PluginId>)>,
    /// The volumes whose mount another request was told of.
    acknowledged: BTreeSet<VolumeId>,
}

/// How a request goes on.
#[derive(Debug)]
pub(super) enum Joined {
    /// It begins the work.
    Begins(Arc<WholeMount>),
    /// The work is under way, or goes on for it. The number is that of the answers so far.
    Joins(Arc<WholeMount>, u64),
    /// It has to wait until this work is gone.
    Waits(Arc<WholeMount>),
}

impl WholeMounts {
    /// The allocs whose volumes are being claimed and mounted, or may be again.
    pub(super) fn list(&self) -> Vec<AllocKey> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// Joins the alloc's work, or begins it.
    pub(super) fn join(
        &self,
        request: &MountAll,
        sender: Option<&str>,
        deadline: Timestamp,
        kept_for: Duration,
    ) -> Result<Joined, Problem> {
        let mut works = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(work) = works.get(&key(request)) {
            let work = Arc::clone(work);
            if work.request != *request {
                work.replace();
                return Ok(Joined::Waits(work));
            }
            return Ok(match work.join(deadline) {
                Some(answers) => Joined::Joins(work, answers),
                None => Joined::Waits(work),
            });
        }
        let own = works.values().filter(|work| work.sender.as_deref() == sender).count();
        if works.len() >= WORKS_MAX || own >= WORKS_PER_SENDER_MAX {
            let all = works.len();
            let message =
                format!("the volumes of {all} allocs are being mounted, {own} for this sender");
            return Err(Problem::new(Code::Overloaded, message));
        }
        let state = WorkState {
            is_awaited: true,
            reach: bounded(deadline),
            held: held_until(request.wait, deadline),
            answers: 0,
            last: None,
            phase: Phase::Working,
        };
        let work = Arc::new(WholeMount {
            request: request.clone(),
            sender: sender.map(str::to_owned),
            kept_for,
            state: watch::Sender::new(state),
            details: Mutex::default(),
        });
        works.insert(key(request), Arc::clone(&work));
        Ok(Joined::Begins(work))
    }

    /// Another request was told that the alloc has the volume mounted.
    pub(super) fn acknowledge(&self, namespace: &Namespace, alloc: &AllocId, volume: &VolumeId) {
        let works = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(work) = works.get(&(namespace.clone(), alloc.clone())) {
            work.details().acknowledged.insert(volume.clone());
        }
    }

    /// The work is done: the next request begins another.
    pub(super) fn remove(&self, work: &WholeMount) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&key(&work.request));
        work.state.send_modify(|state| state.phase = Phase::Gone);
    }
}

impl WholeMount {
    fn join(&self, deadline: Timestamp) -> Option<u64> {
        let mut answers = None;
        self.state.send_if_modified(|state| {
            let is_open = matches!(state.phase, Phase::Working | Phase::Idle);
            if is_open {
                state.is_awaited = true;
                state.reach = state.reach.max(bounded(deadline));
                state.held = state.held.max(held_until(self.request.wait, deadline));
                answers = Some(state.answers);
            }
            is_open
        });
        answers
    }

    /// Ends work that waits for a repeated request: another request came instead.
    fn replace(&self) {
        self.state.send_if_modified(|state| {
            let is_idle = state.phase == Phase::Idle && !state.is_awaited;
            if is_idle {
                state.phase = Phase::Replaced;
            }
            is_idle
        });
    }

    /// Waits for the next answer after the first `answers`, until the request's deadline.
    pub(super) async fn answer_after(
        &self,
        answers: u64,
        deadline: Timestamp,
    ) -> Result<MountedAll, Problem> {
        let mut state = self.state.subscribe();
        let answered =
            state.wait_for(|state| state.answers > answers || state.phase == Phase::Gone);
        let last = match timeout(time_left(deadline), answered).await {
            Ok(Ok(state)) => state.last.clone(),
            // The sender is this work's own.
            Ok(Err(_)) => None,
            Err(_) => return Err(self.not_over_yet()),
        };
        last.unwrap_or_else(|| {
            Err(Problem::new(Code::Internal, "the alloc's volumes are not being mounted any more"))
        })
    }

    /// Waits until another request may begin, until the request's deadline.
    pub(super) async fn wait_gone(&self, deadline: Timestamp) -> Result<(), Problem> {
        let mut state = self.state.subscribe();
        let gone = state.wait_for(|state| state.phase == Phase::Gone);
        match timeout(time_left(deadline), gone).await {
            Ok(_) => Ok(()),
            Err(_) => Err(self.not_over_yet()),
        }
    }

    fn not_over_yet(&self) -> Problem {
        let alloc = &self.request.alloc;
        let kept = "what is done is kept while the request is repeated";
        match self.details().at.clone() {
            Some((volume, Some(plugin))) => {
                let message = format!("volume {volume} is being mounted for alloc {alloc}; {kept}");
                Problem::new(Code::NoAnswer, message).volume(volume).plugin(plugin)
            }
            Some((volume, None)) => {
                let message = format!("volume {volume} is being claimed for alloc {alloc}; {kept}");
                Problem::new(Code::Busy, message).volume(volume)
            }
            None => {
                let message = format!("the volumes of alloc {alloc} are being looked up; {kept}");
                Problem::new(Code::Busy, message)
            }
        }
    }

    /// The latest deadline of all requests.
    pub(super) fn reach(&self) -> Timestamp {
        self.state.borrow().reach
    }

    /// Until when claims are waited for, unless another request comes.
    pub(super) fn held(&self) -> Timestamp {
        self.state.borrow().held
    }

    /// Until when the work may go on.
    pub(super) fn kept_until(&self) -> Timestamp {
        self.reach().after(self.kept_for)
    }

    /// What is worked on, for requests that are answered meanwhile.
    pub(super) fn show(&self, volume: &VolumeKey, plugin: Option<&PluginId>) {
        self.details().at = Some((volume.clone(), plugin.cloned()));
    }

    pub(super) fn acknowledged(&self) -> BTreeSet<VolumeId> {
        self.details().acknowledged.clone()
    }

    /// Answers the requests that wait, and keeps what was reached.
    pub(super) fn answer(&self, result: Result<MountedAll, Problem>) {
        self.state.send_modify(|state| {
            state.is_awaited = false;
            state.answers += 1;
            state.last = Some(result);
            if state.phase == Phase::Working {
                state.phase = Phase::Idle;
            }
        });
    }

    /// From now on no request joins.
    pub(super) fn close(&self) {
        self.state.send_modify(|state| state.phase = Phase::Closed);
    }

    /// Waits for a repeated request. If none comes in time the work is closed.
    pub(super) async fn await_request(&self) -> NextRequest {
        let mut state = self.state.subscribe();
        loop {
            let next = {
                let state = state.borrow_and_update();
                (state.is_awaited, state.phase, state.held)
            };
            let kept_until = next.2.after(self.kept_for);
            match next {
                (_, Phase::Replaced, _) => return NextRequest::OfOther,
                (true, ..) => {
                    self.state.send_modify(|state| state.phase = Phase::Working);
                    return NextRequest::Repeated;
                }
                _ => {}
            }
            tokio::select! {
                // The sender is this work's own.
                _ = state.changed() => {}
                () = sleep(kept_until.since(clock::now())) => {
                    if self.close_unless_awaited() {
                        return NextRequest::None;
                    }
                }
            }
        }
    }

    fn close_unless_awaited(&self) -> bool {
        self.state.send_if_modified(|state| {
            let closes = state.phase == Phase::Idle && !state.is_awaited;
            if closes {
                state.phase = Phase::Closed;
            }
            closes
        })
    }

    fn details(&self) -> std::sync::MutexGuard<'_, WorkDetails> {
        self.details.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What ended the wait for a repeated request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextRequest {
    Repeated,
    /// Another request of the alloc takes over.
    OfOther,
    /// The callers gave it up.
    None,
}

fn key(request: &MountAll) -> AllocKey {
    (request.namespace.clone(), request.alloc.clone())
}

/// A caller's clock may be wrong.
fn bounded(deadline: Timestamp) -> Timestamp {
    deadline.min(clock::now().after(WAIT_MAX))
}

fn time_left(deadline: Timestamp) -> Duration {
    deadline.since(clock::now()).saturating_sub(ANSWER_BEFORE_DEADLINE)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use berth_domain::limits::HELD_MAX;

    use super::*;

    const KEPT: Duration = Duration::from_millis(100);

    fn request(wait: bool) -> MountAll {
        let alloc = AllocId::new("a").unwrap();
        MountAll { namespace: Namespace::default(), alloc, wait, paths: BTreeMap::default() }
    }

    fn soon() -> Timestamp {
        clock::now().after(Duration::from_millis(150))
    }

    fn begin(works: &WholeMounts) -> Arc<WholeMount> {
        match works.join(&request(false), None, soon(), KEPT).unwrap() {
            Joined::Begins(work) => work,
            other => panic!("{other:?}"),
        }
    }

    fn failed() -> Result<MountedAll, Problem> {
        Err(Problem::new(Code::NoAnswer, "no answer"))
    }

    #[tokio::test]
    async fn a_repeated_request_joins_and_is_answered_together_with_the_first() {
        let works = WholeMounts::default();
        let work = begin(&works);
        let late = work.answer_after(0, soon()).await.unwrap_err();
        assert_eq!(late.code, Code::Busy, "{late}");
        let Joined::Joins(joined, answers) =
            works.join(&request(false), None, soon(), KEPT).unwrap()
        else {
            panic!("it did not join")
        };
        joined.answer(failed());
        assert_eq!(work.answer_after(answers, soon()).await.unwrap_err().code, Code::NoAnswer);
        // Answered: the work waits for the next request, and goes on with it.
        let (next, again) = tokio::join!(work.await_request(), async {
            tokio::task::yield_now().await;
            works.join(&request(false), None, soon(), KEPT).unwrap()
        });
        assert_eq!(next, NextRequest::Repeated);
        assert!(matches!(again, Joined::Joins(_, 1)), "{again:?}");
        work.answer(Ok(MountedAll { volumes: Vec::new() }));
        works.remove(&work);
        assert!(matches!(begin(&works).kept_until(), until if until > clock::now()));
    }

    #[tokio::test]
    async fn what_no_request_comes_for_is_closed_and_the_next_request_begins_anew() {
        let works = WholeMounts::default();
        let work = begin(&works);
        work.answer(failed());
        assert_eq!(work.await_request().await, NextRequest::None);
        let waits = works.join(&request(false), None, soon(), KEPT).unwrap();
        assert!(matches!(waits, Joined::Waits(_)), "{waits:?}");
        assert_eq!(work.wait_gone(soon()).await.unwrap_err().code, Code::Busy);
        works.remove(&work);
        work.wait_gone(soon()).await.unwrap();
        drop(begin(&works));
    }

    #[tokio::test]
    async fn another_request_takes_over_what_waits_and_not_what_works() {
        let works = WholeMounts::default();
        let work = begin(&works);
        let waits = works.join(&request(true), None, soon(), KEPT).unwrap();
        assert!(matches!(waits, Joined::Waits(_)), "{waits:?}");
        work.answer(failed());
        let joined = works.join(&request(false), None, soon(), KEPT).unwrap();
        assert!(matches!(joined, Joined::Joins(..)), "its own caller came first: {joined:?}");
        assert_eq!(work.await_request().await, NextRequest::Repeated);
        work.answer(failed());
        drop(works.join(&request(true), None, soon(), KEPT).unwrap());
        assert_eq!(work.await_request().await, NextRequest::OfOther);
    }

    #[tokio::test]
    async fn a_deadline_of_a_wrong_clock_keeps_nothing_for_ever() {
        let works = WholeMounts::default();
        let far = clock::now().after(Duration::from_secs(86_400));
        drop(works.join(&request(false), None, far, KEPT).unwrap());
        let until = works.0.lock().unwrap().values().next().unwrap().kept_until();
        assert!(until <= clock::now().after(WAIT_MAX + KEPT), "{until}");
    }

    /// The bus does not say that a caller has gone. A caller that waits asks again.
    #[tokio::test]
    async fn a_caller_that_waits_counts_as_there_for_as_long_as_one_request_is_held() {
        let works = WholeMounts::default();
        let far = clock::now().after(WAIT_MAX);
        let Joined::Begins(waits) = works.join(&request(true), None, far, KEPT).unwrap() else {
            panic!("it did not begin")
        };
        assert!(waits.held() <= clock::now().after(HELD_MAX) && waits.reach() >= far);
        works.remove(&waits);
        let Joined::Begins(works_on) = works.join(&request(false), None, far, KEPT).unwrap() else {
            panic!("it did not begin")
        };
        assert_eq!(works_on.held(), works_on.reach());
    }

    #[tokio::test]
    async fn one_sender_leaves_room_for_others() {
        let works = WholeMounts::default();
        let join = |at: usize, sender: &str| {
            let alloc = AllocId::new(format!("a{at}")).unwrap();
            let request = MountAll { alloc, ..request(true) };
            works.join(&request, Some(sender), soon(), KEPT).map(drop)
        };
        for at in 0..WORKS_PER_SENDER_MAX {
            join(at, "user.bob").unwrap();
        }
        assert_eq!(join(9999, "user.bob").unwrap_err().code, Code::Overloaded);
        join(9999, "user.ann").unwrap();
        join(0, "user.bob").unwrap();
    }
}
