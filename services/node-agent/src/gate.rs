//! Whether this node may take anything new (rules 10 and 12).
//!
//! **Owns** what is known of how the node counts: whether its lease is held, what the registry said
//! since, and what was undone since it said that the node counts as gone.
//!
//! **Promises** that nothing is mounted but while the registry has said, since this process holds
//! the lease, that the node counts as there. That is what makes `node.gone` safe: it is refused
//! while the lease is held, and cannot be on record when the registry says "ready". And whoever
//! closed the gate and waits ([`Gate::settled`]) finds in the journal all that was let in before.
//!
//! **Never** opens because nobody answers.

use std::sync::Arc;

use berth_bus::LeaseHold;
use berth_contract::code::Code;
use berth_contract::message::registry::Reported;
use berth_contract::problem::Problem;
use berth_domain::Timestamp;
use berth_domain::plugin::NodeState;
use berth_domain::proof::Proof;
use tokio::sync::{OwnedRwLockReadGuard, RwLock, watch};

/// How the node counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodePresence {
    /// The registry has not said so since the lease is held.
    Unknown,
    /// It counts as there.
    There,
    /// It counts as gone, and is to undo what it has mounted.
    Gone(Proof),
}

/// The gate. Cheap to clone; begins closed.
#[derive(Debug, Clone)]
pub struct Gate {
    known: watch::Sender<GateState>,
    // Worth a report: what is known here, and not yet to the registry.
    news: watch::Sender<u64>,
    // Held for reading between being let in and the journal's entry.
    entering: Arc<RwLock<()>>,
}

#[derive(Debug)]
struct GateState {
    /// The lease, until it is lost.
    lease: Option<LeaseHold>,
    /// How often it was gained.
    tenure: u64,
    /// How often the gate opened.
    opened: u64,
    standing: NodePresence,
    /// The proof after which all was undone.
    undone: Option<Timestamp>,
    /// What keeps that from being so.
    kept_by: Option<String>,
}

/// Leave to ask for a grant: good until the gate closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatePass(u64);

/// Somebody was let in and has not written down yet what it is about to do.
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
        let standing = NodePresence::Unknown;
        let known = GateState { lease, tenure, opened, standing, undone: None, kept_by: None };
        Self {
            known: watch::Sender::new(known),
            news: watch::Sender::new(0),
            entering: Arc::default(),
        }
    }
}

impl Gate {
    /// The lease is held from now on.
    pub fn lease_gained(&self, lease: LeaseHold) {
        self.known.send_modify(|known| {
            known.lease = Some(lease);
            known.tenure += 1;
            known.standing = NodePresence::Unknown;
        });
        self.tell();
    }

    /// The lease is lost: from now on somebody may say that the node is gone.
    pub fn lease_lost(&self) {
        self.known.send_modify(|known| {
            known.lease = None;
            known.standing = NodePresence::Unknown;
        });
    }

    /// Which time the lease is held, to be noted before the registry is asked; none when it is not.
    pub fn tenure(&self) -> Option<u64> {
        let known = self.known.borrow();
        known.is_held().then_some(known.tenure)
    }

    /// The registry answered, to a report that was sent in this tenure.
    pub fn told(&self, tenure: u64, reported: &Reported) {
        let standing = match (&reported.gone, reported.state) {
            (Some(proof), _) => NodePresence::Gone(proof.clone()),
            (None, NodeState::Ready) => NodePresence::There,
            (None, NodeState::Down) => NodePresence::Unknown,
        };
        self.known.send_if_modified(|known| {
            if !known.is_held() || known.tenure != tenure || known.standing == standing {
                return false;
            }
            if standing == NodePresence::There {
                known.opened += 1;
                (known.undone, known.kept_by) = (None, None);
            }
            known.standing = standing;
            true
        });
    }

    /// How the node counts.
    pub fn standing(&self) -> NodePresence {
        self.known.borrow().standing.clone()
    }

    /// Waits until the node counts otherwise than as gone by the proof of this time, if one is
    /// named, and then until it counts as gone.
    pub async fn gone(&self, but: Option<Timestamp>) -> Proof {
        let mut known = self.known.subscribe();
        loop {
            if let NodePresence::Gone(proof) = &known.borrow_and_update().standing
                && Some(proof.at) != but
            {
                return proof.clone();
            }
            // The sender is ours, and lives.
            let _ = known.changed().await;
        }
    }

    /// All was undone that had been mounted before the node was told of the proof of this time.
    pub fn undone(&self, proof: Timestamp) {
        self.known.send_modify(|known| (known.undone, known.kept_by) = (Some(proof), None));
        self.tell();
    }

    /// It is not all undone yet, and this is why.
    pub fn kept_by(&self, why: String) {
        let why = Some(why);
        let is_news = self.known.send_if_modified(|known| {
            let is_news = known.kept_by != why;
            known.kept_by = why;
            is_news
        });
        if is_news {
            self.tell();
        }
    }

    /// What a report says of it: the proof after which all was undone, or what keeps that.
    pub fn progress(&self) -> (Option<Timestamp>, Option<String>) {
        let known = self.known.borrow();
        (known.undone, known.kept_by.clone())
    }

    /// Changes whenever a report is worth sending.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    fn tell(&self) {
        self.news.send_modify(|count| *count += 1);
    }

    /// Leave to ask for a grant, or why there is none.
    pub fn pass(&self) -> Result<GatePass, Problem> {
        let known = self.known.borrow();
        match &known.standing {
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

    /// Lets somebody in whose leave is still good. What it is about to do must be in the journal
    /// before [`GateEntry`] is dropped.
    pub async fn enter(&self, pass: GatePass) -> Result<GateEntry, Problem> {
        let entering = Arc::clone(&self.entering).read_owned().await;
        if self.pass()? == pass {
            return Ok(GateEntry { _entering: entering });
        }
        let message = "the node counted as gone, or might have, since the claim was asked for";
        Err(Problem::new(Code::NodeReturning, message).retryable())
    }

    /// Waits until whoever was let in before has written down what it is about to do.
    pub async fn settled(&self) {
        drop(self.entering.write().await);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use berth_domain::proof::ProofKind;

    use super::*;

    fn reported(state: NodeState, gone: Option<Proof>) -> Reported {
        Reported { clock_skew_ms: 0, clock: None, state, gone, pace_s: 0 }
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
        gate.told(1, &reported(NodeState::Ready, None));
        gate
    }

    #[test]
    fn it_opens_only_when_the_registry_says_so_while_the_lease_is_held() {
        let gate = Gate::default();
        let ready = reported(NodeState::Ready, None);
        assert!(gate.pass().is_err());
        assert_eq!(gate.tenure(), None);
        gate.told(0, &ready);
        assert!(gate.pass().is_err(), "without a lease nobody's word counts");
        gate.lease_gained(lease());
        assert!(gate.pass().is_err(), "nobody has answered yet");
        gate.told(1, &reported(NodeState::Down, None));
        assert!(gate.pass().is_err(), "it does not count as there yet");
        gate.told(1, &ready);
        gate.pass().unwrap();
        gate.lease_lost();
        assert!(gate.pass().unwrap_err().message.contains("lease is lost"));
        gate.lease_gained(lease());
        gate.told(1, &ready);
        assert!(gate.pass().is_err(), "an answer of an earlier tenure is old");
        gate.told(2, &ready);
        gate.pass().unwrap();
        gate.told(2, &reported(NodeState::Ready, Some(proof(7))));
        let refused = gate.pass().unwrap_err();
        assert!(refused.retryable && refused.message.contains("confirmed, says ada"), "{refused}");
    }

    /// As after a suspend: no task has told the gate that the lease is lost.
    #[test]
    fn it_is_closed_once_the_lease_has_ended() {
        let gate = Gate::default();
        gate.lease_gained(LeaseHold::lasting(Duration::ZERO));
        gate.told(1, &reported(NodeState::Ready, None));
        assert!(gate.pass().unwrap_err().message.contains("lease is lost"));
        assert_eq!(gate.tenure(), None);
    }

    #[tokio::test]
    async fn leave_from_before_it_closed_is_worth_nothing_once_it_opened_again() {
        let gate = open();
        let pass = gate.pass().unwrap();
        drop(gate.enter(pass).await.unwrap());
        gate.lease_lost();
        assert!(gate.enter(pass).await.is_err());
        gate.lease_gained(lease());
        gate.told(2, &reported(NodeState::Ready, None));
        assert!(gate.enter(pass).await.is_err());
        gate.enter(gate.pass().unwrap()).await.unwrap();
    }

    #[tokio::test]
    async fn whoever_was_let_in_is_waited_for() {
        let gate = open();
        let entered = gate.enter(gate.pass().unwrap()).await.unwrap();
        gate.lease_lost();
        let waiting = gate.clone();
        let waiting = tokio::spawn(async move { waiting.settled().await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!waiting.is_finished());
        drop(entered);
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn what_was_undone_is_of_one_proof() {
        let gate = Gate::default();
        gate.lease_gained(lease());
        gate.told(1, &reported(NodeState::Down, Some(proof(7))));
        let first = gate.gone(None).await;
        assert_eq!(first, proof(7));
        gate.kept_by("busy".to_owned());
        assert_eq!(gate.progress(), (None, Some("busy".to_owned())));
        gate.undone(first.at);
        assert_eq!(gate.progress(), (Some(first.at), None));
        gate.told(1, &reported(NodeState::Ready, None));
        assert_eq!(gate.progress(), (None, None));
        gate.told(1, &reported(NodeState::Down, Some(proof(9))));
        assert_eq!(gate.gone(Some(first.at)).await, proof(9));
    }
}
