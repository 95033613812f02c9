//! One call, from its arrival to its answer.
//!
//! Owns: the beginning in the log, the gate, and the end in the log; `sabotage` applies faults.
//! Promises: a call runs to its end even if its caller leaves. Before the answer is sent, the end
//! is in the log and the gate is open. Never: interprets a call.

use std::io;
use std::sync::Arc;

use berth_csi::redact::Secrets;
use berth_csi::rpc::Unary;
use berth_csi::{Code, Rpc};
use bytes::Bytes;
use tokio::task::{JoinError, spawn_blocking};
use tonic::{Request, Response, Status};

use crate::caller::{Caller, CallerGuard, InFlightGuard};
use crate::causes::chain;
use crate::faults::{CallFaults, FaultMark};
use crate::gate::Refused;
use crate::log::{CallBegin, LoggedCall};
use crate::pass::{Carried, Driver};
use crate::sabotage::run_with_faults;
use crate::subject::CallSubject;
use crate::tap::{Tap, Tapped};

/// Carries one call to the driver and its answer back.
pub(crate) async fn carry<S: Driver, R: Unary>(
    tapped: Tapped<S>,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, Status> {
    let (metadata, _, bytes) = request.into_parts();
    let request = Carried::<R>::decode(bytes, metadata)?;
    let caller = Arc::new(Caller::default());
    let recorder = Arc::clone(&tapped.tap.recorder);
    // A separate task: if the caller leaves, this future is dropped, and the call must go on.
    let task = tokio::spawn(run(tapped, request, Arc::clone(&caller)));
    let waiting = CallerGuard { recorder, caller };
    let answer = match task.await {
        Ok(Some(answer)) => answer,
        Ok(None) => std::future::pending().await,
        Err(error) => Err(broken(error)),
    };
    waiting.answered();
    answer
}

/// Runs one call from beginning to end. `None` if the answer is to be lost.
async fn run<S: Driver, R: Unary>(
    tapped: Tapped<S>,
    request: Carried<R>,
    caller: Arc<Caller>,
) -> Option<Result<Response<Bytes>, Status>> {
    let tap = Arc::clone(&tapped.tap);
    let _counted = InFlightGuard::enter(&tap.in_flight);
    let trace = request.metadata.get("traceparent").and_then(|trace| trace.to_str().ok());
    let call = LoggedCall::from_request(&request.message, trace);
    let subject = CallSubject::from_request(&request.message);
    let secrets = Secrets::values_in(&request.message);
    let (at, by) = (Arc::clone(&tap), Arc::clone(&caller));
    let (begin, entered) = match spawn_blocking(move || at.begin(call, &subject, &by)).await {
        Ok(Ok(begun)) => begun,
        Ok(Err(error)) => return Some(Err(not_logged(&error))),
        Err(error) => return Some(Err(broken(error))),
    };
    let outcome = match entered {
        // A separate task: if it panics, the call still gets its end in the log.
        Ok(faults) => {
            let run = async move { run_with_faults(&tapped, faults, request).await };
            tokio::spawn(run).await.unwrap_or_else(|error| Err(broken(error).into()).into())
        }
        Err(refused) => refused.into(),
    };
    let is_lost = outcome.fault == Some(FaultMark::Lost);
    let (outcome, answer) = outcome.settle(&secrets);
    let end = move || {
        let logged = tap.recorder.end(begin, outcome);
        // After the log line: the next call must not begin before this end is logged.
        caller.ended();
        logged
    };
    match spawn_blocking(end).await {
        Ok(Ok(())) if is_lost => None,
        Ok(Ok(())) => Some(answer),
        Ok(Err(error)) => Some(Err(not_logged(&error))),
        Err(error) => Some(Err(broken(error))),
    }
}

impl Tap {
    /// Logs the beginning of the call, passes it through the gate, and takes its faults.
    fn begin(
        &self,
        call: LoggedCall,
        subject: &CallSubject,
        caller: &Caller,
    ) -> io::Result<(CallBegin, Result<CallFaults, Refused>)> {
        let rpc: Rpc = call.rpc;
        let begin = self.recorder.begin(call)?;
        let (pass, entered) = match self.gate.enter(&begin, &subject.volumes) {
            Ok(pass) => (Some(pass), Ok(())),
            Err(refused) => (None, Err(refused)),
        };
        caller.begun(&self.recorder, begin.seq, pass);
        let faults = entered.and_then(|()| {
            self.faults
                .take(rpc, &subject.names())
                .map_err(|error| Refused::nothing_done(Code::Internal, chain(&error)))
        });
        Ok((begin, faults))
    }
}

fn broken(error: JoinError) -> Status {
    Status::internal(format!("the call broke off: {error}"))
}

fn not_logged(error: &io::Error) -> Status {
    Status::internal(format!("the call log cannot be written: {error}"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::task::{Context, Poll};

    use berth_csi::v1;
    use prost::Message as _;
    use tonic::body::Body;
    use tonic::codegen::{BoxFuture, Service, http};

    use super::*;
    use crate::faults::Faults;
    use crate::gate::OneAtATime;
    use crate::log::{CallEffect, LogEntry, Recorder};

    #[derive(Clone)]
    struct Broken;

    impl Service<http::Request<Body>> for Broken {
        type Response = http::Response<Body>;
        type Error = Infallible;
        type Future = BoxFuture<Self::Response, Infallible>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: http::Request<Body>) -> Self::Future {
            panic!("a fault of the program")
        }
    }

    #[tokio::test]
    async fn a_call_that_panics_ends_in_the_log_before_the_next_one_is_let_in() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("calls.log");
        let recorder = Recorder::open(&path, "n1").unwrap();
        let tap = Tap::new(recorder, Faults::from_file(None), OneAtATime::default());
        let tapped = Tapped::new(tap, Broken);
        let stage = v1::NodeStageVolumeRequest { volume_id: "v".into(), ..Default::default() };
        for _ in 0..2 {
            let bytes = Bytes::from(stage.encode_to_vec());
            let request = Request::new(bytes);
            let answer = carry::<_, v1::NodeStageVolumeRequest>(tapped.clone(), request).await;
            assert_eq!(answer.unwrap_err().code(), tonic::Code::Internal);
            let text = std::fs::read_to_string(&path).unwrap();
            let Ok(LogEntry::End(end)) = serde_json::from_str(text.lines().last().unwrap()) else {
                panic!("{text}")
            };
            assert_eq!(end.effect, CallEffect::Unknown);
        }
    }
}
