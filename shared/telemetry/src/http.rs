//! OTLP over HTTP with hyper, which the process uses anyway.
//!
//! The SDK exports from its own thread, where hyper finds no tokio runtime. So each request runs on
//! the runtime of the process.

use std::time::Duration;

use async_trait::async_trait;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use tokio::runtime::Handle;

/// A client whose requests run on the runtime it was made in.
#[derive(Debug)]
pub(crate) struct OnRuntime {
    client: HyperClient,
    runtime: Handle,
}

impl OnRuntime {
    pub(crate) fn new(runtime: Handle, timeout: Duration) -> Self {
        Self { client: HyperClient::with_default_connector(timeout, None), runtime }
    }
}

#[async_trait]
impl HttpClient for OnRuntime {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        self.runtime.spawn(async move { client.send_bytes(request).await }).await?
    }
}
