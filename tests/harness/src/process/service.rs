//! How a test runs one of Berth's services: its log, its configuration and its bus.

use std::fs;
use std::path::PathBuf;

use super::{Program, binary};
use crate::dirs::Dir;
use crate::nats::Login;

impl Program {
    /// A service of the workspace, built if it is older than its sources. It logs to `<name>.log`
    /// in the directory.
    pub fn service(program: &str, name: &str, dir: &Dir) -> Self {
        Self::service_at(binary(program), name, dir)
    }

    /// [`Self::service`], from an existing binary.
    pub fn service_at(path: impl Into<PathBuf>, name: &str, dir: &Dir) -> Self {
        Self::new(name, path, dir.join(format!("{name}.log")))
    }

    /// Gives it this configuration, which is written beside its log.
    ///
    /// # Panics
    /// Where the file cannot be written.
    #[must_use]
    pub fn configured(self, toml: &str) -> Self {
        let file = self.log.with_extension("toml");
        fs::write(&file, toml).expect("the configuration can be written");
        self.arg("--config").arg(file)
    }

    /// Connects it to the bus, where its buckets have this many copies.
    #[must_use]
    pub fn on_bus(self, url: impl Into<String>, copies: u8) -> Self {
        self.env("BERTH__NATS__URL", url.into())
            .env("BERTH__NATS__REPLICAS", copies.to_string())
            .env("BERTH__NATS__INSECURE", "true")
    }

    /// Gives it an identity on a bus that asks for it.
    #[must_use]
    pub fn identified(self, login: &Login) -> Self {
        self.env("BERTH__NATS__INSECURE", "false")
            .env("BERTH__NATS__CREDS_FILE", &login.creds_file)
            .env("BERTH__NATS__CA_FILE", &login.ca_file)
    }
}
