//! The agent's own configuration.
//!
//! ```toml
//! node = "n1"
//! state_dir = "/var/lib/berth"
//!
//! [[plugin]]
//! id = "dev.berth"
//! socket = "/run/berth/dev.berth/csi.sock"
//! ```

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_contract::decode::{Decode, Decoder, Fields};
use berth_domain::NodeId;
use berth_domain::limits;
use berth_service::config::SHARED_FIELDS;
use serde_json::Value;

use crate::host::paths::STATE_DIR_BYTES_MAX;
use crate::plugins::declaration::Declaration;

/// What may be configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The node that this agent stands for.
    pub node: NodeId,
    /// Where the journal and the mounts are; this agent's alone.
    pub state_dir: PathBuf,
    /// Below which directories volumes may be put at paths of a caller's choice; nowhere when
    /// there are none.
    pub bind_below: Vec<PathBuf>,
    /// Plugins on this node.
    pub plugins: Vec<Declaration>,
    /// Where files come and go that each say of one more plugin.
    pub plugins_dir: Option<PathBuf>,
    /// Where sockets of plugins come and go.
    pub sockets_dir: Option<PathBuf>,
    /// How long the node counts as there after its agent was last heard of; whole seconds.
    pub lease_ttl: Duration,
    /// How often each plugin is asked whether it is well.
    pub probe_interval: Duration,
    /// How long it may take to answer that.
    pub probe_timeout: Duration,
    /// How often the node is reported though nothing changed.
    pub report_interval: Duration,
    /// How often it is looked whether what is mounted still answers.
    pub look_interval: Duration,
    /// How long a plugin may work on one call before the agent no longer waits for its answer and
    /// lets the next call at the volume. Far above any caller's deadline: callers are answered at
    /// theirs.
    pub plugin_patience: Duration,
    /// How long releases that are under way on the node are served after the agent was told to
    /// end, before its shutdown begins.
    pub finish_releases: Duration,
    /// How long requests under way may go on after the shutdown.
    pub drain: Duration,
    /// How long an alloc keeps what it has claimed while its `agent.mount-all` is not repeated.
    pub place_kept: Duration,
}

impl Decode for Config {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut fields = decoder.fields(value)?;
        let node = fields.field("node");
        let state_dir = fields.field::<String>("state_dir");
        let bind_below = fields.field::<Vec<String>>("bind_below");
        let plugins = fields.field::<Vec<Declaration>>("plugin");
        let plugins_dir = fields.field::<Option<String>>("plugins_dir");
        let sockets_dir = fields.field::<Option<String>>("sockets_dir");
        let lease_ttl = fields.number("lease_ttl_s", 10, 2..=limits::LEASE_TTL_MAX.as_secs());
        let mut ms =
            |name, default, range| fields.number(name, default, range).map(Duration::from_millis);
        let probe_interval = ms("probe_interval_ms", 2_000, 10..=3_600_000);
        let probe_timeout = ms("probe_timeout_ms", 5_000, 10..=3_600_000);
        let report_interval = ms("report_interval_ms", 10_000, 10..=3_600_000);
        let look_interval = ms("look_interval_ms", 10_000, 10..=3_600_000);
        let plugin_patience = ms("plugin_patience_ms", 600_000, 1_000..=86_400_000);
        let finish_releases = ms("finish_releases_ms", 20_000, 0..=3_600_000);
        let drain = ms("drain_ms", 10_000, 0..=3_600_000);
        let kept = u64::try_from(limits::PLACE_KEPT.as_millis()).unwrap_or(u64::MAX);
        let place_kept = ms("place_kept_ms", kept, 100..=3_600_000);
        let moved = refuse_docker(&mut fields);
        fields.finish(&SHARED_FIELDS);
        let bind_below = bind_below.and_then(|dirs| check_bind_below(decoder, dirs));
        let state_dir = state_dir.and_then(|dir| check_state_dir(decoder, dir));
        let plugins = plugins.and_then(|plugins| check_plugins(decoder, plugins));
        let plugins_dir =
            plugins_dir.filter(|dir| check_dir(decoder, "plugins_dir", dir.as_deref()));
        let sockets_dir =
            sockets_dir.filter(|dir| check_dir(decoder, "sockets_dir", dir.as_deref()));
        moved.then_some(Self {
            node: node?,
            state_dir: state_dir?,
            bind_below: bind_below?,
            plugins: plugins?,
            plugins_dir: plugins_dir?.map(PathBuf::from),
            sockets_dir: sockets_dir?.map(PathBuf::from),
            lease_ttl: Duration::from_secs(lease_ttl?),
            probe_interval: probe_interval?,
            probe_timeout: probe_timeout?,
            report_interval: report_interval?,
            look_interval: look_interval?,
            plugin_patience: plugin_patience?,
            finish_releases: finish_releases?,
            drain: drain?,
            place_kept: place_kept?,
        })
    }
}

/// Fields of before `berth-docker` was a process of its own, and what they are called there. An
/// agent that ignored them would leave containers without volumes.
const DOCKER_FIELDS: [(&str, &str); 3] = [
    ("docker_socket", "socket"),
    ("docker_engine", "engine"),
    ("docker_mount_timeout_ms", "mount_timeout_ms"),
];

/// Refuses [`DOCKER_FIELDS`]; whether none was there.
fn refuse_docker(fields: &mut Fields<'_>) -> bool {
    let mut is_sound = true;
    for (field, now) in DOCKER_FIELDS {
        let problem = format!(
            "is now `{now}` in /etc/berth/docker.toml: berth-docker serves Docker \
             (docs/docker.md)"
        );
        is_sound &= fields.refuse(field, problem);
    }
    is_sound
}

fn check_state_dir(decoder: &mut Decoder, dir: String) -> Option<PathBuf> {
    let problem = if !Path::new(&dir).is_absolute() {
        "must be an absolute path".to_owned()
    } else if dir.len() > STATE_DIR_BYTES_MAX {
        format!(
            "has {} bytes; at most {STATE_DIR_BYTES_MAX} leave room for the paths below it, of \
             which a plugin need take 128 bytes only",
            dir.len()
        )
    } else {
        return Some(dir.into());
    };
    decoder.demand(false, "state_dir", problem);
    None
}

fn check_bind_below(decoder: &mut Decoder, dirs: Vec<String>) -> Option<Vec<PathBuf>> {
    let mut sound = true;
    for (at, dir) in dirs.iter().enumerate().filter(|(_, dir)| !Path::new(dir).is_absolute()) {
        sound = false;
        let problem = format!("{dir:?} is not an absolute path");
        decoder.demand(false, &format!("bind_below[{at}]"), problem);
    }
    sound.then(|| dirs.into_iter().map(PathBuf::from).collect())
}

/// A second instance of a plugin comes by a file or a socket of its own.
fn check_plugins(decoder: &mut Decoder, plugins: Vec<Declaration>) -> Option<Vec<Declaration>> {
    let mut seen = BTreeSet::new();
    let mut sound = true;
    for (at, plugin) in plugins.iter().enumerate().filter(|(_, plugin)| !seen.insert(&plugin.id)) {
        sound = false;
        let problem = format!("stands for two plugins: {} is above already", plugin.id);
        decoder.demand(false, &format!("plugin[{at}].id"), problem);
    }
    sound.then_some(plugins)
}

fn check_dir(decoder: &mut Decoder, name: &str, dir: Option<&str>) -> bool {
    let sound = dir.is_none_or(|dir| Path::new(dir).is_absolute());
    decoder.demand(sound, name, "must be an absolute path")
}

#[cfg(test)]
mod tests {
    use berth_contract::decode::{Unknown, decode};
    use serde_json::json;

    use super::*;

    #[test]
    fn the_least_that_is_needed_is_enough() {
        let config: Config =
            decode(json!({"node": "n1", "state_dir": "/var/lib/berth"}), Unknown::Fault).unwrap();
        assert_eq!(config.lease_ttl, Duration::from_secs(10));
        assert_eq!(config.probe_interval, Duration::from_secs(2));
        assert!(config.plugins.is_empty());
    }

    #[test]
    fn every_fault_comes_at_once() {
        let long = "x".repeat(200);
        let input = json!({
            "state_dir": format!("/{long}"),
            "plugin": [
                {"id": "a", "socket": "/run/a.sock"},
                {"id": "a", "socket": "unix:///run/b.sock"},
                {"id": "c", "socket": format!("/{long}"), "sockets": 1},
                {"id": "", "socket": "/run/d.sock"},
            ],
            "lease_ttl_s": 1,
            "probe_interval_ms": 0,
            "drain_ms": "long",
            "colour": "red",
        });
        let faults = decode::<Config>(input, Unknown::Fault).unwrap_err();
        let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "node",
                "plugin[1].socket",
                "plugin[2].sockets",
                "plugin[2].socket",
                "plugin[3].id",
                "lease_ttl_s",
                "probe_interval_ms",
                "drain_ms",
                "colour",
                "state_dir",
            ]
        );
    }

    #[test]
    fn fields_of_docker_are_refused_with_the_file_they_are_in_now() {
        let input = json!({
            "node": "n1", "state_dir": "/var/lib/berth",
            "docker_socket": "/run/docker/plugins/berth.sock", "docker_engine": "/run/docker.sock",
        });
        let faults = decode::<Config>(input, Unknown::Fault).unwrap_err();
        let said: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].contains("`socket` in /etc/berth/docker.toml"), "{said:?}");
        assert!(said[1].contains("`engine` in /etc/berth/docker.toml"), "{said:?}");
    }

    #[test]
    fn plugins_are_told_apart() {
        let input = json!({
            "node": "n1", "state_dir": "var/lib",
            "plugin": [
                {"id": "a", "socket": "/run/a.sock"},
                {"id": "a", "command": ["/bin/b"]},
            ],
            "plugins_dir": "plugins.d", "sockets_dir": "/run/berth/plugins",
        });
        let faults = decode::<Config>(input, Unknown::Fault).unwrap_err();
        let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(paths, ["state_dir", "plugin[1].id", "plugins_dir"]);
    }
}
