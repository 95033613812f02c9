//! The declaration of a plugin instance: its id, and a socket or a command.
//!
//! **Owns** its form in the agent's configuration and in the files of `plugins_dir`.
//!
//! **Promises** to report all faults at once. An unchanged declaration in the same place always has
//! the same key, by which a restarted agent finds the instance again.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_contract::decode::{Decode, Decoder};
use berth_domain::PluginId;
use berth_domain::limits::LIST_MAX;
use berth_service::config::check_socket_path;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Largest number of a command's arguments, and of its environment variables.
const WORDS_MAX: usize = LIST_MAX;
/// Largest size of an argument or a variable, in bytes.
const WORD_BYTES_MAX: usize = 4096;
/// The environment variable with the plugin's endpoint. The agent sets it.
pub const CSI_ENDPOINT: &str = "CSI_ENDPOINT";
/// The agent replaces this by the endpoint in arguments and variables. Many drivers take it as an
/// argument and read no variable: csi-driver-host-path and csi-driver-nfs among them.
const ENDPOINT_PLACEHOLDER: &str = "${CSI_ENDPOINT}";
/// Default of `health_timeout_ms`.
const HEALTH_TIMEOUT_DEFAULT_MS: u64 = 60_000;
/// Default of `stop_timeout_ms`.
const STOP_TIMEOUT_DEFAULT_MS: u64 = 10_000;

/// The place of a declaration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PluginSource {
    /// The agent's configuration.
    Configuration,
    /// A file of `plugins_dir`.
    File(PathBuf),
    /// A socket that was found. It has no declaration.
    Socket(PathBuf),
}

impl fmt::Display for PluginSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration => f.write_str("configuration"),
            Self::File(path) | Self::Socket(path) => path.display().fmt(f),
        }
    }
}

/// The declaration of one instance of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declaration {
    /// The plugin that this is an instance of.
    pub id: PluginId,
    /// The socket or the command.
    #[serde(rename = "reach")]
    pub endpoint: PluginEndpoint,
    /// The uid that the plugin runs as, if it is neither root's nor the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
}

/// How an instance is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PluginEndpoint {
    /// The operator runs it. It serves this socket, which may still be missing.
    Socket(PathBuf),
    /// The agent runs this command.
    Command(PluginCommand),
}

/// A command that the agent runs without a shell.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginCommand {
    /// The program's absolute path, and its arguments.
    pub argv: Vec<String>,
    /// Its environment, beside `PATH` and `CSI_ENDPOINT`.
    pub env: BTreeMap<String, String>,
    /// Time without health after which the agent restarts it, in milliseconds.
    pub health_timeout_ms: u64,
    /// Time from SIGTERM to SIGKILL, in milliseconds.
    pub stop_timeout_ms: u64,
}

impl PluginCommand {
    /// Replaces the endpoint's placeholder in an argument or a variable.
    pub fn expand(word: &str, endpoint: &str) -> String {
        word.replace(ENDPOINT_PLACEHOLDER, endpoint)
    }

    /// Why a process of this command may have no socket, with the remedy.
    pub fn why_no_socket(&self) -> String {
        let mut words = self.argv.iter().chain(self.env.values());
        if words.any(|word| word.contains(ENDPOINT_PLACEHOLDER)) {
            return "see why: its output is in the agent's log".to_owned();
        }
        format!(
            "it may not read {CSI_ENDPOINT}; where it takes its endpoint as an argument, add that \
             to `command`, such as \"--endpoint={ENDPOINT_PLACEHOLDER}\""
        )
    }

    /// Time without health after which the agent restarts it.
    pub fn health_timeout(&self) -> Duration {
        Duration::from_millis(self.health_timeout_ms)
    }

    /// Time from SIGTERM to SIGKILL.
    pub fn stop_timeout(&self) -> Duration {
        Duration::from_millis(self.stop_timeout_ms)
    }
}

/// Arguments and variables may be secret.
impl fmt::Debug for PluginCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = self.argv.first();
        f.debug_struct("Command").field("program", &program).finish_non_exhaustive()
    }
}

impl Declaration {
    /// A plugin that the operator runs.
    pub fn socket(id: PluginId, socket: impl Into<PathBuf>) -> Self {
        Self { id, endpoint: PluginEndpoint::Socket(socket.into()), owner: None }
    }

    /// The command, if the agent runs the plugin.
    pub fn command(&self) -> Option<&PluginCommand> {
        match &self.endpoint {
            PluginEndpoint::Socket(_) => None,
            PluginEndpoint::Command(command) => Some(command),
        }
    }

    /// Identifies the instance among all that ever were on the node: 48 bits of the SHA-256 of the
    /// declaration and its source, in hex. A changed declaration is another instance.
    pub fn key(&self, source: &PluginSource) -> String {
        let text = serde_json::json!([source, self]).to_string();
        let hash = Sha256::digest(text.as_bytes());
        hash.iter().take(6).fold(String::new(), |key, byte| format!("{key}{byte:02x}"))
    }
}

impl Decode for Declaration {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut fields = decoder.fields(value)?;
        let id = fields.field::<PluginId>("id");
        let socket = fields.field::<Option<String>>("socket");
        let argv = fields.field::<Option<Vec<String>>>("command");
        let env = fields.field::<Option<BTreeMap<String, String>>>("env");
        let owner = fields.field::<Option<u64>>("owner");
        let mut ms = |name, default| {
            let is_given = fields.has(name);
            fields.number(name, default, 100..=86_400_000).map(|ms| (is_given, ms))
        };
        let health_timeout = ms("health_timeout_ms", HEALTH_TIMEOUT_DEFAULT_MS);
        let stop_timeout = ms("stop_timeout_ms", STOP_TIMEOUT_DEFAULT_MS);
        fields.finish(&[]);
        let (socket, argv, env) = (socket?, argv?, env?);
        let Ok(owner) = owner?.map(u32::try_from).transpose() else {
            decoder.demand(false, "owner", "is the id of a user, below 4294967296");
            return None;
        };
        let (health_timeout, stop_timeout) = (health_timeout?, stop_timeout?);
        let endpoint = match (socket, argv) {
            (Some(socket), None) => {
                let alone = env.is_none() && !health_timeout.0 && !stop_timeout.0;
                let alone = decoder.demand(alone, "socket", "goes with nothing that a command has");
                let sound = check_socket_path(decoder, "socket", &socket);
                (alone && sound).then(|| PluginEndpoint::Socket(socket.into()))
            }
            (None, Some(argv)) => {
                let env = env.unwrap_or_default();
                let (health_timeout_ms, stop_timeout_ms) = (health_timeout.1, stop_timeout.1);
                let sound = check_command(decoder, &argv, &env);
                let command = PluginCommand { argv, env, health_timeout_ms, stop_timeout_ms };
                sound.then_some(PluginEndpoint::Command(command))
            }
            (socket, _) => {
                let fault = if socket.is_some() {
                    "goes without `command`"
                } else {
                    SOCKET_OR_COMMAND_MISSING
                };
                decoder.demand(false, "socket", fault);
                None
            }
        };
        Some(Self { id: id?, endpoint: endpoint?, owner })
    }
}

const SOCKET_OR_COMMAND_MISSING: &str =
    "is missing: a plugin has a `socket`, or a `command` that the agent runs";

fn check_command(decoder: &mut Decoder, argv: &[String], env: &BTreeMap<String, String>) -> bool {
    let sound = |word: &str| word.len() <= WORD_BYTES_MAX && !word.contains('\0');
    let program = argv.first().is_some_and(|program| Path::new(program).is_absolute());
    let words = argv.len() <= WORDS_MAX && argv.iter().all(|word| sound(word));
    let variables = env.len() <= WORDS_MAX
        && env.iter().all(|(name, value)| {
            let named = !name.is_empty() && !name.contains('=') && sound(name);
            named && sound(value)
        });
    let bounds = format!(
        "has at most {WORDS_MAX} entries of at most {WORD_BYTES_MAX} bytes, without zero bytes"
    );
    decoder.demand(program, "command", "must begin with the program's absolute path")
        & decoder.demand(words, "command", &bounds)
        & decoder.demand(variables, "env", &bounds)
        & decoder.demand(!env.contains_key(CSI_ENDPOINT), "env", "must not set CSI_ENDPOINT")
}

#[cfg(test)]
mod tests {
    use berth_contract::document::{Format, read};

    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let faults = read::<Declaration>(text, Format::Toml).unwrap_err();
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_socket_or_a_command() {
        let parse = |text: &str| read::<Declaration>(text, Format::Toml).unwrap();
        let socket = parse("id = 'p'\nsocket = '/run/p.sock'");
        assert_eq!(socket.endpoint, PluginEndpoint::Socket("/run/p.sock".into()));
        let command = parse("id = 'p'\ncommand = ['/bin/p', '-v']\nenv = { A = 'b' }");
        let command = command.command().unwrap();
        assert_eq!(command.argv, ["/bin/p", "-v"]);
        assert_eq!(command.env["A"], "b");
        assert_eq!(command.health_timeout(), Duration::from_secs(60));
        assert!(!format!("{command:?}").contains("-v"), "arguments may be secret");
        let owned = parse("id = 'p'\nsocket = '/run/p.sock'\nowner = 4711");
        assert_eq!((socket.owner, owned.owner), (None, Some(4711)));
    }

    #[test]
    fn the_placeholder_is_replaced_by_the_endpoint() {
        let expand = |word| PluginCommand::expand(word, "unix:///s");
        assert_eq!(expand("--endpoint=${CSI_ENDPOINT}"), "--endpoint=unix:///s");
        assert_eq!(expand("$CSI_ENDPOINT $(CSI_ENDPOINT)"), "$CSI_ENDPOINT $(CSI_ENDPOINT)");
        let parse = |text: &str| read::<Declaration>(text, Format::Toml).unwrap();
        let why = |text: &str| parse(text).command().unwrap().why_no_socket();
        assert!(why("id = 'p'\ncommand = ['/p']").contains("--endpoint=${CSI_ENDPOINT}"));
        let told = "id = 'p'\ncommand = ['/p']\nenv = { E = '${CSI_ENDPOINT}' }";
        assert!(!why(told).contains("may not read"), "{}", why(told));
    }

    #[test]
    fn every_fault_comes_at_once() {
        let text = "id = ''\ncommand = [1]\nhealth_timeout_ms = 1\nsize = 3";
        let all = faults(text);
        assert_eq!(all.len(), 4, "{all:?}");
        let text = "id = 'p'\ncommand = ['p']\n[env]\nCSI_ENDPOINT = 'x'";
        assert_eq!(faults(text).len(), 2);
        assert!(faults("id = 'p'")[0].contains("is missing"));
        let both = faults("id = 'p'\nsocket = '/s'\ncommand = ['/p']");
        assert!(both[0].contains("goes without"), "{both:?}");
        let with_env = faults("id = 'p'\nsocket = 's'\nenv = { A = 'b' }");
        assert_eq!(with_env.len(), 2, "{with_env:?}");
        for owner in ["-1", "4294967296", "'csi'"] {
            let all = faults(&format!("id = 'p'\nsocket = '/s'\nowner = {owner}"));
            assert!(all.len() == 1 && all[0].contains("owner"), "{all:?}");
        }
    }

    #[test]
    fn the_key_depends_on_the_declaration_and_its_source() {
        let id = || PluginId::new("p").unwrap();
        let at = |file: &str| PluginSource::File(file.into());
        let key = Declaration::socket(id(), "/a").key(&at("/x"));
        assert_eq!(key, Declaration::socket(id(), "/a").key(&at("/x")));
        assert_ne!(key, Declaration::socket(id(), "/b").key(&at("/x")));
        assert_ne!(key, Declaration::socket(id(), "/a").key(&at("/y")));
        assert_eq!(key.len(), 12);
        let owned = Declaration { owner: Some(1), ..Declaration::socket(id(), "/a") };
        assert_ne!(key, owned.key(&at("/x")));
        // Running agents find their processes by this key: it must never change.
        assert_eq!(key, "ed22b7c7f5f3");
    }
}
