//! Applies planted faults to a call.
//!
//! Owns: delaying, hanging, crashing, failing and falsifying, before and after the driver has the
//! call. Promises: a call without faults is unchanged; what a fault did to the answer is reported
//! for the log. Never: chooses the faults.

use std::sync::Arc;
use std::time::Duration;

use berth_csi::Code;
use berth_csi::rpc::Unary;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tonic::Status;

use crate::faults::{CallFaults, Fault, FaultMark, WrongAnswer, chatter, distort};
use crate::forgery::pass_on_wrongly;
use crate::gate::Refused;
use crate::outcome::Outcome;
use crate::pass::{Carried, Driver, FailedCall};
use crate::tap::{Tap, Tapped};

/// How often a hanging call checks whether its fault was removed.
const HANG_POLL: Duration = Duration::from_millis(50);

/// Passes a call on, and applies its faults before and after.
pub(crate) async fn run_with_faults<S: Driver, R: Unary>(
    tapped: &Tapped<S>,
    faults: CallFaults,
    request: Carried<R>,
) -> Outcome<R::Response> {
    let Tapped { tap, driver } = tapped;
    if let Some(fault) = &faults.before {
        apply_delay(tap, fault).await;
        if let Some(code) = fault.code {
            let refused = Refused::nothing_done(code, "planted fault: nothing was done");
            return Outcome { fault: Some(FaultMark::Before), ..refused.into() };
        }
    }
    let wrong = faults.after.as_ref().and_then(|fault| fault.wrong);
    let (result, is_forged) = match wrong {
        Some(WrongAnswer::NothingDone) => (Ok(Carried::encode(R::Response::default())), true),
        wrong => pass_on_wrongly(driver, wrong, request).await,
    };
    let outcome = Outcome::from(result);
    let Some(fault) = &faults.after else { return outcome };
    apply_delay(tap, fault).await;
    if let Some(code) = fault.code {
        return lie(code, outcome);
    }
    if fault.lose_answer {
        return Outcome { fault: Some(FaultMark::Lost), ..outcome };
    }
    let Outcome { mut result, effect, rule, .. } = outcome;
    let is_changed = match (&fault.answer, wrong) {
        (Some(fields), _) => {
            result.as_mut().is_ok_and(|answer| answer.change(|answer| fields.put_into(answer)))
        }
        (None, Some(wrong)) => is_forged || falsify(wrong, &mut result),
        (None, None) => false,
    };
    Outcome { result, effect, rule, fault: is_changed.then_some(FaultMark::Wrong) }
}

/// Answers with this code, whether the work was done or not.
fn lie<M>(code: Code, outcome: Outcome<M>) -> Outcome<M> {
    let message = "planted fault: the work was done, the answer is a lie";
    let status = Status::new(tonic::Code::from_i32(code as i32), message);
    let result = Err(FailedCall { status, verdict: None });
    Outcome { result, fault: Some(FaultMark::After), ..outcome }
}

/// Waits, hangs or crashes, as the fault says.
async fn apply_delay(tap: &Arc<Tap>, fault: &Fault) {
    sleep(Duration::from_millis(fault.delay_ms)).await;
    if fault.hang {
        hang(tap, fault).await;
    }
    if fault.crash {
        _ = kill(Pid::this(), Signal::SIGKILL);
        // SIGKILL may take effect a moment later.
        std::future::pending::<()>().await;
    }
}

async fn hang(tap: &Arc<Tap>, fault: &Fault) {
    loop {
        let (at, fault) = (Arc::clone(tap), fault.clone());
        if !spawn_blocking(move || at.faults.contains(&fault)).await.unwrap_or_default() {
            return;
        }
        sleep(HANG_POLL).await;
    }
}

/// False if this kind of answer cannot be wrong in this way.
fn falsify<M: prost::Message + Default + 'static>(
    wrong: WrongAnswer,
    result: &mut Result<Carried<M>, FailedCall>,
) -> bool {
    match result {
        Ok(answer) => answer.change(|answer| distort(wrong, answer)),
        Err(FailedCall { status, .. }) if wrong == WrongAnswer::Chatty => {
            let message = format!("{}\n{}", status.message(), chatter());
            *status = Status::with_metadata(status.code(), message, status.metadata().clone());
            true
        }
        Err(_) => false,
    }
}
