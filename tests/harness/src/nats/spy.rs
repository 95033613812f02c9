//! Listens to everything on the bus.

use std::sync::{Arc, Mutex};

use futures_util::StreamExt as _;
use tokio::task::JoinHandle;

use super::{Server, wire};

/// All messages that clients send, in the order in which the server had them.
#[derive(Debug)]
pub struct Spy {
    heard: Arc<Mutex<Vec<HeardMessage>>>,
    listening: JoinHandle<()>,
}

/// A message that was sent.
#[derive(Debug)]
pub struct HeardMessage {
    /// Its subject.
    pub subject: String,
    /// The subject of the answer, if the sender waits for one.
    pub reply: Option<String>,
    /// What it says.
    pub payload: Vec<u8>,
}

impl Spy {
    /// Listens from now on.
    ///
    /// # Panics
    /// When the server does not let it.
    pub async fn listen(server: &Server) -> Self {
        let mut messages = wire::subscribe(server, ">").await.expect("everything is heard");
        let heard = Arc::new(Mutex::new(Vec::new()));
        let out = Arc::clone(&heard);
        let listening = tokio::spawn(async move {
            while let Some(message) = messages.next().await {
                // What a consumer delivers has the subject under which it was stored.
                let reply = message.reply.map(|reply| reply.to_string());
                if !reply.as_ref().is_some_and(|reply| reply.starts_with("$JS.ACK.")) {
                    let (subject, payload) = (message.subject.to_string(), message.payload.into());
                    let heard = HeardMessage { subject, reply, payload };
                    out.lock().expect("nobody panics").push(heard);
                }
            }
        });
        Self { heard, listening }
    }

    /// What was heard since the last time.
    ///
    /// # Panics
    /// When the listener panicked.
    pub fn take(&self) -> Vec<HeardMessage> {
        std::mem::take(&mut self.heard.lock().expect("the listener runs"))
    }
}

impl Drop for Spy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}
