//! The identity of a process in its spans and metrics.

use opentelemetry::{Key, KeyValue};
use opentelemetry_sdk::Resource;

/// A process, as collectors show it. The standard variables override it.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Such as `berth-claim`.
    pub service: String,
    /// Its version.
    pub version: String,
    /// The worker's name: which of several replicas.
    pub instance: String,
    /// The process's host.
    pub host: String,
}

impl Identity {
    pub(crate) fn resource(&self) -> Resource {
        // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, with a default name where they set none.
        let given = Resource::builder().build();
        let known = |key: &'static str| given.get(&Key::from_static_str(key));
        let named =
            known("service.name").is_some_and(|n| !n.as_str().starts_with("unknown_service"));
        let ours = [
            ("service.name", &self.service, named),
            ("service.version", &self.version, known("service.version").is_some()),
            ("service.instance.id", &self.instance, known("service.instance.id").is_some()),
            ("host.name", &self.host, known("host.name").is_some()),
        ];
        let missing = ours.into_iter().filter(|(_, _, given)| !given);
        let missing = missing.map(|(key, value, _)| KeyValue::new(key, value.clone()));
        Resource::builder().with_attributes(missing).build()
    }
}
