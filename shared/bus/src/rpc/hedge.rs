//! Sends a request that only reads to a second and a third replica, and takes the first answer.
//!
//! A queue group hands each request to one member. The server gives up the connection of a stalled
//! replica after 9 s (`ping_interval`), and sends it requests until then. With a second replica
//! asked, a stalled one does not delay the caller of a read.
//!
//! **Never** sends more than three requests, so that a busy service gets at most three times the
//! load.

use std::time::Duration;

use async_nats::{HeaderMap, Message};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep};

use crate::connection::exchange::ExchangeError;
use crate::connection::handle::Bus;

/// How long after a request the next one is sent.
const HEDGE_AFTER: Duration = Duration::from_millis(500);
/// Most requests sent for one read.
const REQUESTS_MAX: usize = 3;

impl Bus {
    pub(crate) async fn exchange_hedged(
        &self,
        subject: String,
        headers: HeaderMap,
        body: Bytes,
        within: Duration,
    ) -> Result<Message, ExchangeError> {
        let until = Instant::now() + within;
        let ask = || {
            let remaining = until.saturating_duration_since(Instant::now());
            self.exchange(subject.clone(), headers.clone(), body.clone(), remaining)
        };
        let (mut asked, mut count) = (FuturesUnordered::from_iter([ask()]), 1);
        loop {
            tokio::select! {
                Some(answer) = asked.next() => match answer {
                    // Another replica may still answer.
                    Err(_) if !asked.is_empty() => {}
                    answer => return answer,
                },
                () = sleep(HEDGE_AFTER), if count < REQUESTS_MAX => {
                    asked.push(ask());
                    count += 1;
                }
            }
        }
    }
}
