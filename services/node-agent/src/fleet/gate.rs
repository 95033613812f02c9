//! Whether this node may take anything new (rules 10 and 12).
//!
//! **Owns** what is known of the node's presence: whether its lease is held, what the registry has
//! answered since, and what was undone since the registry said that the node counts as gone.
//!
//! **Promises** that nothing is mounted unless the registry has said that the node counts as there,
//! since this process holds the lease. That makes `node.gone` safe: the registry refuses it while
//! the lease is held, and it cannot be on record when the registry says "ready". A task that closed
//! the gate and waits ([`Gate::wait_entered`]) finds in the journal everything that was let in.
//!
//! **Never** opens because the registry does not answer.

use std::sync::Arc;

use berth_bus::LeaseHold;
use berth_contract::code::Code;
use berth_contract::message::registry::Reported;
use berth_contract::problem::Problem;
use berth_domain::Timestamp;
use berth_domain::plugin::NodeState;
use berth_domain::proof::Proof;
use tokio::sync::{OwnedRwLockReadGuard, RwLock, watch};

/// Whether the registry counts the node as there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodePresence {
    /// The registry has not answered since the lease is held.
    Unknown,
    /// The node may take new mounts.
    There,
    /// The node must undo what it has mounted.
    Gone(Proof),
}

/// The gate. Cheap to clone; begins closed.
#[derive(Debug, Clone)]
pub struct Gate {
    state: watch::Sender<GateState>,
    // Counts changes that the registry must be told of.
    changes: watch::Sender<u64>,
    // Locked for reading from the entry of the gate until the journal is written.
    entering: Arc<RwLock<()>>,
}

#[derive(Debug)]
struct GateState {
    /// `None` once the lease is lost.
    lease: Option<LeaseHold>,
    /// How often the lease was gained.
    tenure: u64,
    /// How often the gate opened, or earlier passes were ended.
    opened: u64,
    presence: NodePresence,
    /// The proof after which all was undone.
    undone: Option<Timestamp>,
    /// What keeps the rest from being undone.
    kept_by: Option<String>,
}

/// Permits a request for a grant until the gate closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatePass(u64);

/// The gate was entered, and the journal is not written yet.
#[derive(Debug)]
pub struct GateEntry {
    _entering: OwnedRwLockReadGuard<()>,
}

impl GateState {
    /// Compared with the clock at each call: after a suspend the lease has ended, and no task has
    /// run to say so.
    fn is_held(&self) -> bool {
        self.lease.as_ref().is_some_and(LeaseHold::is_held)
    }
}

impl Default for Gate {
    fn default() -> Self {
        let (lease, tenure, opened) = (None, 0, 0);
        let presence = NodePresence::Unknown;
        let known = GateState { lease, tenure, opened, presence, undone: None, kept_by: None };
        Self {
            state: watch::Sender::new(known),
            changes: watch::Sender::new(0),
            entering: Arc::default(),
        }
    }
}

impl Gate {
    /// The lease is held from now on.
    pub fn lease_gained(&self, lease: LeaseHold) {
        self.state.send_modify(|known| {
            known.lease = Some(lease);
            known.tenure += 1;
            known.presence = NodePresence::Unknown;
        });
        self.signal_change();
    }

    /// The lease is lost: from now on an operator may declare the node gone.
    pub fn lease_lost(&self) {
        self.state.send_modify(|known| {
            known.lease = None;
            known.presence = NodePresence::Unknown;
        });
    }

    /// The count of the lease that is held, to be read before the registry is asked. `None` if the
    /// lease is not held.
    pub fn tenure(&self) -> Option<u64> {
        let known = self.state.borrow();
        known.is_held().then_some(known.tenure)
    }

    /// Takes the registry's answer to a report that was sent in this tenure.
    pub fn record_answer(&self, tenure: u64, reported: &Reported) {
        let presence = match (&reported.gone, reported.state) {
            (Some(proof), _) => NodePresence::Gone(proof.clone()),
            (None, NodeState::Ready) => NodePresence::There,
            (None, NodeState::Down) => NodePresence::Unknown,
        };
        self.state.send_if_modified(|known| {
            if !known.is_held() || known.tenure != tenure || known.presence == presence {
                return false;
            }
            if presence == NodePresence::There {
                known.opened += 1;
                (known.undone, known.kept_by) = (None, None);
            }
            known.presence = presence;
            true
        });
    }

    /// The presence by the registry's last answer.
    pub fn presence(&self) -> NodePresence {
        self.state.borrow().presence.clone()
    }

    /// Waits until the node counts as there.
    pub async fn wait_until_there(&self) {
        let is_there = |known: &GateState| known.presence == NodePresence::There;
        // The sender is ours, and lives.
        let _ = self.state.subscribe().wait_for(is_there).await;
    }

    /// Waits until the node counts as gone by a proof of another time than `but`.
    pub async fn wait_gone(&self, but: Option<Timestamp>) -> Proof {
        let mut known = self.state.subscribe();
        loop {
            if let NodePresence::Gone(proof) = &known.borrow_and_update().presence
                && Some(proof.at) != but
            {
                return proof.clone();
            }
            // The sender is ours, and lives.
            let _ = known.changed().await;
        }
    }

    /// Everything was undone that had been mounted before the node learned of this proof.
    pub fn record_undone(&self, proof: Timestamp) {
        self.state.send_modify(|known| (known.undone, known.kept_by) = (Some(proof), None));
        self.signal_change();
    }

    /// Not everything is undone yet, for this reason.
    pub fn record_obstacle(&self, why: String) {
        let why = Some(why);
        let is_news = self.state.send_if_modified(|known| {
            let is_news = known.kept_by != why;
            known.kept_by = why;
            is_news
        });
        if is_news {
            self.signal_change();
        }
    }

    /// For the report: the proof after which everything was undone, or why it is not.
    pub fn progress(&self) -> (Option<Timestamp>, Option<String>) {
        let known = self.state.borrow();
        (known.undone, known.kept_by.clone())
    }

    /// Changes whenever a report is worth sending.
    pub fn follow_changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn signal_change(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Permits a request for a grant, or says why not.
    pub fn check_open(&self) -> Result<GatePass, Problem> {
        let known = self.state.borrow();
        match &known.presence {
            NodePresence::There if known.is_held() => Ok(GatePass(known.opened)),
            NodePresence::Gone(proof) => {
                let message = format!(
                    "the node counts as gone ({proof}); it takes nothing new before it has undone \
                     what it had mounted{}",
                    known.kept_by.as_ref().map(|why| format!(": {why}")).unwrap_or_default()
                );
                Err(Problem::new(Code::NodeReturning, message).retryable())
            }
            _ if known.is_held() => {
                let message = "the registry has not said yet that the node counts as there";
                Err(Problem::new(Code::NodeReturning, message).retryable())
            }
            _ => {
                let message = "the node's lease is lost, and asked for again";
                Err(Problem::new(Code::NodeReturning, message).retryable())
            }
        }
    }

    /// Ends every pass that was given before, and waits until what entered with one is in the
    /// journal. A grant of a claim that was lost with its record is not followed from now on.
    pub async fn end_passes(&self) {
        self.state.send_modify(|known| known.opened += 1);
        self.wait_entered().await;
    }

    /// Enters the gate if the pass is still good. The caller's intent must be in the journal before
    /// the [`GateEntry`] is dropped.
    pub async fn enter(&self, pass: GatePass) -> Result<GateEntry, Problem> {
        let entering = Arc::clone(&self.entering).read_owned().await;
        if self.check_open()? == pass {
            return Ok(GateEntry { _entering: entering });
        }
        let message = "since the claim was asked for, the node counted as gone, or might have; or \
                       the records of claims were restored";
        Err(Problem::new(Code::NodeReturning, message).retryable())
    }

    /// Waits until every earlier entry is dropped.
    pub async fn wait_entered(&self) {
        drop(self.entering.write().await);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use berth_domain::proof::ProofKind;

    use super::*;

    fn reported(state: NodeState, gone: Option<Proof>) -> Reported {
        Reported { clock_skew_ms: 0, clock: None, state, gone, pace_s: 0, unproven: Vec::new() }
    }

    fn proof(at: u64) -> Proof {
        let at = Timestamp::from_unix_ms(at);
        Proof { kind: ProofKind::Confirmed, by: "ada".to_owned(), at, note: String::new() }
    }

    fn lease() -> LeaseHold {
        LeaseHold::lasting(Duration::from_secs(60))
    }

    fn open() -> Gate {
        let gate = Gate::default();
        gate.lease_gained(lease());
        gate.record_answer(1, &reported(NodeState::Ready, None));
        gate
    }

    #[test]
    fn it_opens_only_when_the_registry_says_so_while_the_lease_is_held() {
        let gate = Gate::default();
        let ready = reported(NodeState::Ready, None);
        assert!(gate.check_open().is_err());
        assert_eq!(gate.tenure(), None);
        gate.record_answer(0, &ready);
        assert!(gate.check_open().is_err(), "without a lease nobody's word counts");
        gate.lease_gained(lease());
        assert!(gate.check_open().is_err(), "nobody has answered yet");
        gate.record_answer(1, &reported(NodeState::Down, None));
        assert!(gate.check_open().is_err(), "it does not count as there yet");
        gate.record_answer(1, &ready);
        gate.check_open().unwrap();
        gate.lease_lost();
        assert!(gate.check_open().unwrap_err().message.contains("lease is lost"));
        gate.lease_gained(lease());
        gate.record_answer(1, &ready);
        assert!(gate.check_open().is_err(), "an answer of an earlier tenure is old");
        gate.record_answer(2, &ready);
        gate.check_open().unwrap();
        gate.record_answer(2, &reported(NodeState::Ready, Some(proof(7))));
        let refused = gate.check_open().unwrap_err();
        assert!(refused.retryable && refused.message.contains("confirmed, says ada"), "{refused}");
    }

    /// As after a suspend: no task has told the gate that the lease is lost.
    #[test]
    fn it_is_closed_once_the_lease_has_ended() {
        let gate = Gate::default();
        gate.lease_gained(LeaseHold::lasting(Duration::ZERO));
        gate.record_answer(1, &reported(NodeState::Ready, None));
        assert!(gate.check_open().unwrap_err().message.contains("lease is lost"));
        assert_eq!(gate.tenure(), None);
    }

    #[tokio::test]
    async fn leave_from_before_it_closed_is_worth_nothing_once_it_opened_again() {
        let gate = open();
        let pass = gate.check_open().unwrap();
        drop(gate.enter(pass).await.unwrap());
        gate.lease_lost();
        assert!(gate.enter(pass).await.is_err());
        gate.lease_gained(lease());
        gate.record_answer(2, &reported(NodeState::Ready, None));
        assert!(gate.enter(pass).await.is_err());
        gate.enter(gate.check_open().unwrap()).await.unwrap();
    }

    /// Found by the model: an agent followed a grant whose claim was lost by a restore, after the
    /// node had compared and the volume was granted elsewhere.
    #[tokio::test]
    async fn a_pass_from_before_all_were_ended_is_worth_nothing() {
        let gate = open();
        let pass = gate.check_open().unwrap();
        let entered = gate.enter(pass).await.unwrap();
        let ending = gate.clone();
        let ending = tokio::spawn(async move { ending.end_passes().await });
        wait_until(|| gate.check_open().unwrap() != pass).await;
        assert!(!ending.is_finished(), "what entered is not in the journal yet");
        drop(entered);
        ending.await.unwrap();
        assert!(gate.enter(pass).await.unwrap_err().retryable);
        gate.enter(gate.check_open().unwrap()).await.unwrap();
    }

    async fn wait_until(is_so: impl Fn() -> bool) {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn whoever_was_let_in_is_waited_for() {
        let gate = open();
        let entered = gate.enter(gate.check_open().unwrap()).await.unwrap();
        gate.lease_lost();
        let waiting = gate.clone();
        let waiting = tokio::spawn(async move { waiting.wait_entered().await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!waiting.is_finished());
        drop(entered);
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn what_was_undone_is_of_one_proof() {
        let gate = Gate::default();
        gate.lease_gained(lease());
        gate.record_answer(1, &reported(NodeState::Down, Some(proof(7))));
        let first = gate.wait_gone(None).await;
        assert_eq!(first, proof(7));
        gate.record_obstacle("busy".to_owned());
        assert_eq!(gate.progress(), (None, Some("busy".to_owned())));
        gate.record_undone(first.at);
        assert_eq!(gate.progress(), (Some(first.at), None));
        gate.record_answer(1, &reported(NodeState::Ready, None));
        assert_eq!(gate.progress(), (None, None));
        gate.record_answer(1, &reported(NodeState::Down, Some(proof(9))));
        assert_eq!(gate.wait_gone(Some(first.at)).await, proof(9));
    }
}
