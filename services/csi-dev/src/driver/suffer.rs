//! What planted faults do to a call.
//!
//! Owns: waiting, hanging, crashing, failing and lying around the work of a call. Promises: a call
//! without faults goes through untouched; what a fault made of the answer is told, for the log.
//! Never: chooses the faults.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use berth_csi::Code;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::sleep;

use super::Driver;
use super::call::blocking;
use super::refusal::Refusal;
use crate::faults::{Fate, Fault, Planted, Wrong, chatter, distort};

/// How soon a call that hangs notices that its fault was taken away.
const HANG_POLL: Duration = Duration::from_millis(50);

/// A call after all that befell it.
pub(super) struct Suffered<R> {
    pub result: Result<R, Refusal>,
    /// What became of its answer, beside what a refusal says itself.
    pub planted: Option<Planted>,
}

impl<R> From<Result<R, Refusal>> for Suffered<R> {
    fn from(result: Result<R, Refusal>) -> Self {
        Self { result, planted: None }
    }
}

/// Does the work between what befalls the call before and after it.
pub(super) async fn suffer<R: Any + Default + Send>(
    driver: &Arc<Driver>,
    fate: Fate,
    work: impl FnOnce(&Driver) -> Result<R, Refusal> + Send + 'static,
) -> Suffered<R> {
    if let Some(fault) = &fate.before {
        befall(driver, fault).await;
        if let Some(code) = fault.code {
            return Err(Refusal::planted_before(code)).into();
        }
    }
    let lies = |fault: &&Fault| fault.wrong == Some(Wrong::NothingDone);
    if let Some(fault) = fate.after.as_ref().filter(lies) {
        befall(driver, fault).await;
        return Suffered { result: Ok(R::default()), planted: Some(Planted::Wrong) };
    }
    let at = Arc::clone(driver);
    let result = blocking(move || work(&at)).await;
    let result = result.unwrap_or_else(|error| Err(Refusal::uncertain(error.to_string())));

    let Some(fault) = &fate.after else { return result.into() };
    befall(driver, fault).await;
    if let Some(code) = fault.code {
        return Err(Refusal::planted_after(code, result)).into();
    }
    if fault.lose_answer {
        return Suffered { result, planted: Some(Planted::Lost) };
    }
    match fault.wrong {
        Some(wrong) => lie(wrong, result),
        None => result.into(),
    }
}

/// Waits, hangs or crashes, as the fault says.
async fn befall(driver: &Arc<Driver>, fault: &Fault) {
    sleep(Duration::from_millis(fault.delay_ms)).await;
    if fault.hang {
        hang(driver, fault).await;
    }
    if fault.crash {
        _ = kill(Pid::this(), Signal::SIGKILL);
        // Nothing comes after it.
        std::future::pending::<()>().await;
    }
}

async fn hang(driver: &Arc<Driver>, fault: &Fault) {
    loop {
        let (at, it) = (Arc::clone(driver), fault.clone());
        if !blocking(move || at.faults.stands(&it)).await.unwrap_or_default() {
            return;
        }
        sleep(HANG_POLL).await;
    }
}

fn lie<R: Any>(wrong: Wrong, mut result: Result<R, Refusal>) -> Suffered<R> {
    let lied = match &mut result {
        Ok(answer) => distort(wrong, answer),
        Err(refusal) if wrong == Wrong::UnknownError => {
            refusal.code = Code::Unknown;
            true
        }
        Err(refusal) if wrong == Wrong::Chatty => {
            refusal.message = format!("{}\n{}", refusal.message, chatter());
            true
        }
        Err(_) => false,
    };
    Suffered { result, planted: lied.then_some(Planted::Wrong) }
}
