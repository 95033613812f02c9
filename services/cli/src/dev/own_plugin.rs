//! A driver of the user's own, beside the development driver on each node (`--plugin FILE`).
//!
//! **Owns** reading the file. It has the form of a file in `plugins_dir` (docs/plugins.md): an
//! `id`, and a `command` with an `env`, or a `socket`. `${NODE}` in it is replaced by the node's
//! name, `${CSI_ENDPOINT}` by the endpoint that the driver of that node must serve.
//!
//! **Promises** that a command ends with this `berth dev`, like all its processes. A fleet's agent
//! would leave it running.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use berth_domain::PluginId;
use serde::Deserialize;
use serde_json::{Value, json};

use super::layout::{Layout, PLUGIN};
use crate::failure::Failure;

/// Stands for the node's name: a driver needs its own id on each node.
const NODE_PLACEHOLDER: &str = "${NODE}";
const ENDPOINT_PLACEHOLDER: &str = "${CSI_ENDPOINT}";
/// How many files `--plugin` may name.
pub const OWN_PLUGINS_MAX: usize = 8;

/// A driver of the user's own.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnPlugin {
    /// The plugin id that volumes use.
    pub id: PluginId,
    /// The number of its file, from 1.
    number: usize,
    file: PluginFile,
}

/// The content of the file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct PluginFile {
    id: String,
    #[serde(default)]
    command: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    socket: Option<String>,
    owner: Option<u32>,
    // Settings for an agent that supervises a command. This program supervises it in its own way.
    #[serde(flatten)]
    supervision: BTreeMap<String, toml::Value>,
}

/// A command for one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnCommand {
    /// The base name of its log and pid files.
    pub name: String,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Its whole environment, except `PATH`.
    pub env: BTreeMap<String, String>,
    /// The socket that it must serve.
    pub socket: PathBuf,
}

impl OwnPlugin {
    /// Reads each file.
    pub fn read_all(files: &[PathBuf]) -> Result<Vec<Self>, Failure> {
        if files.len() > OWN_PLUGINS_MAX {
            let message = format!("--plugin names {} files", files.len());
            return Err(Failure::usage(message, format!("name at most {OWN_PLUGINS_MAX}")));
        }
        let numbered = files.iter().enumerate();
        let own: Vec<Self> =
            numbered.map(|(at, file)| Self::read(file, at + 1)).collect::<Result<_, _>>()?;
        for (at, declared) in own.iter().enumerate() {
            let is_twice = own.iter().take(at).any(|other| other.id == declared.id);
            if is_twice || declared.id.as_str() == PLUGIN {
                let message = format!("plugin {} would be there twice", declared.id);
                return Err(Failure::usage(message, "give each plugin an `id` of its own"));
            }
        }
        Ok(own)
    }

    fn read(path: &Path, number: usize) -> Result<Self, Failure> {
        let next = "write it as docs/plugins.md says: `id`, and `command` or `socket`";
        let bad = |problem: String| Failure::usage(format!("{}: {problem}", path.display()), next);
        let text = fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
        let file: PluginFile =
            toml::from_str(&text).map_err(|error| bad(error.to_string().trim().to_owned()))?;
        let supervision_fields = ["health_timeout_ms", "stop_timeout_ms"];
        if let Some(field) =
            file.supervision.keys().find(|field| !supervision_fields.contains(&field.as_str()))
        {
            return Err(bad(format!("`{field}` is no field of a plugin")));
        }
        if file.command.is_empty() == file.socket.is_none() {
            return Err(bad("it needs one of `command` and `socket`".to_owned()));
        }
        if file.command.first().is_some_and(|program| !Path::new(program).is_absolute()) {
            return Err(bad("`command` must begin with the program's absolute path".to_owned()));
        }
        let id = PluginId::new(file.id.as_str()).map_err(|fault| bad(format!("`id`: {fault}")))?;
        Ok(Self { id, number, file })
    }

    /// Whether it has a command that gets its endpoint from the variable only. Many drivers do not
    /// read the variable.
    pub fn reads_only_the_variable(&self) -> bool {
        let mut words = self.file.command.iter().chain(self.file.env.values());
        !self.file.command.is_empty() && !words.any(|word| word.contains(ENDPOINT_PLACEHOLDER))
    }

    /// The plugin's part of an agent's configuration.
    pub fn declaration(&self, layout: &Layout, node: &str) -> Value {
        let socket = match &self.file.socket {
            Some(socket) => socket.replace(NODE_PLACEHOLDER, node),
            None => layout.own_socket(node, self.number).display().to_string(),
        };
        let mut declaration = json!({ "id": self.id, "socket": socket });
        if let Some(owner) = self.file.owner {
            declaration["owner"] = owner.into();
        }
        declaration
    }

    /// The command for a node; none when the user runs the driver.
    pub fn command(&self, layout: &Layout, node: &str) -> Option<OwnCommand> {
        if self.file.command.is_empty() {
            return None;
        }
        let socket = layout.own_socket(node, self.number);
        let endpoint = format!("unix://{}", socket.display());
        let expand = |word: &String| {
            word.replace(NODE_PLACEHOLDER, node).replace(ENDPOINT_PLACEHOLDER, &endpoint)
        };
        let mut env: BTreeMap<String, String> =
            self.file.env.iter().map(|(name, value)| (name.clone(), expand(value))).collect();
        env.insert("CSI_ENDPOINT".to_owned(), endpoint.clone());
        let argv = self.file.command.iter().map(expand).collect();
        Some(OwnCommand { name: format!("plugin{}-{node}", self.number), argv, env, socket })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<OwnPlugin>, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("p.toml");
        fs::write(&file, text).unwrap();
        OwnPlugin::read_all(&[file]).map_err(|failure| failure.to_string())
    }

    #[test]
    fn each_node_has_its_own_command_and_endpoint() {
        let text = "id = 'p'\ncommand = ['/p', '--node=x-${NODE}', '--at=${CSI_ENDPOINT}']\n\
                    env = { WHERE = '${NODE}' }\nstop_timeout_ms = 500";
        let own = read(text).unwrap();
        let layout = Layout::in_dir(PathBuf::from("/d"));
        let command = own[0].command(&layout, "n2").unwrap();
        assert_eq!(command.argv, ["/p", "--node=x-n2", "--at=unix:///d/run/n2-p1.sock"]);
        assert_eq!(command.env["WHERE"], "n2");
        assert_eq!(command.env["CSI_ENDPOINT"], "unix:///d/run/n2-p1.sock");
        let expected = json!({ "id": "p", "socket": "/d/run/n2-p1.sock" });
        assert_eq!(own[0].declaration(&layout, "n2"), expected);
        assert!(!own[0].reads_only_the_variable());
        assert!(read("id = 'p'\ncommand = ['/p']").unwrap()[0].reads_only_the_variable());
        let served = read("id = 'p'\nsocket = '/run/${NODE}.sock'\nowner = 7").unwrap();
        assert_eq!(served[0].command(&layout, "n1"), None);
        let expected = json!({ "id": "p", "socket": "/run/n1.sock", "owner": 7 });
        assert_eq!(served[0].declaration(&layout, "n1"), expected);
    }

    #[test]
    fn a_malformed_plugin_file_is_refused() {
        for (text, part) in [
            ("id = 'p'", "one of `command` and `socket`"),
            ("id = 'p'\ncommand = ['p']", "absolute path"),
            ("id = 'p'\ncommand = ['/p']\ncolour = 'red'", "`colour`"),
            ("id = ''\ncommand = ['/p']", "`id`"),
            ("id = 'dev.berth'\ncommand = ['/p']", "twice"),
            ("command = ['/p']", "missing field `id`"),
        ] {
            let refusal = read(text).unwrap_err();
            assert!(refusal.contains(part), "{text}: {refusal}");
        }
    }
}
