//! How a program connects to the bus: `[nats]` of its configuration, and the flags that override
//! it.
//!
//! **Owns** the fields and the flags, which are the same for every program, and which of them may
//! be combined.
//!
//! **Promises** all faults at once, and that no secret is shown. Credentials in a flag replace
//! those of the file: they are never mixed.

use std::fmt;
use std::path::PathBuf;

use berth_bus::copies::is_copies;
use berth_bus::{ClientCertificate, Copies, Credentials, Tls};
use berth_contract::actor::Actor;
use berth_contract::decode::{Decode, Decoder};
use clap::Args;
use serde_json::{Map, Value, json};

/// The address of the bus if none is given.
const USUAL_URL: &str = "nats://127.0.0.1:4222";

/// The fields of `[nats]`.
const FIELDS: [&str; 11] = [
    "url",
    "replicas",
    "creds_file",
    "nkey_seed_file",
    "user",
    "password",
    "token",
    "ca_file",
    "cert_file",
    "key_file",
    "insecure",
];
/// The fields that identify the process.
const IDENTITY_FIELDS: [&str; 5] = ["creds_file", "nkey_seed_file", "user", "password", "token"];

/// The `[nats]` part.
#[derive(Clone, PartialEq, Eq)]
pub struct NatsConfig {
    /// The servers: one URL, or several separated by commas.
    pub url: String,
    /// Copies of each stream that the process makes; without a number, by the cluster's size.
    pub replicas: Copies,
    /// The identity of the process.
    pub credentials: Credentials,
    /// How the connection is encrypted.
    pub tls: Tls,
    /// Whether the program may also connect without credentials and without TLS.
    pub insecure: bool,
}

impl fmt::Debug for NatsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may contain a password; the bus's configuration shows it without.
        self.bus("", Actor::user("")).fmt(f)
    }
}

impl Default for NatsConfig {
    fn default() -> Self {
        let (credentials, tls, insecure) = Default::default();
        Self { url: USUAL_URL.to_owned(), replicas: Copies::ByCluster, credentials, tls, insecure }
    }
}

impl NatsConfig {
    /// The bus's own configuration, for a process of this name that acts as this actor.
    pub fn bus(&self, name: &str, actor: Actor) -> berth_bus::Config {
        let mut config = berth_bus::Config::new(self.url.split(',').map(str::trim), name);
        config.actor = actor;
        config.credentials = self.credentials.clone();
        config.tls = self.tls.clone();
        config.insecure = self.insecure;
        config
    }
}

impl Decode for NatsConfig {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut object = decoder.object(value)?;
        let mut text = |decoder: &mut Decoder, field| -> Option<Option<String>> {
            decoder.field(&mut object, field)
        };
        let url = text(decoder, "url");
        let identity = IDENTITY_FIELDS.map(|field| text(decoder, field));
        let [authority, certificate, key] =
            ["ca_file", "cert_file", "key_file"].map(|field| text(decoder, field));
        let replicas: Option<Option<u32>> = decoder.field(&mut object, "replicas");
        let insecure: Option<Option<bool>> = decoder.field(&mut object, "insecure");
        decoder.finish(&object, &FIELDS);
        let replicas = copies(decoder, replicas?);
        let url = url?.unwrap_or_else(|| USUAL_URL.to_owned());
        let address = check_addresses(decoder, &url);
        let [creds_file, seed_file, user, password, token] = identity;
        let credentials = credentials(decoder, [creds_file?, seed_file?, user?, password?, token?]);
        let tls = tls(decoder, [authority?, certificate?, key?]);
        let (replicas, credentials, tls) = (replicas?, credentials?, tls?);
        let insecure = insecure?.unwrap_or_default();
        address.then_some(Self { url, replicas, credentials, tls, insecure })
    }
}

fn copies(decoder: &mut Decoder, number: Option<u32>) -> Option<Copies> {
    let Some(number) = number else { return Some(Copies::ByCluster) };
    let valid = u8::try_from(number).ok().filter(|number| is_copies(*number));
    let problem = "must be 1, 3 or 5; left out, it follows the cluster's size";
    decoder.demand(valid.is_some(), "replicas", problem);
    valid.map(Copies::Exactly)
}

/// Records a fault for an address that no server can have, because connecting would only time out.
fn check_addresses(decoder: &mut Decoder, url: &str) -> bool {
    const SCHEMES: [&str; 4] = ["nats", "tls", "ws", "wss"];
    let is_address = |text: &str| match text.split_once("://") {
        Some((scheme, rest)) => SCHEMES.contains(&scheme) && !rest.is_empty(),
        None => !text.is_empty(),
    };
    let are_addresses = url.split(',').map(str::trim).all(is_address);
    // The address is not printed, because it may contain a password.
    decoder.demand(
        are_addresses,
        "url",
        "is no address; write nats://HOST:PORT, or several of them with commas between",
    )
}

fn credentials(decoder: &mut Decoder, fields: [Option<String>; 5]) -> Option<Credentials> {
    let ways = [&fields[0], &fields[1], &fields[2], &fields[4]];
    let is_one = decoder.demand(
        ways.into_iter().flatten().count() <= 1,
        "creds_file",
        "give one of creds_file, nkey_seed_file, user with password, and token",
    );
    let [creds_file, seed_file, user, password, token] = fields;
    let is_pair = decoder.demand(
        user.is_some() == password.is_some(),
        "user",
        "user and password must be given together",
    );
    if !(is_one && is_pair) {
        return None;
    }
    Some(match (creds_file, seed_file, user.zip(password), token) {
        (Some(file), ..) => Credentials::CredsFile(file.into()),
        (_, Some(file), ..) => Credentials::NkeySeedFile(file.into()),
        (_, _, Some((user, password)), _) => Credentials::Password { user, password },
        (.., Some(token)) => Credentials::Token(token),
        _ => Credentials::None,
    })
}

fn tls(decoder: &mut Decoder, fields: [Option<String>; 3]) -> Option<Tls> {
    let [authority, certificate, key] = fields.map(|file| file.map(PathBuf::from));
    let is_pair = decoder.demand(
        certificate.is_some() == key.is_some(),
        "cert_file",
        "cert_file and key_file must be given together",
    );
    let pair = certificate.zip(key);
    let client = pair.map(|(cert_file, key_file)| ClientCertificate { cert_file, key_file });
    is_pair.then_some(Tls { ca_file: authority, client })
}

/// The flags of every program for the address of the bus and the program's identity. The names are
/// those of the `nats` CLI.
#[expect(clippy::doc_markdown, reason = "`--help` shows the text as it is")]
#[derive(Clone, Default, Args)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionArgs {
    /// Where the bus is: one nats:// URL, or several separated by commas
    /// [default: nats://127.0.0.1:4222]
    #[arg(long = "nats", global = true, value_name = "URL", env = "BERTH_NATS_URL")]
    #[arg(hide_env_values = true)]
    url: Option<String>,
    /// The credentials: a .creds file
    #[arg(long = "creds", global = true, value_name = "FILE", env = "BERTH_CREDS")]
    #[arg(hide_env_values = true)]
    creds_file: Option<String>,
    /// The credentials: a file with the seed of an nkey
    #[arg(long = "nkey", global = true, value_name = "FILE", env = "BERTH_NKEY")]
    #[arg(hide_env_values = true)]
    nkey_seed_file: Option<String>,
    /// The credentials: a user, with --password
    #[arg(long, global = true, value_name = "NAME", env = "BERTH_USER", hide_env_values = true)]
    user: Option<String>,
    /// The user's password; others on the host see a flag, so give it as BERTH_PASSWORD
    #[arg(
        long,
        global = true,
        value_name = "TEXT",
        env = "BERTH_PASSWORD",
        hide_env_values = true
    )]
    password: Option<String>,
    /// The credentials: a token; others on the host see a flag, so give it as BERTH_TOKEN
    #[arg(long, global = true, value_name = "TEXT", env = "BERTH_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Connect also without credentials and without TLS, where anyone may do anything
    #[arg(long, global = true, env = "BERTH_INSECURE", hide_env_values = true)]
    pub insecure: bool,
    /// The authority of the servers' certificates, in PEM [default: those of the host]
    #[arg(long = "tlsca", global = true, value_name = "FILE", env = "BERTH_TLSCA")]
    #[arg(hide_env_values = true)]
    ca_file: Option<String>,
    /// A certificate for servers that ask for one, in PEM
    #[arg(long = "tlscert", global = true, value_name = "FILE", env = "BERTH_TLSCERT")]
    #[arg(hide_env_values = true)]
    cert_file: Option<String>,
    /// The certificate's key, in PEM
    #[arg(long = "tlskey", global = true, value_name = "FILE", env = "BERTH_TLSKEY")]
    #[arg(hide_env_values = true)]
    key_file: Option<String>,
}

impl fmt::Debug for ConnectionArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionArgs").finish_non_exhaustive()
    }
}

impl ConnectionArgs {
    /// Overrides the fields of `[nats]` by the flags.
    pub fn overlay(&self, nats: &mut Map<String, Value>) {
        let flags = self.given_flags();
        if flags.iter().any(|(field, _)| IDENTITY_FIELDS.contains(field)) {
            nats.retain(|field, _| !IDENTITY_FIELDS.contains(&field.as_str()));
        }
        nats.extend(flags.into_iter().map(|(field, value)| (field.to_owned(), json!(value))));
        if self.insecure {
            nats.insert("insecure".to_owned(), json!(true));
        }
    }

    fn given_flags(&self) -> Vec<(&'static str, &str)> {
        let flags = [
            ("url", &self.url),
            ("creds_file", &self.creds_file),
            ("nkey_seed_file", &self.nkey_seed_file),
            ("user", &self.user),
            ("password", &self.password),
            ("token", &self.token),
            ("ca_file", &self.ca_file),
            ("cert_file", &self.cert_file),
            ("key_file", &self.key_file),
        ];
        flags
            .into_iter()
            .filter_map(|(field, text)| Some((field, text.as_deref()?)))
            // An empty variable counts as not set.
            .filter(|(_, text)| !text.is_empty())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use berth_contract::decode::{Unknown, decode};

    use super::*;

    fn read(value: Value) -> Result<NatsConfig, Vec<String>> {
        let faults = |faults: Vec<berth_contract::decode::Fault>| {
            faults.into_iter().map(|fault| fault.path).collect()
        };
        decode(value, Unknown::Fault).map_err(faults)
    }

    #[test]
    fn each_way_to_prove_who_one_is() {
        let password = || Credentials::Password { user: "u".into(), password: "p".into() };
        let cases = [
            (json!({}), Credentials::None),
            (json!({ "creds_file": "/a" }), Credentials::CredsFile("/a".into())),
            (json!({ "nkey_seed_file": "/a" }), Credentials::NkeySeedFile("/a".into())),
            (json!({ "user": "u", "password": "p" }), password()),
            (json!({ "token": "t" }), Credentials::Token("t".into())),
        ];
        for (value, credentials) in cases {
            assert_eq!(read(value.clone()).unwrap().credentials, credentials, "{value}");
        }
    }

    #[test]
    fn what_does_not_fit_together_comes_at_once() {
        let value = json!({
            "url": "http://x", "replicas": 2, "creds_file": "/a", "token": "t", "user": "u",
            "cert_file": "/c",
        });
        let faults = read(value).unwrap_err();
        assert_eq!(faults, ["replicas", "url", "creds_file", "user", "cert_file"]);
    }

    #[test]
    fn credentials_of_a_flag_replace_those_of_the_file() {
        let mut nats = json!({ "creds_file": "/a", "ca_file": "/ca" }).as_object().unwrap().clone();
        let flags = ConnectionArgs { token: Some("t0ken".to_owned()), ..Default::default() };
        flags.overlay(&mut nats);
        let config = read(Value::Object(nats)).unwrap();
        assert_eq!(config.credentials, Credentials::Token("t0ken".to_owned()));
        assert_eq!(config.tls.ca_file, Some("/ca".into()));
        assert!(!format!("{config:?}{flags:?}").contains("t0ken"), "{config:?}");
    }
}
