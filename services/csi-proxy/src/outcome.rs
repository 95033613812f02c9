//! The outcome of a call.
//!
//! Owns: which parts of it are logged, and which the caller gets. Promises: no secret of the
//! request is in the log's text. Never: changes an answer.

use berth_csi::Code;
use berth_csi::code::of_status;
use berth_csi::redact::Secrets;
use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use tonic::{Extensions, Response, Status};

use crate::faults::FaultMark;
use crate::gate::Refused;
use crate::log::{CallEffect, CallOutcome, to_bounded_json};
use crate::pass::{Carried, FailedCall};

/// The outcome of a call.
pub(crate) struct Outcome<M> {
    pub result: Result<Carried<M>, FailedCall>,
    /// What was changed, whatever the result says.
    pub effect: CallEffect,
    /// The rule of order that the caller broke, according to the driver.
    pub rule: Option<String>,
    /// What a fault did to the answer.
    pub fault: Option<FaultMark>,
}

impl<M> From<Result<Carried<M>, FailedCall>> for Outcome<M> {
    fn from(result: Result<Carried<M>, FailedCall>) -> Self {
        let (effect, rule) = match &result {
            Ok(_) => (CallEffect::Done, None),
            Err(failed) => {
                let rule = failed.verdict.as_ref().and_then(|verdict| verdict.rule.clone());
                (failed.effect(), rule)
            }
        };
        Self { result, effect, rule, fault: None }
    }
}

impl<M> From<Refused> for Outcome<M> {
    fn from(Refused { status, verdict }: Refused) -> Self {
        Err(FailedCall { status, verdict: Some(verdict) }).into()
    }
}

impl<M: Serialize> Outcome<M> {
    /// Its log entry and its answer.
    pub fn settle(self, secrets: &Secrets) -> (CallOutcome, Result<Response<Bytes>, Status>) {
        let Self { result, effect, rule: violation, fault } = self;
        match result {
            Ok(Carried { message, bytes, metadata }) => {
                let (code, message, answer) = (Code::Ok, String::new(), to_bounded_json(&message));
                let answered = Response::from_parts(metadata, bytes, Extensions::default());
                (CallOutcome { code, message, effect, violation, fault, answer }, Ok(answered))
            }
            Err(FailedCall { status, .. }) => {
                let (code, message) = (of_status(&status), secrets.strike(status.message()));
                let answer = Value::Null;
                (CallOutcome { code, message, effect, violation, fault, answer }, Err(status))
            }
        }
    }
}
