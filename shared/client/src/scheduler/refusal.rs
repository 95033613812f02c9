//! A refusal, by the reaction of a scheduler.

use berth_contract::advice::Advice;
use berth_contract::problem::Problem;
use thiserror::Error;

/// Why a request was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Retry later: the cause may end by itself, or with another workload.
    #[error("{0}")]
    Wait(Problem),
    /// Place the alloc on another node.
    #[error("{0}")]
    Elsewhere(Problem),
    /// Give the alloc up, or change its request.
    #[error("{0}")]
    Never(Problem),
    /// It may have been done. Retry, which is harmless.
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
