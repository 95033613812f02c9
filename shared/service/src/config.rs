//! Configuration: a TOML file, and environment variables that override it.
//!
//! **Owns** where a service's configuration comes from. The file is given by `--config`; a variable
//! `BERTH__NATS__URL` replaces `url` in `[nats]` (`__` separates the levels, case does not matter).
//! The flags of the [connection](ConnectionArgs) replace both. Of the files beside the
//! configuration, those that systemd hands to the service alone (`LoadCredential=`) are read where
//! it put them.
//!
//! **Promises** all faults at once, each with its field and, from the file, its line.

use std::fmt;
use std::path::{Path, PathBuf};

use berth_contract::decode::{Decode, Decoder, Fault, Unknown, decode};
use berth_contract::decode_struct;
use berth_contract::document::{Document, Format};
use berth_telemetry::TelemetryConfig;
use serde_json::{Map, Value};

use crate::connection::{ConnectionArgs, NatsConfig};
use crate::telemetry::LogConfig;

/// Prefix of the variables that are configuration.
const PREFIX: &str = "BERTH__";

/// The variable with the directory of the files that systemd passes to this service
/// (systemd.exec(5)).
const HANDED_IN: &str = "CREDENTIALS_DIRECTORY";

/// The suffix of a field whose value is the path of a file to read.
const FILE_FIELD: &str = "_file";

/// The fields that every service has in addition to its own.
pub const SHARED_FIELDS: [&str; 3] = ["nats", "log", "telemetry"];
/// The longest path of a socket, in bytes (unix(7): `sun_path` with its final zero byte).
const SOCKET_BYTES_MAX: usize = 107;

/// Records a fault if a socket cannot have this path. Returns whether it can.
pub fn check_socket_path(decoder: &mut Decoder, field: &str, path: &str) -> bool {
    let is_absolute = Path::new(path).is_absolute() && !path.contains('\0');
    let problem = format!("has {} bytes; a socket's path has {SOCKET_BYTES_MAX}", path.len());
    decoder.demand(is_absolute, field, "must be an absolute path, without unix://")
        & decoder.demand(path.len() <= SOCKET_BYTES_MAX, field, problem)
}

/// A service's configuration: the shared fields and its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config<Own> {
    /// The bus.
    pub nats: NatsConfig,
    /// Logs.
    pub log: LogConfig,
    /// Where spans and metrics go.
    pub telemetry: TelemetryConfig,
    /// The service's own fields; at the top level of the file, like the others.
    pub own: Own,
}

impl<Own: Decode> Decode for Config<Own> {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut object = decoder.object(value)?;
        let nats: Option<Option<NatsConfig>> = decoder.field(&mut object, "nats");
        let log: Option<Option<LogConfig>> = decoder.field(&mut object, "log");
        let telemetry: Option<Option<TelemetryConfig>> = decoder.field(&mut object, "telemetry");
        // The remaining fields are the service's own. `Own::decode` also reports unknown fields.
        let own = Own::decode(Value::Object(object), decoder);
        Some(Self {
            nats: nats?.unwrap_or_default(),
            log: log?.unwrap_or_default(),
            telemetry: telemetry?.unwrap_or_default(),
            own: own?,
        })
    }
}

/// The configuration of a service without fields of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Nothing {}
decode_struct!(Nothing {});

/// Why a configuration is not used.
#[derive(Debug)]
pub struct ConfigError {
    /// The file, if one was given.
    pub file: Option<PathBuf>,
    /// Every fault.
    pub faults: Vec<Fault>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.as_ref().map_or("environment".into(), |file| file.to_string_lossy());
        for (at, fault) in self.faults.iter().enumerate() {
            let newline = if at == 0 { "" } else { "\n" };
            write!(f, "{newline}{file}: {fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// Reads the configuration: the file, if one is given, overridden by the variables, and those by
/// the flags.
pub fn load<Own: Decode>(
    file: Option<&Path>,
    flags: &ConnectionArgs,
    variables: impl IntoIterator<Item = (String, String)>,
) -> Result<Config<Own>, ConfigError> {
    let fail = |faults| ConfigError { file: file.map(Path::to_path_buf), faults };
    let variables: Vec<(String, String)> = variables.into_iter().collect();
    let copies = HandedCopies::find(file, &variables);
    let text = match file {
        None => String::new(),
        Some(path) => std::fs::read_to_string(copies.locate(path)).map_err(|error| {
            let problem = format!("cannot be read: {error}");
            fail(vec![Fault { path: String::new(), problem, line: None }])
        })?,
    };
    let mut document = Document::parse(&text, Format::Toml).map_err(fail)?;
    overlay(&mut document.value, variables);
    overlay_flags(&mut document.value, flags);
    copies.overlay(&mut document.value);
    decode(document.value.clone(), Unknown::Fault)
        .map_err(|faults| fail(document.with_lines(faults)))
}

fn overlay(value: &mut Value, variables: impl IntoIterator<Item = (String, String)>) {
    for (name, text) in variables {
        let Some(path) = name.strip_prefix(PREFIX) else { continue };
        // Numbers and booleans are parsed; everything else is text.
        let leaf = match serde_json::from_str(&text) {
            Ok(leaf @ (Value::Number(_) | Value::Bool(_))) => leaf,
            _ => Value::String(text),
        };
        let levels: Vec<String> = path.split("__").map(str::to_ascii_lowercase).collect();
        set(value, &levels, leaf);
    }
}

fn overlay_flags(value: &mut Value, flags: &ConnectionArgs) {
    let Value::Object(all) = value else { return };
    let nats = all.entry("nats").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(nats) = nats {
        flags.overlay(nats);
    }
}

/// Copies of the files beside the configuration, which systemd made for this service.
struct HandedCopies {
    /// The directory of the configuration on the host, and the directory of the copies.
    directories: Option<(PathBuf, PathBuf)>,
}

impl HandedCopies {
    fn find(file: Option<&Path>, variables: &[(String, String)]) -> Self {
        let handed = variables.iter().find(|(name, _)| name == HANDED_IN);
        let beside = file.and_then(Path::parent);
        let both = beside.zip(handed);
        Self { directories: both.map(|(beside, (_, handed))| (beside.into(), handed.into())) }
    }

    /// The path at which this file is read. `SetCredential=` leaves an empty copy (a newline) of a
    /// file that the host lacks. Such a copy does not count, so that the error names the path on
    /// the host.
    fn locate(&self, file: &Path) -> PathBuf {
        let copy = self.directories.as_ref().and_then(|(beside, handed)| {
            let copy = handed.join(file.strip_prefix(beside).ok()?);
            std::fs::metadata(&copy).is_ok_and(|metadata| metadata.len() > 1).then_some(copy)
        });
        copy.unwrap_or_else(|| file.to_path_buf())
    }

    /// Replaces the path of each file that the configuration names.
    fn overlay(&self, value: &mut Value) {
        let Value::Object(fields) = value else { return };
        for (field, value) in fields {
            match value {
                Value::String(path) if field.ends_with(FILE_FIELD) => {
                    *path = self.locate(Path::new(path)).to_string_lossy().into_owned();
                }
                value => self.overlay(value),
            }
        }
    }
}

fn set(value: &mut Value, levels: &[String], leaf: Value) {
    let Some((name, below)) = levels.split_first() else {
        *value = leaf;
        return;
    };
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    if let Value::Object(object) = value {
        set(object.entry(name.clone()).or_insert(Value::Null), below, leaf);
    }
}

#[cfg(test)]
mod tests {
    use berth_bus::Copies;

    use super::*;

    #[derive(Debug, PartialEq)]
    struct Own {
        node: String,
        tries: u32,
    }
    decode_struct!(Own { node, tries = 3 });

    fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn the_environment_goes_over_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "node = 'n1'\n[nats]\nurl = 'nats://a:1'\n").unwrap();
        let overrides = variables(&[
            ("BERTH__NATS__URL", "nats://b:2"),
            ("BERTH__TRIES", "7"),
            ("BERTH_NODE", "not ours"),
            ("PATH", "/bin"),
        ]);
        let config: Config<Own> =
            load(Some(file.path()), &ConnectionArgs::default(), overrides).unwrap();
        assert_eq!(config.nats.url, "nats://b:2");
        assert_eq!(config.own, Own { node: "n1".to_owned(), tries: 7 });
    }

    /// The units of the services have `LoadCredential=` for files that only root may read.
    #[test]
    fn a_file_that_systemd_hands_over_is_read_in_place_of_the_hosts() {
        let handed = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(handed.path().join(name), text).unwrap();
        put(
            "claim.toml",
            "[nats]\ncreds_file = '/etc/berth/claim.creds'\nca_file = '/srv/claim.creds'\n",
        );
        put("claim.creds", "secret");
        put("tls.key", "\n");
        let overrides = [
            ("BERTH__NATS__CERT_FILE", "/etc/berth/tls.pem"),
            ("BERTH__NATS__KEY_FILE", "/etc/berth/tls.key"),
            ("CREDENTIALS_DIRECTORY", handed.path().to_str().unwrap()),
        ];
        let file = Some(Path::new("/etc/berth/claim.toml"));
        let nats =
            load::<Nothing>(file, &ConnectionArgs::default(), variables(&overrides)).unwrap().nats;
        let copy = handed.path().join("claim.creds");
        assert_eq!(nats.credentials, berth_bus::Credentials::CredsFile(copy));
        let tls = nats.tls;
        assert_eq!(tls.ca_file, Some(PathBuf::from("/srv/claim.creds")), "elsewhere");
        assert_eq!(tls.client.unwrap().key_file, Path::new("/etc/berth/tls.key"), "blank");

        let without = &overrides[..2];
        let error =
            load::<Nothing>(file, &ConnectionArgs::default(), variables(without)).unwrap_err();
        assert!(error.to_string().contains("/etc/berth/claim.toml: cannot be read"), "{error}");
    }

    #[test]
    fn the_copies_follow_the_cluster_unless_a_number_is_configured() {
        let read = |overrides: &[(&str, &str)]| {
            load::<Nothing>(None, &ConnectionArgs::default(), variables(overrides))
        };
        assert_eq!(read(&[]).unwrap().nats.replicas, Copies::ByCluster);
        for number in [1, 3, 5] {
            let config = read(&[("BERTH__NATS__REPLICAS", &number.to_string())]).unwrap();
            assert_eq!(config.nats.replicas, Copies::Exactly(number));
        }
        for refused in ["0", "2", "4", "7"] {
            let error = read(&[("BERTH__NATS__REPLICAS", refused)]).unwrap_err();
            assert!(error.to_string().contains("must be 1, 3 or 5"), "{error}");
        }
    }

    #[test]
    fn every_fault_comes_at_once_with_its_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "tries = 'many'\ncolour = 1\n[nats]\nreplicas = 2\nurls = 'x'\n\
             [log]\nformat = 'xml'\n[telemetry]\nendpoint = 'x'\nprotocol = 'y'\n";
        std::fs::write(file.path(), text).unwrap();
        let error =
            load::<Own>(Some(file.path()), &ConnectionArgs::default(), variables(&[])).unwrap_err();
        let faults_found: Vec<(&str, Option<usize>)> =
            error.faults.iter().map(|fault| (fault.path.as_str(), fault.line)).collect();
        assert_eq!(
            faults_found,
            [
                ("nats.urls", Some(5)),
                ("nats.replicas", Some(4)),
                ("log.format", Some(7)),
                ("telemetry.protocol", Some(10)),
                ("telemetry.endpoint", Some(9)),
                ("node", None),
                ("tries", Some(1)),
                ("colour", Some(2)),
            ]
        );
    }

    #[test]
    fn a_file_that_is_not_there_is_a_fault() {
        let error =
            load::<Nothing>(Some(Path::new("/nonexistent")), &ConnectionArgs::default(), [])
                .unwrap_err();
        assert!(error.to_string().contains("/nonexistent: cannot be read"), "{error}");
    }
}
