//! The question whether a process is ready, as `/readyz` asks it.

use std::fmt;
use std::pin::Pin;

type Reasons = Pin<Box<dyn Future<Output = Vec<String>> + Send>>;

/// Says why a process is not ready, one reason a line; nothing when it is.
pub struct ReadyCheck(Box<dyn Fn() -> Reasons + Send + Sync>);

impl ReadyCheck {
    /// A check, which runs in the process's own runtime.
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
