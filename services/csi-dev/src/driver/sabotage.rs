//! What planted faults do to a call.
//!
//! Owns: delaying, hanging, crashing, failing and falsifying around the work of a call. Promises: a
//! call without faults is unchanged; what a fault did to the answer is reported, for the log.
//! Never: chooses the faults.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::Driver;
use super::refusal::Refusal;
use crate::faults::{CallFaults, Fault, FaultMark, WrongAnswer, chatter, distort};

/// How often a hanging call checks whether its fault was removed.
const HANG_POLL: Duration = Duration::from_millis(50);

/// The result of a call after its faults were applied.
pub(super) struct SabotagedResult<R> {
    pub result: Result<R, Refusal>,
    /// What a fault did to the answer, unless the refusal says so itself.
    pub mark: Option<FaultMark>,
}

impl<R> From<Result<R, Refusal>> for SabotagedResult<R> {
    fn from(result: Result<R, Refusal>) -> Self {
        Self { result, mark: None }
    }
}

/// Does the work of a call, and applies its faults before and after the work. The work is told
/// which wrong answer is wanted, and says whether it gave it.
pub(super) async fn run_with_faults<R: Any + Default + Send>(
    driver: &Arc<Driver>,
    faults: CallFaults,
    work: impl FnOnce(&Driver, Option<WrongAnswer>) -> Result<(R, bool), Refusal> + Send + 'static,
) -> SabotagedResult<R> {
    if let Some(fault) = &faults.before {
        apply_delay(driver, fault).await;
        if let Some(code) = fault.code {
            return Err(Refusal::planted_before(code)).into();
        }
    }
    let does_nothing = |fault: &&Fault| fault.wrong == Some(WrongAnswer::NothingDone);
    if let Some(fault) = faults.after.as_ref().filter(does_nothing) {
        apply_delay(driver, fault).await;
        return SabotagedResult { result: Ok(R::default()), mark: Some(FaultMark::Wrong) };
    }
    let (at, wrong) = (Arc::clone(driver), faults.after.as_ref().and_then(|fault| fault.wrong));
    let worked = spawn_blocking(move || work(&at, wrong)).await;
    let worked = worked.unwrap_or_else(|error| Err(Refusal::uncertain(error.to_string())));
    let (result, is_forged) = match worked {
        Ok((answer, is_forged)) => (Ok(answer), is_forged),
        Err(refusal) => (Err(refusal), false),
    };

    let Some(fault) = &faults.after else { return result.into() };
    apply_delay(driver, fault).await;
    if let Some(code) = fault.code {
        return Err(Refusal::planted_after(code, result)).into();
    }
    if fault.lose_answer {
        return SabotagedResult { result, mark: Some(FaultMark::Lost) };
    }
    if let Some(fields) = &fault.answer {
        let mut result = result;
        let changed = result.as_mut().is_ok_and(|answer| fields.put_into(answer));
        return SabotagedResult { result, mark: changed.then_some(FaultMark::Wrong) };
    }
    match fault.wrong {
        Some(_) if is_forged => SabotagedResult { result, mark: Some(FaultMark::Wrong) },
        Some(wrong) => falsify(wrong, result),
        None => result.into(),
    }
}

/// Waits, hangs or crashes, as the fault says.
async fn apply_delay(driver: &Arc<Driver>, fault: &Fault) {
    sleep(Duration::from_millis(fault.delay_ms)).await;
    if fault.hang {
        hang(driver, fault).await;
    }
    if fault.crash {
        _ = kill(Pid::this(), Signal::SIGKILL);
        // SIGKILL may arrive a moment later.
        std::future::pending::<()>().await;
    }
}

async fn hang(driver: &Arc<Driver>, fault: &Fault) {
    loop {
        let (at, it) = (Arc::clone(driver), fault.clone());
        if !spawn_blocking(move || at.faults.contains(&it)).await.unwrap_or_default() {
            return;
        }
        sleep(HANG_POLL).await;
    }
}

fn falsify<R: Any>(wrong: WrongAnswer, mut result: Result<R, Refusal>) -> SabotagedResult<R> {
    let is_changed = match &mut result {
        Ok(answer) => distort(wrong, answer),
        Err(refusal) if wrong == WrongAnswer::Chatty => {
            refusal.message = format!("{}\n{}", refusal.message, chatter());
            true
        }
        Err(_) => false,
    };
    SabotagedResult { result, mark: is_changed.then_some(FaultMark::Wrong) }
}
