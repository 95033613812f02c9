//! The check whether a process is ready, for `/readyz`.

use std::fmt;
use std::pin::Pin;

type Reasons = Pin<Box<dyn Future<Output = Vec<String>> + Send>>;

/// Returns the reasons why a process is not ready, one per line; none if it is.
pub struct ReadyCheck(Box<dyn Fn() -> Reasons + Send + Sync>);

impl ReadyCheck {
    /// A check that runs in the process's own runtime.
    pub fn new<F>(check: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Vec<String>> + Send + 'static,
    {
        Self(Box::new(move || Box::pin(check())))
    }

    pub(crate) fn reasons(&self) -> Reasons {
        (self.0)()
    }
}

impl fmt::Debug for ReadyCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadyCheck")
    }
}
