//! What the claim service says of claims and secrets, played by the test.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use berth_bus::{Bucket, Bus, EndpointSpec, Service};
use berth_contract::bucket;
use berth_contract::code::Code;
use berth_contract::key;
use berth_contract::message::claim::{Claims, ListClaims, Recover, Recovered};
use berth_contract::message::registry::NodeReport;
use berth_contract::message::secret::{Open, Sealed, Secrets};
use berth_contract::problem::Problem;
use berth_contract::record::UnreadableRecord;
use berth_contract::verb::{self, Verb as _};
use berth_domain::volume::State;
use berth_domain::{AllocId, Namespace, VolumeKey};
use berth_service::seal::seal;

use crate::world::node;

/// The answers to `claim.status` and `secret.open`.
#[derive(Clone, Default)]
pub struct ClaimAnswers(Arc<Mutex<Answers>>);

#[derive(Default)]
struct Answers {
    /// Whether no service answers at which revision an agent starts.
    is_away: bool,
    /// A list without claims: its revision, and how often it was asked for.
    unclaimed: Option<(Arc<AtomicU64>, Arc<AtomicU64>)>,
    /// The allocs that have a claim on the volume, and how often its claims were asked for.
    beside: (Vec<AllocId>, usize),
    /// The lost claims that were recorded.
    recovered: Vec<Recover>,
    secrets: Secrets,
    /// How many more requests for secrets find no sealing key on the node's record.
    misses: u32,
    /// The keys that secrets were asked for, with the number of reports until then.
    asked_for: Vec<(String, usize)>,
}

impl ClaimAnswers {
    pub fn set_away(&self, is_away: bool) {
        self.0.lock().unwrap().is_away = is_away;
    }

    /// From now on nothing is claimed, by a list of the revision `index`.
    pub fn say_unclaimed(&self, index: &Arc<AtomicU64>, asked: &Arc<AtomicU64>) {
        self.0.lock().unwrap().unclaimed = Some((Arc::clone(index), Arc::clone(asked)));
    }

    /// From now on these allocs have a claim on the volume that is asked about. Returns how often
    /// it was asked about before.
    pub fn say_claimed_by(&self, allocs: &[&str]) -> usize {
        let allocs = allocs.iter().map(|alloc| AllocId::new(*alloc).unwrap()).collect();
        std::mem::replace(&mut self.0.lock().unwrap().beside, (allocs, 0)).1
    }

    /// The lost claims that were recorded, the earliest first.
    pub fn recovered(&self) -> Vec<Recover> {
        self.0.lock().unwrap().recovered.clone()
    }

    /// From now on volumes have these secrets, and the registry misses the key so often.
    pub fn give_secrets(&self, secrets: Secrets, misses: u32) {
        let mut answers = self.0.lock().unwrap();
        (answers.secrets, answers.misses) = (secrets, misses);
    }

    /// The keys that secrets were asked for, the earliest first, with the number of reports until
    /// then.
    pub fn asked_for(&self) -> Vec<(String, usize)> {
        self.0.lock().unwrap().asked_for.clone()
    }

    pub async fn serve(&self, bus: &Bus, service: &Service, reports: &Arc<Mutex<Vec<NodeReport>>>) {
        let endpoint = |name: &str, subject: String| EndpointSpec {
            name: name.to_owned(),
            subject,
            max_in_flight: 64,
            ..EndpointSpec::default()
        };
        let (answers, volumes) = (self.clone(), bus.bucket(&bucket::VOLUMES, 1).await.unwrap());
        let status = endpoint("claim-status", verb::ClaimStatus::wildcard_subject());
        service
            .endpoint(status, move |request| {
                let (answers, volumes) = (answers.clone(), volumes.clone());
                async move {
                    let status: ListClaims = request.decode("claim.status")?;
                    assert_eq!(status.node, Some(node()));
                    answers.list(&volumes, &status).await
                }
            })
            .await
            .unwrap();
        let answers = self.clone();
        let recover = endpoint("claim-recover", verb::ClaimRecover::wildcard_subject());
        service
            .endpoint(recover, move |request| {
                let answers = answers.clone();
                async move {
                    answers.0.lock().unwrap().recovered.push(request.decode("claim.recover")?);
                    Ok(Recovered { state: State::Unpublishing })
                }
            })
            .await
            .unwrap();
        let (answers, reports) = (self.clone(), Arc::clone(reports));
        let open = endpoint("secret-open", verb::SecretOpen::subject(&node()));
        service
            .endpoint(open, move |request| {
                let (answers, reports) = (answers.clone(), Arc::clone(&reports));
                async move {
                    let reports = reports.lock().unwrap();
                    answers.open(request.decode("secret.open")?, &reports)
                }
            })
            .await
            .unwrap();
    }

    async fn list(&self, volumes: &Bucket, status: &ListClaims) -> Result<Claims, Problem> {
        if let Some(volume) = &status.volume {
            let mut answers = self.0.lock().unwrap();
            answers.beside.1 += 1;
            let volume = VolumeKey::new(Namespace::default(), volume.clone());
            // A claim that cannot be read counts.
            let unreadable = answers.beside.0.iter().map(|alloc| UnreadableRecord {
                key: key::claim(&volume, alloc),
                code: Code::DamagedRecord,
                error: "damaged".to_owned(),
            });
            let (claims, unreadable) = (Vec::new(), unreadable.collect());
            return Ok(Claims { index: 1, incarnation: 0, claims, next: None, unreadable });
        }
        let (is_away, unclaimed) = {
            let answers = self.0.lock().unwrap();
            (answers.is_away, answers.unclaimed.clone())
        };
        let is_for_start = status.page.limit == Some(1);
        let index = match unclaimed {
            _ if is_for_start && !is_away => volumes.newest().await.unwrap(),
            Some((index, asked)) if !is_for_start => {
                asked.fetch_add(1, Ordering::SeqCst);
                index.load(Ordering::SeqCst)
            }
            _ => return Err(Problem::new(Code::BusUnavailable, "no claims are known here")),
        };
        Ok(Claims { index, incarnation: 0, claims: Vec::new(), next: None, unreadable: Vec::new() })
    }

    fn open(&self, open: Open, reports: &[NodeReport]) -> Result<Sealed, Problem> {
        let mut answers = self.0.lock().unwrap();
        answers.asked_for.push((open.to.clone(), reports.len()));
        if answers.misses > 0 {
            answers.misses -= 1;
            return Err(Problem::new(Code::SealingKeyUnknown, "not on the record"));
        }
        let key = reports.last().and_then(|report| report.sealing_key.clone());
        assert_eq!(key.as_ref(), Some(&open.to), "the agent names the key that it reported");
        let volume = VolumeKey::new(open.namespace, open.volume);
        Ok(seal(&volume, answers.secrets.clone(), &open.to).unwrap())
    }
}
