//! A refusal, by what a scheduler does about it.

use berth_contract::advice::Advice;
use berth_contract::problem::Problem;
use thiserror::Error;

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Ask again, later: it may pass by itself, or when others end.
    #[error("{0}")]
    Wait(Problem),
    /// Place the alloc on another node.
    #[error("{0}")]
    Elsewhere(Problem),
    /// Give the alloc up, or change what it asks for.
    #[error("{0}")]
    Never(Problem),
    /// It may have been done. Ask again, which is harmless.
    #[error("{0}")]
    Unknown(Problem),
}

impl Refusal {
    /// The error, with its code, what it names, and the next thing to try.
    pub const fn problem(&self) -> &Problem {
        match self {
            Self::Wait(problem)
            | Self::Elsewhere(problem)
            | Self::Never(problem)
            | Self::Unknown(problem) => problem,
        }
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        match problem.advice() {
            Advice::Wait => Self::Wait(problem),
            Advice::Elsewhere => Self::Elsewhere(problem),
            Advice::Never => Self::Never(problem),
            Advice::Unknown => Self::Unknown(problem),
        }
    }
}
