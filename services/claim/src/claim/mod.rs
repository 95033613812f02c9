//! Claims: taken, granted, given up; and the proofs that stand in for a node that is gone.

mod change;
pub mod deadlock;
pub mod line;
pub mod locate;
pub mod observe;
pub mod proof;
pub mod recover;
pub mod regrant;
pub mod release;
pub mod take;
