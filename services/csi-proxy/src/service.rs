//! The gRPC service in front of a driver.
//!
//! Owns: finding the types of a call. Promises: streams, and calls that CSI 1.13 does not have, are
//! passed on unread. Never: reads a message.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::task::{Context, Poll};

use berth_csi::Rpc;
use berth_csi::rpc::{ForMessages, Unary};
use bytes::Bytes;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::UnaryService;

use crate::call::carry;
use crate::pass::{Driver, Raw};
use crate::tap::Tapped;

/// The largest accepted request, in bytes: gRPC's default.
const REQUEST_BYTES_MAX: usize = 4 * 1024 * 1024;

impl<S: Driver> Tapped<S> {
    /// Passes on a call whose messages are not decoded.
    async fn pass_unseen(mut self, request: http::Request<Body>) -> http::Response<Body> {
        let ready = std::future::poll_fn(|context| self.driver.poll_ready(context)).await;
        let answered = match ready {
            Ok(()) => self.driver.call(request).await,
            Err(error) => Err(error),
        };
        answered.unwrap_or_else(|error| Status::from_error(error.into()).into_http())
    }
}

type Answering = BoxFuture<http::Response<Body>, Infallible>;

impl<S: Driver> Service<http::Request<Body>> for Tapped<S> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Each call waits for the driver itself, so that the call is in the log.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Answering {
        let rpc = Rpc::of_path(request.uri().path());
        let tapped = self.clone();
        match rpc.and_then(|rpc| rpc.for_messages(Answers(PhantomData))) {
            Some(answer) => answer(tapped, request),
            None => Box::pin(async { Ok(tapped.pass_unseen(request).await) }),
        }
    }
}

/// Finds the function that answers a call.
struct Answers<S>(PhantomData<S>);

impl<S: Driver> ForMessages for Answers<S> {
    type Output = fn(Tapped<S>, http::Request<Body>) -> Answering;

    fn with<R: Unary>(self) -> Self::Output {
        |tapped, request| {
            Box::pin(async {
                let mut grpc =
                    tonic::server::Grpc::new(Raw).max_decoding_message_size(REQUEST_BYTES_MAX);
                Ok(grpc.unary(OneCall(tapped, PhantomData::<fn(R)>), request).await)
            })
        }
    }
}

struct OneCall<S, R>(Tapped<S>, PhantomData<fn(R)>);

impl<S: Driver, R: Unary> UnaryService<Bytes> for OneCall<S, R> {
    type Response = Bytes;
    type Future = BoxFuture<tonic::Response<Bytes>, Status>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        Box::pin(carry::<S, R>(self.0.clone(), request))
    }
}
