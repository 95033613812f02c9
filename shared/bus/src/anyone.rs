//! One question to whichever replica answers first.
//!
//! A queue group hands each request to one member, and a member that stands still gets its share
//! for as long as the server holds its connection for alive: half a minute. Who asks for something
//! that changes nothing need not wait for it.
//!
//! **Never** asks many: a service that is slow because it is busy gets three times as much to do,
//! and no more.

use std::time::Duration;

use async_nats::{HeaderMap, Message};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep};

use crate::exchange::ExchangeError;
use crate::handle::Bus;

/// When no answer has come by then, the question is put once more.
const ANOTHER_AFTER: Duration = Duration::from_millis(500);
/// It is put so often.
const ASKED_MAX: usize = 3;

impl Bus {
    pub(crate) async fn exchange_with_anyone(
        &self,
        subject: String,
        headers: HeaderMap,
        body: Bytes,
        within: Duration,
    ) -> Result<Message, ExchangeError> {
        let until = Instant::now() + within;
        let ask = || {
            let left = until.saturating_duration_since(Instant::now());
            self.exchange(subject.clone(), headers.clone(), body.clone(), left)
        };
        let (mut asked, mut count) = (FuturesUnordered::from_iter([ask()]), 1);
        loop {
            tokio::select! {
                Some(answer) = asked.next() => match answer {
                    // Another may answer yet.
                    Err(_) if !asked.is_empty() => {}
                    answer => return answer,
                },
                () = sleep(ANOTHER_AFTER), if count < ASKED_MAX => {
                    asked.push(ask());
                    count += 1;
                }
            }
        }
    }
}
