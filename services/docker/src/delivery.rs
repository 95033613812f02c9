//! Whether the engine learned of a reference that was counted for it.
//!
//! **Promises** that a reference whose answer was not written is given back, whoever is faster: the
//! mount that counts it, or the connection that ends. The engine sends no unmount for a mount that
//! it was not answered.

use std::sync::{Mutex, PoisonError};

/// One more use of a volume by one of Docker's IDs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The name.
    pub name: String,
    /// Docker's ID.
    pub id: String,
}

/// The way of one answer. It may come to a reference, and comes to an end.
#[derive(Debug, Default)]
pub struct Delivery(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Awaited,
    Counted(Reference),
    Ended,
}

impl Delivery {
    /// Whether anybody still waits for the answer.
    pub fn is_awaited(&self) -> bool {
        !matches!(*self.0.lock().unwrap_or_else(PoisonError::into_inner), State::Ended)
    }

    /// The answer will hold this reference; given back when nobody waits for it any more.
    pub fn count(&self, reference: Reference) -> Result<(), Reference> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Ended) {
            return Err(reference);
        }
        *state = State::Counted(reference);
        Ok(())
    }

    /// The answer was written, or never will be; then the reference is to be dropped.
    pub fn end(&self, written: bool) -> Option<Reference> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, State::Ended) {
            State::Counted(reference) if !written => Some(reference),
            State::Counted(_) | State::Awaited | State::Ended => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference() -> Reference {
        Reference { name: "data".to_owned(), id: "x".to_owned() }
    }

    #[test]
    fn what_was_written_stays_and_what_was_not_is_given_back_once() {
        let written = Delivery::default();
        written.count(reference()).unwrap();
        assert_eq!(written.end(true), None);

        let lost = Delivery::default();
        lost.count(reference()).unwrap();
        assert_eq!(lost.end(false), Some(reference()));
        assert_eq!(lost.end(false), None);
    }

    #[test]
    fn who_comes_too_late_keeps_it() {
        let gone = Delivery::default();
        assert!(gone.is_awaited());
        assert_eq!(gone.end(false), None);
        assert!(!gone.is_awaited());
        assert_eq!(gone.count(reference()), Err(reference()));
    }
}
