//! The requests about plugins that change something.

mod delete;
mod expect;

pub use delete::delete;
pub use expect::expect;
