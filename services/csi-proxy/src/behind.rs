//! A driver behind another socket.
//!
//! Owns: the connection to it, and asking what it is. Promises: the proxy waits for it for up to
//! [`START_MAX`]; if it ends and starts again later, or another process takes its socket's path,
//! calls reach the new process. Never: starts or ends it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_csi::{Client, Fingerprint, PathConnection, identify};
use clap::Args;
use thiserror::Error;
use tokio::time::{Instant, sleep};

use crate::gate::OneAtATime;
use crate::serve::{ServeError, Settings};
use crate::socket;
use crate::tap::{Tap, Tapped};

/// How long the driver may take to answer for the first time.
const START_MAX: Duration = Duration::from_secs(60);
/// Timeout of each question, and pause between attempts.
const ANSWER_MAX: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);

/// Where the driver is.
#[derive(Args, Debug)]
pub(crate) struct Behind {
    /// The driver's own socket, as `unix:///run/plugin/behind.sock`
    #[arg(long, value_parser = socket::parse)]
    to: PathBuf,
    /// The node that the log calls the driver by; without it, what `NodeGetInfo` answers
    #[arg(long)]
    node_id: Option<String>,
}

#[derive(Debug, Error)]
#[error("the driver at {} does not say what it is; start it, or name its socket in --to: {last}",
    socket.display())]
struct NoDriver {
    socket: PathBuf,
    last: String,
}

impl Behind {
    /// Waits for the driver, and puts a tap in front of it.
    pub async fn tap(
        self,
        settings: &Settings,
    ) -> Result<(Tapped<PathConnection>, String), ServeError> {
        let Self { to, node_id } = self;
        let client = Client::new(&to);
        let driver = wait_for(&client, &to).await?;
        let reported_node = driver.node.as_ref().and_then(|node| node.node_id.clone());
        let node_id = node_id.or(reported_node).unwrap_or_else(|| "controller".to_owned());
        let recorder = settings.recorder(&node_id)?.foreign();
        if let Some(node) = &driver.node {
            let attach =
                driver.controller.is_some_and(|controller| controller.publish_unpublish_volume);
            let started =
                recorder.start(attach, node.capabilities.stage_unstage_volume, Vec::new());
            started.map_err(|error| settings.not_logged(error))?;
        }
        let tap = Tap::new(recorder, settings.faults(), OneAtATime::default());
        let introduction =
            format!("{} of node {node_id}, behind {}, is served", driver.name, to.display());
        Ok((Tapped::new(tap, client.connection()), introduction))
    }
}

async fn wait_for(client: &Client, socket: &Path) -> Result<Fingerprint, ServeError> {
    let deadline = Instant::now() + START_MAX;
    loop {
        match identify(client, ANSWER_MAX).await {
            Ok(driver) => return Ok(driver),
            Err(error) if Instant::now() > deadline => {
                let (socket, last) = (socket.to_owned(), error.to_string());
                return Err(ServeError::Driver(Box::new(NoDriver { socket, last })));
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}
