//! What the last probes said of a plugin.

use berth_csi::Fingerprint;
use berth_domain::Timestamp;
use berth_domain::volume::HoldingProcess;

/// The result of the last probe of an instance. A plugin has the view of the instance that is
/// called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceView {
    /// Whether it answered its last probe and is ready.
    pub healthy: bool,
    /// The state, for people.
    pub description: String,
    /// When `healthy` last changed.
    pub since: Timestamp,
    /// Its name, version and capabilities. `None` until it has reported them.
    pub fingerprint: Option<Fingerprint>,
    /// The process that answered the last probe that had an answer, as far as it is known. It stays
    /// while the plugin does not answer, so that an outage is one report.
    pub process: Option<HoldingProcess>,
}

impl InstanceView {
    /// Whether its controller service can be called now: it is healthy and has one (E9).
    pub fn serves_controller(&self) -> bool {
        let fingerprint = self.fingerprint.as_ref().filter(|_| self.healthy);
        fingerprint.is_some_and(|known| known.controller.is_some())
    }
}

/// The views of the instances that controller and node calls go to. Most plugins have one for both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PluginHalves {
    pub(crate) controller: InstanceView,
    pub(crate) node: InstanceView,
}
