//! What is said of a plugin instance: its id, and a socket or a command.
//!
//! **Owns** the form, in the agent's configuration and in files of `plugins_dir` alike.
//!
//! **Promises** all faults at once; and the same key for what is said in the same way at the same
//! place, so that an instance is known again after the agent was killed.

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

/// Arguments of a command, and variables of its environment.
const WORDS_MAX: usize = LIST_MAX;
/// The longest of them, in bytes.
const WORD_BYTES_MAX: usize = 4096;
/// What the agent sets itself.
pub const CSI_ENDPOINT: &str = "CSI_ENDPOINT";
/// What stands for the endpoint in arguments and variables. Many drivers take it as an argument
/// and read no variable: csi-driver-host-path and csi-driver-nfs among them.
const ENDPOINT_PLACEHOLDER: &str = "${CSI_ENDPOINT}";
/// A command that has not been healthy for so long is started again.
const HEALTH_TIMEOUT_MS: u64 = 60_000;
/// How long a process may take to end before it is killed.
const STOP_TIMEOUT_MS: u64 = 10_000;

/// Where something is said of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PluginSource {
    /// In the agent's own configuration.
    Configuration,
    /// In a file.
    File(PathBuf),
    /// By a socket's own path.
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

/// One instance of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declaration {
    /// The plugin.
    pub id: PluginId,
    /// How it is reached.
    #[serde(rename = "reach")]
    pub endpoint: PluginEndpoint,
    /// The user that the plugin runs as, by its id, where it is neither root nor the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
}

/// How an instance is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PluginEndpoint {
    /// Somebody else runs it and serves this socket, which need not be there yet.
    Socket(PathBuf),
    /// The agent runs it.
    Command(PluginCommand),
}

/// A command to run, as it is given: no shell reads it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginCommand {
    /// The program's absolute path, and its arguments.
    pub argv: Vec<String>,
    /// Its environment, beside `PATH` and `CSI_ENDPOINT`.
    pub env: BTreeMap<String, String>,
    /// It is started again when it has not been healthy for so long, in milliseconds.
    pub health_timeout_ms: u64,
    /// It is killed when it has not ended so long after SIGTERM, in milliseconds.
    pub stop_timeout_ms: u64,
}

impl PluginCommand {
    /// An argument or variable, with the endpoint where its placeholder stands.
    pub fn expand(word: &str, endpoint: &str) -> String {
        word.replace(ENDPOINT_PLACEHOLDER, endpoint)
    }

    /// Why a process of this command may serve no socket, and the remedy, in words.
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

    /// It is started again when it has not been healthy for so long.
    pub fn health_timeout(&self) -> Duration {
        Duration::from_millis(self.health_timeout_ms)
    }

    /// It is killed when it has not ended so long after SIGTERM.
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
    /// A plugin that somebody else runs.
    pub fn socket(id: PluginId, socket: impl Into<PathBuf>) -> Self {
        Self { id, endpoint: PluginEndpoint::Socket(socket.into()), owner: None }
    }

    /// The command, when the agent runs it.
    pub fn command(&self) -> Option<&PluginCommand> {
        match &self.endpoint {
            PluginEndpoint::Socket(_) => None,
            PluginEndpoint::Command(command) => Some(command),
        }
    }

    /// Which instance this is, of all that ever were on the node: 48 bits of the SHA-256 of what is
    /// said and where, in hex. What is said otherwise is another instance.
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
        let health_timeout = ms("health_timeout_ms", HEALTH_TIMEOUT_MS);
        let stop_timeout = ms("stop_timeout_ms", STOP_TIMEOUT_MS);
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
                let both = if socket.is_some() { "goes without `command`" } else { NEITHER };
                decoder.demand(false, "socket", both);
                None
            }
        };
        Some(Self { id: id?, endpoint: endpoint?, owner })
    }
}

const NEITHER: &str = "is missing: a plugin has a `socket`, or a `command` that the agent runs";

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
        let of = |text: &str| read::<Declaration>(text, Format::Toml).unwrap();
        let socket = of("id = 'p'\nsocket = '/run/p.sock'");
        assert_eq!(socket.endpoint, PluginEndpoint::Socket("/run/p.sock".into()));
        let command = of("id = 'p'\ncommand = ['/bin/p', '-v']\nenv = { A = 'b' }");
        let command = command.command().unwrap();
        assert_eq!(command.argv, ["/bin/p", "-v"]);
        assert_eq!(command.env["A"], "b");
        assert_eq!(command.health_timeout(), Duration::from_secs(60));
        assert!(!format!("{command:?}").contains("-v"), "arguments may be secret");
        let owned = of("id = 'p'\nsocket = '/run/p.sock'\nowner = 4711");
        assert_eq!((socket.owner, owned.owner), (None, Some(4711)));
    }

    #[test]
    fn the_endpoint_is_put_where_its_placeholder_stands() {
        let expand = |word| PluginCommand::expand(word, "unix:///s");
        assert_eq!(expand("--endpoint=${CSI_ENDPOINT}"), "--endpoint=unix:///s");
        assert_eq!(expand("$CSI_ENDPOINT $(CSI_ENDPOINT)"), "$CSI_ENDPOINT $(CSI_ENDPOINT)");
        let of = |text: &str| read::<Declaration>(text, Format::Toml).unwrap();
        let why = |text: &str| of(text).command().unwrap().why_no_socket();
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
    fn an_instance_is_known_again_by_what_is_said_and_where() {
        let id = || PluginId::new("p").unwrap();
        let at = |file: &str| PluginSource::File(file.into());
        let key = Declaration::socket(id(), "/a").key(&at("/x"));
        assert_eq!(key, Declaration::socket(id(), "/a").key(&at("/x")));
        assert_ne!(key, Declaration::socket(id(), "/b").key(&at("/x")));
        assert_ne!(key, Declaration::socket(id(), "/a").key(&at("/y")));
        assert_eq!(key.len(), 12);
        let owned = Declaration { owner: Some(1), ..Declaration::socket(id(), "/a") };
        assert_ne!(key, owned.key(&at("/x")));
        // Processes of running nodes are known by it.
        assert_eq!(key, "ed22b7c7f5f3");
    }
}
