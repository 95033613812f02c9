//! What comes next of a claim: it is taken, reported on, released, and freed.

mod answer;
mod begin;
mod change;
mod confirm;
mod leave;
mod observe;
mod place;
mod recover;
mod release;
mod take;

pub(super) use answer::answer_claim;
pub(super) use begin::begin_release;
pub(super) use change::change;
pub(super) use confirm::confirm;
pub(super) use leave::{Detachment, detachment};
pub(super) use observe::observe;
pub(super) use recover::recover;
pub(super) use release::release;
pub(super) use take::take;
