//! The subscriptions of a service.

use tokio::time::timeout;

use super::spec::ServeError;
use crate::cause::Cause;
use crate::connection::handle::Bus;

/// Subscribes, for as long as one exchange may take.
pub(super) async fn listen(
    bus: &Bus,
    service: &str,
    subject: &str,
    queue_group: Option<&str>,
) -> Result<async_nats::Subscriber, ServeError> {
    let client = bus.client();
    let subscribing = timeout(bus.config().request_timeout, async {
        match queue_group {
            Some(group) => client.queue_subscribe(subject.to_owned(), group.to_owned()).await,
            None => client.subscribe(subject.to_owned()).await,
        }
    });
    let source = match subscribing.await {
        Ok(Ok(subscriber)) => return Ok(subscriber),
        Ok(Err(error)) => Cause::new(error),
        Err(_) => Cause::new("the client's queue is full"),
    };
    Err(ServeError::Unavailable {
        service: service.to_owned(),
        subject: subject.to_owned(),
        source,
    })
}
