//! A workload from the registration of its alloc to the end of its claim.

use std::path::Path;
use std::time::{Duration, Instant};

use berth_contract::code::Code;
use berth_contract::message::agent::Mounted;
use berth_contract::message::alloc::AllocStatus;
use berth_contract::message::claim::{Grant, Release, Released, Take};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_domain::alloc::AllocState;
use berth_domain::volume::State;
use berth_harness::dirs::mounts_beneath;
use tokio::time::sleep;

use super::Run;
use super::client::{self, alloc_id, node_id, volume_for};
use crate::ledger::{CreatedVolume, CreationRequest, Hold};
use crate::plan::{End, Late, SCRATCH, Sending, Workload, kind_of};

/// How long a request is repeated that must get through.
const INSIST: Duration = Duration::from_secs(30);
/// How long a workload waits for its claim to end. The end of the run checks it again.
const GOES: Duration = Duration::from_secs(15);

impl Run {
    /// Runs a workload from start to end; returns how it went in a word or two.
    pub(super) async fn workload(&self, alloc: &str, workload: &Workload) -> String {
        self.ledger.placed(alloc);
        let calm = self.ledger.calm(workload.node);
        let register = client::register(alloc, workload);
        let registered = || self.about::<verb::AllocRegister>(&register, INSIST);
        let registered: Result<AllocStatus, Problem> = if workload.sending == Sending::Twice {
            let (first, second) = tokio::join!(registered(), registered());
            first.and(second)
        } else {
            registered().await
        };
        if let Err(problem) = registered {
            self.ledger.note(format!("{alloc} not registered: {problem}"));
            // The alloc may be registered or not.
            return format!("not registered, {}", problem.code.as_str());
        }
        let for_run =
            workload.volume == SCRATCH && self.create_for_run(alloc, workload.patience).await;
        let came = self.comes(alloc, workload, calm, for_run).await;
        let end = match &came {
            Ok(mounted) => {
                self.ledger.note(format!("{alloc} holds epoch {}", mounted.epoch));
                self.holds(alloc, workload, mounted, calm).await;
                "held".to_owned()
            }
            Err(problem) => {
                self.ledger.note(format!("{alloc} not mounted: {problem}"));
                problem.code.as_str().to_owned()
            }
        };
        self.goes(alloc, workload, came.as_ref().ok(), calm).await;
        if let Some(late) = workload.late {
            let epoch = came.ok().map(|mounted| mounted.epoch);
            self.late(alloc, workload, epoch, late, calm).await;
        }
        end
    }

    /// Whether only its own caller can have ended an alloc of the node since `calm` was read.
    fn undisturbed(&self, workload: &Workload, calm: Option<u64>) -> bool {
        calm.is_some() && self.ledger.calm(workload.node) == calm
    }

    /// Mounts the volume. `for_run` says whether a volume was created for the alloc and can be
    /// claimed.
    async fn comes(
        &self,
        alloc: &str,
        workload: &Workload,
        calm: Option<u64>,
        for_run: bool,
    ) -> Result<Mounted, Problem> {
        let present = self.presence(workload.volume);
        let mount = || self.mount(alloc, workload, workload.patience);
        let came = if workload.sending == Sending::Twice {
            let (first, second) = tokio::join!(mount(), mount());
            if let (Ok(first), Ok(second)) = (&first, &second)
                && first != second
            {
                let what = format!("{alloc} asked twice at once: {first:?}, {second:?}");
                self.ledger.violated("two answers to one question", what);
            }
            first.or(second)
        } else {
            mount().await
        };
        if let Ok(mounted) = &came {
            self.has_no_old_data(alloc, workload, mounted, present);
        }
        if let Err(problem) = &came {
            let surely = present.is_some() && present == self.presence(workload.volume)
                || for_run && self.undisturbed(workload, calm);
            let false_word = match problem.code {
                // The alloc was registered and not stopped, so none of these answers is true.
                Code::NoSuchAlloc | Code::AllocTerminal => self.undisturbed(workload, calm),
                Code::AllocForeign
                | Code::VolumeNotRequested
                | Code::ClaimDiffers
                | Code::CapabilityNotOffered => true,
                Code::NoSuchVolume | Code::VolumeClosing | Code::VolumeNotReady => surely,
                _ => false,
            };
            if false_word {
                self.ledger.violated("refused by what is not so", format!("{alloc}: {problem}"));
            }
        }
        came
    }

    /// Checks that a volume that was created again has no data of its predecessor.
    fn has_no_old_data(
        &self,
        alloc: &str,
        workload: &Workload,
        mounted: &Mounted,
        present: Option<u64>,
    ) {
        let kind = kind_of(workload.volume);
        let created = self.ledger.surely_created(kind.id);
        let is_empty = |created: &CreatedVolume| created.request == CreationRequest::Empty;
        let is_same = |created: &CreatedVolume| Some(created.requested) == present;
        let Some(created) = created.filter(|it| is_empty(it) && is_same(it)) else { return };
        let Ok(files) = std::fs::read_dir(&mounted.path) else { return };
        let names: Vec<String> =
            files.flatten().map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        let holds = self.ledger.read().holds;
        let earlier =
            |hold: &&Hold| hold.acknowledged < created.requested && names.contains(&hold.alloc);
        if let Some(hold) = holds.iter().find(earlier) {
            let what = format!("{alloc} finds the file of {} in {created:?}", hold.alloc);
            self.ledger.violated("data of a deleted volume", what);
        }
    }

    /// Checks that the mount and its file stay while the workload runs.
    async fn holds(&self, alloc: &str, workload: &Workload, mounted: &Mounted, calm: Option<u64>) {
        let file = Path::new(&mounted.path).join(alloc);
        let writes = !mounted.read_only && !kind_of(workload.volume).block;
        if writes
            && let Err(error) = std::fs::write(&file, alloc)
            && self.undisturbed(workload, calm)
        {
            let what = format!("{alloc} cannot write {}: {error}", file.display());
            self.ledger.violated("acknowledged claim lost", what);
        }
        sleep(workload.hold).await;
        let lost = |what: String| {
            // This is read after the loss was seen, since the node may have gone meanwhile.
            if self.undisturbed(workload, calm) {
                self.ledger.violated("acknowledged claim lost", format!("{alloc}: {what}"));
            }
        };
        if mounts_beneath(Path::new(&mounted.path)).is_empty() {
            lost(format!("nothing is mounted at {}", mounted.path));
        }
        if writes && !std::fs::read_to_string(&file).is_ok_and(|text| text == alloc) {
            lost(format!("{} is not what was written", file.display()));
        }
        match self.claim(alloc, workload.volume).await {
            Ok(Some(claim)) if claim.state == State::Taken && claim.epoch == mounted.epoch => {}
            Ok(other) => lost(format!("epoch {} was granted, there is {other:?}", mounted.epoch)),
            Err(unread) => self.ledger.note(format!("{alloc}: its claim is unread: {unread}")),
        }
    }

    /// Ends the workload, and waits until its claim is gone.
    async fn goes(
        &self,
        alloc: &str,
        workload: &Workload,
        mounted: Option<&Mounted>,
        calm: Option<u64>,
    ) {
        match workload.end {
            End::Stop => {}
            End::Vanish(unnoticed) => {
                sleep(unnoticed).await;
            }
            End::Release => {
                self.ledger.lets_go(alloc);
                let epoch = mounted.map(|mounted| mounted.epoch);
                let released = self.release(alloc, workload, epoch, INSIST).await;
                self.ledger.note(format!("{alloc} released by hand: {released:?}"));
                sleep(Duration::from_millis(100)).await;
            }
        }
        if workload.sending == Sending::Unbounded {
            self.ledger.lets_go(alloc);
            let body = client::stop(alloc, AllocState::Complete);
            self.send(&verb::AllocStop::subject(&Namespace::default()), &body).await;
        }
        let stop = || self.stop(alloc, INSIST);
        let stopped = if workload.sending == Sending::Twice {
            let (first, second) = tokio::join!(stop(), stop());
            first.and(second)
        } else {
            stop().await
        };
        match stopped {
            Ok(()) => self.ledger.note(format!("{alloc} stopped")),
            Err(problem)
                if problem.code == Code::NoSuchAlloc && self.undisturbed(workload, calm) =>
            {
                let what = format!("{alloc} was registered, and is not known: {problem}");
                self.ledger.violated("acknowledged alloc lost", what);
            }
            Err(problem) => return self.ledger.note(format!("{alloc} not stopped: {problem}")),
        }
        let end = Instant::now() + GOES;
        while Instant::now() < end {
            if let Ok(None) = self.claim(alloc, workload.volume).await {
                self.ledger.is_gone(alloc);
                return self.ledger.note(format!("{alloc} is gone"));
            }
            sleep(Duration::from_millis(300)).await;
        }
        self.ledger.note(format!("{alloc} still there after {GOES:?}"));
    }

    async fn release(
        &self,
        alloc: &str,
        workload: &Workload,
        epoch: Option<u64>,
        patience: Duration,
    ) -> Result<Released, Problem> {
        let release = Release {
            alloc: alloc_id(alloc),
            volume: volume_for(alloc, workload.volume),
            epoch,
            reason: "chaos".to_owned(),
        };
        self.about::<verb::ClaimRelease>(&release, patience).await
    }

    /// Sends a message that was on its way for long. If the end of the alloc was acknowledged,
    /// the message must change nothing.
    async fn late(
        &self,
        alloc: &str,
        workload: &Workload,
        epoch: Option<u64>,
        late: Late,
        calm: Option<u64>,
    ) {
        let ended = self.ledger.read().allocs.get(alloc).copied().unwrap_or_default();
        let namespace = Namespace::default();
        let answer = match late {
            Late::Mount => {
                let subject = verb::AgentMount::subject(&verb::NodeAndNamespace::any_of(node_id(
                    workload.node,
                )));
                let body = client::mount(alloc, workload);
                self.ask::<Mounted>(&subject, &body).await.map(|mounted| format!("{mounted:?}"))
            }
            Late::Take => {
                let take = Take {
                    alloc: alloc_id(alloc),
                    volume: volume_for(alloc, workload.volume),
                    node: node_id(workload.node),
                    mode: None,
                    wait: workload.wait,
                    alias: None,
                };
                let subject = verb::ClaimTake::subject(&namespace);
                self.ask::<Grant>(&subject, &take).await.map(|grant| format!("{grant:?}"))
            }
            Late::Register => {
                let subject = verb::AllocRegister::subject(&namespace);
                let body = client::register(alloc, workload);
                let answer = self.ask::<AllocStatus>(&subject, &body).await;
                answer.map(|status| format!("{status:?}"))
            }
            Late::Release => {
                let released = self.release(alloc, workload, epoch, Duration::ZERO).await;
                return self.ledger.note(format!("{alloc} late release: {released:?}"));
            }
            Late::Stop => {
                let body = client::stop(alloc, AllocState::Failed);
                let stop = self.about::<verb::AllocStop>(&body, Duration::ZERO);
                let stopped = stop.await;
                let ended = ended && self.undisturbed(workload, calm);
                if ended && stopped.is_ok_and(|status| status.state != AllocState::Complete) {
                    let what = format!("{alloc} had ended, and ended otherwise once more");
                    self.ledger.violated("acknowledged release undone", what);
                }
                return;
            }
        };
        self.ledger.note(format!("{alloc} late {late:?}: {answer:?}"));
        if let (true, Ok(answer)) = (ended, answer) {
            let what = format!("{alloc} had ended, and {late:?} was answered: {answer}");
            self.ledger.violated("acknowledged release undone", what);
        }
    }
}
