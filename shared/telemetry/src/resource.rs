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
    /// The worker's name, which distinguishes replicas.
    pub instance: String,
    /// The process's host.
    pub host: String,
}

impl Identity {
    pub(crate) fn resource(&self) -> Resource {
        // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, with a default name if they set none.
        let environment = Resource::builder().build();
        let variable = |key: &'static str| environment.get(&Key::from_static_str(key));
        let named =
            variable("service.name").is_some_and(|n| !n.as_str().starts_with("unknown_service"));
        let own_attributes = [
            ("service.name", &self.service, named),
            ("service.version", &self.version, variable("service.version").is_some()),
            ("service.instance.id", &self.instance, variable("service.instance.id").is_some()),
            ("host.name", &self.host, variable("host.name").is_some()),
        ];
        let missing = own_attributes.into_iter().filter(|(_, _, environment)| !environment);
        let missing = missing.map(|(key, value, _)| KeyValue::new(key, value.clone()));
        Resource::builder().with_attributes(missing).build()
    }
}
