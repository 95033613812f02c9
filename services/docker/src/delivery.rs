//! Whether the engine received the response to a mount.
//!
//! **Promises** that a reference whose response was not written is given back once, whichever comes
//! first: the mount that counts it, or the end of the connection. The engine sends no unmount for a
//! mount whose response it did not receive.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// One use of a volume by one of Docker's IDs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountReference {
    pub name: String,
    pub id: String,
}

/// The response of one connection.
#[derive(Debug, Default)]
pub struct ResponseDelivery(Mutex<DeliveryState>);

#[derive(Debug, Default)]
struct DeliveryState {
    reference: Option<MountReference>,
    /// hyper took the body to write it.
    is_taken: bool,
    /// The connection has ended, or will carry another response.
    has_ended: bool,
}

impl ResponseDelivery {
    /// Whether the engine still waits for the response.
    pub fn is_awaited(&self) -> bool {
        !self.state().has_ended
    }

    /// Notes that the response will carry this reference. Returns it if the engine no longer waits.
    pub fn add_reference(&self, reference: MountReference) -> Result<(), MountReference> {
        let mut state = self.state();
        if state.has_ended {
            return Err(reference);
        }
        state.reference = Some(reference);
        Ok(())
    }

    /// Notes that hyper took the response's body to write it.
    pub fn mark_taken(&self) {
        self.state().is_taken = true;
    }

    /// Ends the delivery. Returns the reference of a response that was not written, which is to be
    /// dropped. `is_flushed` says that the connection ended without an error.
    pub fn end(&self, is_flushed: bool) -> Option<MountReference> {
        let mut state = self.state();
        state.has_ended = true;
        let reference = state.reference.take();
        reference.filter(|_| !(is_flushed && state.is_taken))
    }

    fn state(&self) -> MutexGuard<'_, DeliveryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference() -> MountReference {
        MountReference { name: "data".to_owned(), id: "x".to_owned() }
    }

    #[test]
    fn reference_is_given_back_once_unless_its_response_was_written() {
        for (is_taken, is_flushed, given_back) in
            [(true, true, None), (true, false, Some(reference())), (false, true, Some(reference()))]
        {
            let delivery = ResponseDelivery::default();
            delivery.add_reference(reference()).unwrap();
            if is_taken {
                delivery.mark_taken();
            }
            assert_eq!(delivery.end(is_flushed), given_back, "{is_taken} {is_flushed}");
            assert_eq!(delivery.end(false), None);
        }
    }

    #[test]
    fn reference_that_is_counted_after_the_end_is_refused() {
        let delivery = ResponseDelivery::default();
        assert!(delivery.is_awaited());
        assert_eq!(delivery.end(false), None);
        assert!(!delivery.is_awaited());
        assert_eq!(delivery.add_reference(reference()), Err(reference()));
    }
}
