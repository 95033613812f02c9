//! For authors of schedulers: allocs that are placed, mounted, guarded, waited for and stopped.
//!
//! **Owns** the order in which the contract is to be used, the owner's lease, one watch for all
//! waits, and how long is tried what fails.
//!
//! **Promises** that every wait has a deadline, or says in its documentation what ends it; that a
//! refusal says what to do ([`Refusal`]); and that two instances with different owners never stop
//! each other's allocs, since the services refuse it.
//!
//! **Never** stops an alloc by itself, also not when it is dropped: what runs goes on. After a
//! restart [`Scheduler::own_allocs`] and [`Scheduler::adopt`] say what is there.
//!
//! A whole scheduler, `examples/scheduler.rs`:
//!
//! ```ignore
#![doc = include_str!("../../examples/scheduler.rs")]
//! ```

mod alloc;
mod asker;
mod guard;
mod lease;
mod nodes;
mod refusal;
mod running;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use berth_bus::{Bus, Call, Config, Credentials};
use berth_contract::code::Code;
use berth_contract::message::alloc::{AllocStub, Allocs, ListAllocs, RegisterAlloc};
use berth_contract::message::many::{Adopt, RegisterMany, StopOwned};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb;
use berth_domain::alloc::AllocState;
use berth_domain::{Namespace, OwnerId, limits};

pub use alloc::{Alloc, LossReason};
pub use asker::Deadlines;
pub use guard::process_guard;
pub use nodes::{Candidate, Nodes};
pub use refusal::Refusal;

use crate::Client;
use asker::{Asker, BRIEF, PAGES_MAX};
use lease::Lease;
use running::RunningScheduler;
use watch::Watch;

/// Most requests in one bulk request.
const BULK: usize = limits::BULK_MAX;

/// The address of a fleet, and the identity of the scheduler.
#[derive(Debug, Clone)]
pub struct Connect {
    /// The servers, such as `nats://127.0.0.1:4222`.
    pub servers: Vec<String>,
    /// The identity, a file of `berth access user`. None on a bus without access control.
    pub creds_file: Option<PathBuf>,
    /// The authority of the server's certificate.
    pub ca_file: Option<PathBuf>,
    /// The namespace of all requests.
    pub namespace: Namespace,
    /// The owner of the allocs: one name for each instance of the scheduler.
    pub owner: OwnerId,
    /// How long the owner's lease lives without a renewal. After that its allocs may be adopted.
    pub lease_ttl: Duration,
}

impl Connect {
    /// Without credentials, in the default namespace, with a lease of 15 s.
    pub fn new(servers: impl IntoIterator<Item = impl Into<String>>, owner: OwnerId) -> Self {
        Self {
            servers: servers.into_iter().map(Into::into).collect(),
            creds_file: None,
            ca_file: None,
            namespace: Namespace::default(),
            owner,
            lease_ttl: Duration::from_secs(15),
        }
    }

    /// Adds the identity and the authority, in this order, as far as their files are given.
    #[must_use]
    pub fn identified(self, files: &[impl AsRef<Path>]) -> Self {
        let file = |at: usize| files.get(at).map(|file| file.as_ref().to_owned());
        Self { creds_file: file(0), ca_file: file(1), ..self }
    }
}

/// One instance of a scheduler. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Scheduler(Arc<RunningScheduler>);

impl Scheduler {
    /// Connects, and takes the owner's lease. Waits for the end of a lease that an earlier process
    /// of the same owner has left.
    pub async fn connect(connect: Connect) -> Result<Self, Refusal> {
        let refuse = |error: &dyn std::fmt::Display| {
            let code = Code::BusUnavailable;
            Refusal::from(Problem::new(code, error).at_step("connect"))
        };
        let credentials = match connect.creds_file {
            Some(file) => Credentials::CredsFile(file),
            None => Credentials::None,
        };
        let mut config = Config::new(connect.servers, connect.owner.as_str());
        config.insecure = matches!(credentials, Credentials::None);
        config.actor = credentials.user_actor(connect.owner.as_str()).map_err(|e| refuse(&e))?;
        config.credentials = credentials;
        config.tls.ca_file = connect.ca_file;
        let bus = Bus::connect(config).await.map_err(|error| refuse(&error))?;
        Self::on(bus, connect.namespace, connect.owner, connect.lease_ttl).await
    }

    /// The same over an existing connection.
    pub async fn on(
        bus: Bus,
        namespace: Namespace,
        owner: OwnerId,
        lease_ttl: Duration,
    ) -> Result<Self, Refusal> {
        let asker = Asker { client: Client::new(bus), namespace };
        let lease = Lease::take(&asker, &owner, lease_ttl).await?;
        let watch = Watch::start(&asker, &owner).await?;
        Ok(Self(Arc::new(RunningScheduler { asker, owner, lease, watch })))
    }

    /// The number of requests sent so far.
    pub fn requests(&self) -> u64 {
        self.0.asker.client.requests()
    }

    /// The owner's name.
    pub fn owner(&self) -> &OwnerId {
        &self.0.owner
    }

    /// Waits until the owner's lease is lost: from then on another instance may adopt its allocs.
    /// Workloads go on. The lease is taken again as soon as that is possible.
    pub async fn lease_lost(&self) {
        self.0.lease.lost().await;
    }

    /// Registers an alloc of this owner, which does not run yet.
    pub async fn register(&self, register: RegisterAlloc) -> Result<Alloc, Refusal> {
        let register = RegisterAlloc { owner: Some(self.0.owner.clone()), ..register };
        let status = self.0.asker.send_brief::<verb::AllocRegister>(&register).await?;
        Ok(self.alloc(status.into()))
    }

    /// Registers many allocs; each has an answer of its own.
    pub async fn register_many(
        &self,
        registers: Vec<RegisterAlloc>,
    ) -> Result<Vec<Result<Alloc, Refusal>>, Refusal> {
        let mut all = Vec::with_capacity(registers.len());
        let owner = Some(self.0.owner.clone());
        let mut pending =
            registers.into_iter().map(|one| RegisterAlloc { owner: owner.clone(), ..one });
        loop {
            let allocs: Vec<RegisterAlloc> = pending.by_ref().take(BULK).collect();
            if allocs.is_empty() {
                return Ok(all);
            }
            let request = RegisterMany { allocs };
            let answers =
                self.0.asker.send_brief::<verb::AllocRegisterMany>(&request).await?.answers;
            all.extend(answers.into_iter().map(|answer| match (answer.alloc, answer.error) {
                (Some(stub), _) => Ok(self.alloc(stub)),
                (None, Some(problem)) => Err(problem.into()),
                (None, None) => Err(no_answer().into()),
            }));
        }
    }

    /// The live allocs of this owner, such as after a restart. It owns again those whose lease had
    /// ended.
    pub async fn own_allocs(&self) -> Result<Vec<Alloc>, Refusal> {
        match self.adopt(&self.0.owner).await {
            // Another identity uses the name, too.
            Err(Refusal::Wait(problem)) if problem.code == Code::OwnerHeld => {}
            adopted => drop(adopted?),
        }
        let asker = &self.0.asker;
        let list = ListAllocs {
            owner: Some(self.0.owner.clone()),
            state: Some(AllocState::Live),
            ..ListAllocs::default()
        };
        let by = asker.client.bus().actor().tokens();
        let mut own = Vec::new();
        let call = Call::within(TraceContext::begin(&mut rand::rng()), BRIEF);
        let take = |page: Allocs| own.extend(page.allocs);
        let to = &asker.namespace;
        asker.client.pages::<verb::AllocList>(to, list, &call, PAGES_MAX, take).await?;
        own.retain(|stub| stub.by.as_ref() == Some(&by));
        Ok(own.into_iter().map(|stub| self.alloc(stub)).collect())
    }

    /// Takes over all live allocs of an owner whose lease has ended. Workloads go on. After a
    /// refusal, the allocs that were taken over already are among [`Scheduler::own_allocs`].
    pub async fn adopt(&self, from: &OwnerId) -> Result<Vec<Alloc>, Refusal> {
        let request = Adopt { from: from.clone(), owner: self.0.owner.clone(), ids: Vec::new() };
        let mut adopted = Vec::new();
        loop {
            let done = self.0.asker.send_brief::<verb::AllocAdopt>(&request).await?;
            adopted.extend(done.allocs.into_iter().map(|stub| self.alloc(stub)));
            if !done.more {
                return Ok(adopted);
            }
        }
    }

    /// Stops all live allocs of this owner. Their workloads must have ended. Returns how many.
    pub async fn stop_all(&self, state: AllocState, note: &str) -> Result<usize, Refusal> {
        let (owner, note) = (self.0.owner.clone(), Some(note.to_owned()));
        let request = StopOwned { owner, node: None, state, note };
        let mut stopped = 0;
        loop {
            let done = self.0.asker.send_brief::<verb::AllocStopOwned>(&request).await?;
            stopped += done.allocs.len();
            if !done.more {
                return Ok(stopped);
            }
        }
    }

    /// Gives the lease up, so that another instance may adopt the remaining allocs at once.
    pub async fn close(self) -> Result<(), Refusal> {
        self.0.lease.give_up(&self.0.asker, &self.0.owner).await.map_err(Refusal::from)
    }

    fn alloc(&self, stub: AllocStub) -> Alloc {
        Alloc::new(Arc::clone(&self.0), stub)
    }
}

fn no_answer() -> Problem {
    Problem::new(Code::NoAnswer, "the service did not say what it did")
}
