//! Serves a driver, with its tap, at a socket.
//!
//! Owns: the start and the end of a server. Promises: the socket exists only while everything
//! behind it is ready. After SIGTERM or SIGINT, calls on their way may end, for up to [`DRAIN`].
//! Never: does the work of a call.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::faults::Faults;
use crate::log::Recorder;
use crate::mute::{self, Speech};
use crate::pass::Driver;
use crate::socket::{self, SocketError};
use crate::tap::Tapped;

/// How long calls that are on their way may take after SIGTERM.
pub const DRAIN: Duration = Duration::from_secs(10);

/// The settings of a socket with a tap.
#[derive(Args, Debug)]
pub struct Settings {
    /// Where to listen, as `unix:///run/plugin/csi.sock`
    #[arg(long, env = "CSI_ENDPOINT", value_parser = socket::parse)]
    endpoint: PathBuf,
    /// The file to append one line to for each beginning and end of a call
    #[arg(long, value_name = "FILE")]
    log: PathBuf,
    #[arg(long, value_name = "FILE", help = FAULTS_HELP)]
    faults: Option<PathBuf>,
    /// Be no plugin at all, but something else at its socket
    #[arg(long, value_name = "WHAT", default_value = "grpc")]
    speak: Speech,
}

/// Clap indents the lines and wraps them at 100 columns.
const FAULTS_HELP: &str = r#"A JSON file with faults to plant, read again whenever it changes, like
[{"rpc":"NodeStageVolume","volume":"v","delay_ms":500,"code":"ABORTED","times":1}]
A fault hits calls of one rpc, about one volume (without them: any), "before" or "after"
the work ("when"), at most so many "times", with a "probability" (0 to 1, by a "seed").
It waits "delay_ms", and then does one thing more, or nothing: "code": answer so;
"hang": true; "crash": true (SIGKILL); "lose_answer": true; or "wrong": one of
unknown-enum, no-ready, empty-topology, no-topology, negative-limit, other-name,
other-version, no-capabilities, chatty, nothing-done, less-capacity, no-id, other-id,
id-of-another, other-topology, endless-pages, endless-token, no-source.
The "volume" is an id; for CreateVolume, the name in the request; for CreateSnapshot and
CreateVolumeGroupSnapshot, a source; for other calls about a snapshot or group, its id"#;

/// Why a socket is not served.
#[derive(Debug, Error)]
pub enum ServeError {
    #[error("the call log {} cannot be written", path.display())]
    Log { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Driver(Box<dyn Error + Send + Sync>),
    #[error("the endpoint cannot be served")]
    Socket(#[from] SocketError),
    #[error("signals cannot be received")]
    Signal(#[source] io::Error),
    #[error("connections cannot be taken")]
    Accept(#[source] io::Error),
    #[error("serving broke off")]
    Transport(#[from] tonic::transport::Error),
}

impl Settings {
    /// Opens the log for the driver of this node.
    pub fn recorder(&self, node_id: &str) -> Result<Recorder, ServeError> {
        Recorder::open(&self.log, node_id).map_err(|error| self.not_logged(error))
    }

    pub fn not_logged(&self, source: io::Error) -> ServeError {
        ServeError::Log { path: self.log.clone(), source }
    }

    pub fn faults(&self) -> Faults {
        Faults::from_file(self.faults.clone())
    }
}

/// Serves what `start` makes ready, until SIGTERM or SIGINT. `start` also returns the words that
/// introduce it.
pub async fn serve<S: Driver>(
    settings: Settings,
    start: impl AsyncFnOnce(&Settings) -> Result<(Tapped<S>, String), ServeError>,
) -> Result<(), ServeError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Signal)?;
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    tokio::pin!(stop);
    let Settings { endpoint, speak, .. } = &settings;
    if *speak != Speech::Grpc {
        let (listener, _socket) = socket::listen(endpoint)?;
        eprintln!("no plugin, but {speak:?}, at {}", endpoint.display());
        return mute::sit(listener, *speak, stop).await.map_err(ServeError::Accept);
    }
    let (tapped, introduction) = tokio::select! {
        started = start(&settings) => started?,
        () = &mut stop => return Ok(()),
    };
    let (listener, socket) = socket::listen(endpoint)?;
    eprintln!("{introduction} at {}", endpoint.display());

    let tap = Arc::clone(&tapped.tap);
    let (stop_accepting, stopped) = oneshot::channel::<()>();
    let incoming = UnixListenerStream::new(listener);
    let serving = Server::builder().serve_with_incoming_shutdown(tapped, incoming, async {
        _ = stopped.await;
    });
    tokio::pin!(serving);
    tokio::select! {
        ended = &mut serving => return Ok(ended?),
        () = stop => {}
    }
    _ = stop_accepting.send(());
    let drain = async {
        let ended = serving.await;
        tap.idle().await;
        ended
    };
    let drained = timeout(DRAIN, drain).await;
    drop(socket);
    if let Ok(ended) = drained {
        return Ok(ended?);
    }
    eprintln!("calls were still running after {DRAIN:?}; they end unanswered");
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;
    use crate::faults::WrongAnswer;

    #[test]
    fn the_help_lists_each_wrong_answer() {
        for wrong in WrongAnswer::value_variants() {
            let name = serde_json::to_value(wrong).unwrap();
            let name = name.as_str().unwrap();
            let words = FAULTS_HELP.split([' ', ',', '.', '\n']);
            assert_eq!(words.filter(|word| *word == name).count(), 1, "{name}");
        }
    }
}
