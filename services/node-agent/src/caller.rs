//! Who sent a request, how long they wait, and its trace.

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::{Namespace, Timestamp};

/// How long the caller of a request waits, and the trace of its request.
#[derive(Debug, Clone, Copy)]
pub struct RequestContext {
    pub deadline: Timestamp,
    pub trace: TraceContext,
}

/// Who sent a request, until when they wait, and its trace.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Who sent it, as records and events name the sender.
    pub by: Option<String>,
    pub context: RequestContext,
}

/// Refuses a request whose namespace is not that of its subject: rights are given for the latter.
pub fn check_namespace(asked_of: &Namespace, named: &Namespace) -> Result<(), Problem> {
    if asked_of.is_wildcard() || asked_of == named {
        return Ok(());
    }
    let message = "`namespace` must be the namespace of the request's subject";
    Err(Problem::new(Code::BadInput, message))
}
