//! The plugins on this node.
//!
//! **Owns** for each instance of a plugin: the connection to its socket's path, the result of the
//! last probe ([`InstanceView`]), the task that probes it ([`supervise()`]), and the record on
//! disk.
//!
//! **Promises**
//! - that a plugin's capabilities are unknown until it has reported them, and stay known while it
//!   does not answer;
//! - that a socket that is missing, or is not a plugin's, is an unhealthy instance with a reason;
//! - that every call ends.
//!
//! **Never** decides which call to make. [`crate::roster`] decides which instances exist.
//!
//! | | |
//! | --- | --- |
//! | [`plugin`], [`pool`], [`fold`] | a plugin; its instances; which instance is called |
//! | [`member`], [`view`], [`mod@supervise`] | one instance; what was seen of it; its probes |
//! | [`declaration`] | one instance, as the configuration or a file declares it |
//! | [`process`] | the process of an instance that the agent runs |
//! | [`record`] | the record of an instance on disk |
//! | [`call_log`], [`outcome`] | the calls that were made; what a failed call means |
//! | [`room`] | whether the plugin has room on this node, by its last answers |
//! | [`reported`] | a plugin, as the registry is told of it |

pub(crate) mod call_log;
pub mod declaration;
mod fold;
pub(crate) mod member;
mod outcome;
mod plugin;
mod pool;
pub(crate) mod process;
pub mod record;
mod reported;
mod room;
mod storage_health;
mod storage_question;
mod supervise;
mod view;

pub use member::PluginInstance;
pub use outcome::{no_plugin, problem_from_call, problem_with_remedy};
pub use plugin::{Plugin, Plugins};
pub(crate) use supervise::SOCKET_GRACE;
pub use supervise::{ProbeTiming, supervise};
pub use view::InstanceView;
