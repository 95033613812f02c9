//! The way to the driver, and the effect that its answer implies.
//!
//! Owns: passing the bytes of a message on and back, and reading an error's effect. Promises:
//! bytes, metadata and the text of an error arrive unchanged, except for the caller's deadline. A
//! driver may report the effect itself ([`Verdict`]); otherwise a code without a definite meaning
//! in CSI leaves it unknown. Never: retries.

use std::error::Error;
use std::time::Duration;

use berth_csi::client::ANSWER_BYTES_MAX;
use berth_csi::code::of_status;
use berth_csi::rpc::Unary;
use berth_csi::{Code, Rpc};
use bytes::{Buf, BufMut, Bytes};
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Request, Status};

use crate::log::CallEffect;

/// How long a driver may take for a call, however long its caller waits.
pub(crate) const CALL_MAX: Duration = Duration::from_secs(600);
/// Metadata of an error: what the driver changed, and the rule that its caller broke.
const EFFECT: &str = "berth-effect";
const RULE: &str = "berth-rule";
/// Not passed on: a driver does not learn how long its caller waits.
const DEADLINE: &str = "grpc-timeout";
/// Messages are passed on as they are, so none may be compressed.
const COMPRESSION: [&str; 2] = ["grpc-encoding", "grpc-accept-encoding"];

/// A driver: the gRPC services of this process, or a connection.
pub trait Driver:
    GrpcService<Body, ResponseBody = Body, Error: Send, Future: Send> + Handle
{
}

impl<S> Driver for S where
    S: GrpcService<Body, ResponseBody = Body, Error: Send, Future: Send> + Handle
{
}

/// A value of which each call can have its own copy.
pub trait Handle: Clone + Send + Sync + 'static {}

impl<S: Clone + Send + Sync + 'static> Handle for S {}

/// What a driver reports about a call that it refuses. The default: nothing was changed and no rule
/// was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    pub effect: CallEffect,
    /// The judge's name of the rule of order that the caller broke.
    pub rule: Option<String>,
}

impl Default for Verdict {
    fn default() -> Self {
        Self { effect: CallEffect::None, rule: None }
    }
}

impl Verdict {
    /// Puts it into the error's metadata, for the proxy in front.
    pub fn note_on(&self, status: &mut Status) {
        let effect = match self.effect {
            CallEffect::None => "none",
            CallEffect::Done => "done",
            CallEffect::Unknown => "unknown",
        };
        let notes = [(EFFECT, Some(effect)), (RULE, self.rule.as_deref())];
        for (name, value) in notes {
            if let Some(value) = value.and_then(|value| value.parse().ok()) {
                status.metadata_mut().insert(name, value);
            }
        }
    }

    /// Takes the driver's verdict off the error. `None` if there is none.
    fn take_from(status: &mut Status) -> Option<Self> {
        let metadata = status.metadata_mut();
        let effect = metadata.remove(EFFECT)?;
        let effect = match effect.to_str().ok()? {
            "none" => CallEffect::None,
            "done" => CallEffect::Done,
            _ => CallEffect::Unknown,
        };
        let rule = metadata.remove(RULE);
        Some(Self { effect, rule: rule.and_then(|rule| rule.to_str().ok().map(str::to_owned)) })
    }
}

/// A message and its bytes.
pub(crate) struct Carried<M> {
    pub message: M,
    pub bytes: Bytes,
    pub metadata: MetadataMap,
}

impl<M: prost::Message + Default> Carried<M> {
    pub fn decode(bytes: Bytes, metadata: MetadataMap) -> Result<Self, Status> {
        let message = M::decode(bytes.clone())
            .map_err(|error| Status::internal(format!("the message cannot be read: {error}")))?;
        Ok(Self { message, bytes, metadata })
    }

    pub fn encode(message: M) -> Self {
        Self { bytes: message.encode_to_vec().into(), message, metadata: MetadataMap::new() }
    }

    /// Changes the message, and encodes it again if `change` returns true.
    pub fn change(&mut self, change: impl FnOnce(&mut M) -> bool) -> bool {
        let is_changed = change(&mut self.message);
        if is_changed {
            self.bytes = self.message.encode_to_vec().into();
        }
        is_changed
    }
}

/// A call that did not succeed.
#[derive(Debug)]
pub(crate) struct FailedCall {
    pub status: Status,
    /// `None` if the driver does not report one.
    pub verdict: Option<Verdict>,
}

impl FailedCall {
    /// The effect of the call.
    pub fn effect(&self) -> CallEffect {
        match &self.verdict {
            Some(verdict) => verdict.effect,
            None if never_arrived(&self.status) => CallEffect::None,
            None if is_definite(of_status(&self.status)) => CallEffect::None,
            None => CallEffect::Unknown,
        }
    }
}

impl From<Status> for FailedCall {
    fn from(mut status: Status) -> Self {
        let verdict = Verdict::take_from(&mut status);
        Self { status, verdict }
    }
}

/// Whether no driver received the call.
fn never_arrived(status: &Status) -> bool {
    let mut causes = std::iter::successors(status.source(), |&error| error.source());
    causes.any(<dyn Error + 'static>::is::<tonic::ConnectError>)
}

/// Whether the code means in CSI that the call was refused before anything was changed.
fn is_definite(code: Code) -> bool {
    !matches!(
        code,
        Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::ResourceExhausted
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    )
}

/// Passes one request on. Its answer comes within [`CALL_MAX`].
pub(crate) async fn pass_on<S: Driver, R: Unary>(
    driver: &S,
    request: &Carried<R>,
) -> Result<Carried<R::Response>, FailedCall> {
    let mut metadata = request.metadata.clone();
    for name in COMPRESSION.iter().chain([&DEADLINE]) {
        metadata.remove(*name);
    }
    let request = Request::from_parts(metadata, Extensions::default(), request.bytes.clone());
    let answered = tokio::time::timeout(CALL_MAX, send::<S>(driver, R::RPC, request)).await;
    let late = |_| Status::deadline_exceeded(format!("the driver took over {CALL_MAX:?}"));
    let (metadata, bytes, _) = answered.map_err(late)??.into_parts();
    Ok(Carried::decode(bytes, metadata)?)
}

async fn send<S: Driver>(
    driver: &S,
    rpc: Rpc,
    request: Request<Bytes>,
) -> Result<tonic::Response<Bytes>, Status> {
    let mut grpc =
        tonic::client::Grpc::new(driver.clone()).max_decoding_message_size(ANSWER_BYTES_MAX);
    grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
    grpc.unary(request, PathAndQuery::from_static(rpc.path()), Raw).await
}

/// Messages as their bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, bytes: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(bytes);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_driver_notes_on_an_error_is_read_once() {
        let verdict =
            Verdict { effect: CallEffect::Unknown, rule: Some("second-writer".to_owned()) };
        let mut status = Status::failed_precondition("no");
        verdict.note_on(&mut status);
        let failed = FailedCall::from(status);
        assert_eq!(failed.effect(), CallEffect::Unknown);
        assert_eq!(failed.verdict, Some(verdict));
        assert!(failed.status.metadata().is_empty(), "{:?}", failed.status);
    }

    #[test]
    fn of_a_driver_that_notes_nothing_the_code_says_what_may_have_happened() {
        let effect = |status| FailedCall::from(status).effect();
        assert_eq!(effect(Status::not_found("no")), CallEffect::None);
        assert_eq!(effect(Status::aborted("busy")), CallEffect::None);
        assert_eq!(effect(Status::internal("mount")), CallEffect::Unknown);
        assert_eq!(effect(Status::unavailable("the connection broke")), CallEffect::Unknown);
    }
}
