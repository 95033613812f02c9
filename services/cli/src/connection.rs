//! Where the bus is and who the user is: flags, variables, or a context of the `nats` CLI.
//!
//! **Owns** contexts: it reads those that `nats context` wrote, and never writes one. A flag or a
//! variable replaces what the context says.

use std::path::{Path, PathBuf};

use berth_bus::BadCredentials;
use berth_contract::actor::Actor;
use berth_contract::decode::{Unknown, decode};
use berth_service::connection::{ConnectionArgs, NatsConfig};
use serde_json::{Map, Value, json};

use crate::failure::Failure;

/// The fields of a context, and the settings of `[nats]` that they stand for.
const FIELDS: [(&str, &str); 9] = [
    ("url", "url"),
    ("creds", "creds_file"),
    ("nkey", "nkey_seed_file"),
    ("user", "user"),
    ("password", "password"),
    ("token", "token"),
    ("ca", "ca_file"),
    ("cert", "cert_file"),
    ("key", "key_file"),
];
/// Fields without which a context would mean something else, so that a context with one of them is
/// refused. The prefix of inboxes is not among them: it follows from the credentials.
const UNKNOWN_TO_BERTH: [&str; 7] = [
    "nsc",
    "user_jwt",
    "socks_proxy",
    "tls_first",
    "jetstream_domain",
    "jetstream_api_prefix",
    "windows_cert_store",
];

/// What the context says, and over it what the flags and variables say.
pub fn read(flags: &ConnectionArgs, context: Option<&str>) -> Result<NatsConfig, Failure> {
    let mut nats = match context {
        Some(name) => context_fields(name)?,
        None => Map::new(),
    };
    flags.overlay(&mut nats);
    decode(Value::Object(nats), Unknown::Fault).map_err(|faults| {
        let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
        Failure::usage(
            format_args!("the connection is not described rightly: {}", texts.join("; ")),
            "mend the flags, the variables or the context; `berth --help` lists them",
        )
    })
}

/// Who the user is to the services: as the credentials name them, or else the host.
pub fn actor(nats: &NatsConfig) -> Result<Actor, BadCredentials> {
    nats.credentials.user_actor(&std::env::var("USER").unwrap_or_default())
}

fn context_fields(name: &str) -> Result<Map<String, Value>, Failure> {
    let file = file_of(name)?;
    let refuse = |problem: String| {
        Failure::usage(
            format_args!("the context {name} cannot be used: {}: {problem}", file.display()),
            "list the contexts with `nats context ls`, or describe the connection by flags",
        )
    };
    let text = std::fs::read_to_string(&file).map_err(|error| refuse(error.to_string()))?;
    let context: Map<String, Value> =
        serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
    let is_set = |field: &str| match context.get(field) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(_) => true,
    };
    let unknown: Vec<&str> = UNKNOWN_TO_BERTH.into_iter().filter(|field| is_set(field)).collect();
    if !unknown.is_empty() {
        return Err(refuse(format!("berth does not know its {}", unknown.join(", "))));
    }
    let field = |(of_context, ours): (&str, &'static str)| {
        let text = context.get(of_context)?.as_str().filter(|text| !text.is_empty())?;
        let text = if ours.ends_with("_file") { expand_home(text) } else { text.to_owned() };
        Some((ours.to_owned(), json!(text)))
    };
    Ok(FIELDS.into_iter().filter_map(field).collect())
}

/// The file in which `nats context` keeps this context.
fn file_of(name: &str) -> Result<PathBuf, Failure> {
    let path = Path::new(name);
    if path.is_absolute() {
        return Ok(path.to_owned());
    }
    if name.is_empty() || path.components().count() != 1 || name.starts_with('.') {
        return Err(Failure::usage(
            format_args!("{name:?} is no name of a context"),
            "list the contexts with `nats context ls`",
        ));
    }
    let settings = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let settings =
        settings.filter(|dir| dir.is_absolute()).or_else(|| Some(home()?.join(".config")));
    let settings = settings.ok_or_else(|| {
        Failure::usage(
            "HOME is not set, so no context can be found",
            "give the context's whole path",
        )
    })?;
    Ok(settings.join("nats/context").join(format!("{name}.json")))
}

fn expand_home(path: &str) -> String {
    match (path.strip_prefix("~/"), home()) {
        (Some(below_home), Some(home)) => home.join(below_home).to_string_lossy().into_owned(),
        _ => path.to_owned(),
    }
}

fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use berth_bus::Credentials;

    use super::*;

    fn context(value: &Value) -> Result<NatsConfig, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("fleet.json");
        std::fs::write(&file, value.to_string()).unwrap();
        read(&ConnectionArgs::default(), file.to_str()).map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_context_of_the_nats_cli_is_read() {
        let value = json!({
            "description": "the fleet", "url": "tls://a:1,tls://b:1", "creds": "/c/anna.creds",
            "ca": "/c/ca.pem", "inbox_prefix": "_INBOX.U", "token": "", "user": "", "password": "",
            "nkey": "", "nsc": "", "tls_first": false, "color_scheme": "",
        });
        let config = context(&value).unwrap();
        assert_eq!(config.url, "tls://a:1,tls://b:1");
        assert_eq!(config.credentials, Credentials::CredsFile("/c/anna.creds".into()));
        assert_eq!(config.tls.ca_file, Some("/c/ca.pem".into()));
    }

    #[test]
    fn unsupported_fields_of_a_context_are_named() {
        let refusal = context(&json!({ "nsc": "nsc://x", "tls_first": true })).unwrap_err();
        assert!(refusal.contains("nsc, tls_first"), "{refusal}");
        let refusal = read(&ConnectionArgs::default(), Some("../x")).unwrap_err().to_string();
        assert!(refusal.contains("no name of a context"), "{refusal}");
    }
}
