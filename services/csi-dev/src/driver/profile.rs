//! The settings of an instance.
//!
//! Owns: what the plugin is called, what it can do, and which part of it this instance serves.
//! Promises: an ability is off if it is switched off, or if an ability that it needs is off. Never:
//! changes while the instance runs.

use clap::{Args, ValueEnum, value_parser};

use crate::ability::Ability;
use crate::backend::encoding::LONGEST_ID_BYTES;
use crate::topology::{Segments, parse_pair};

/// Longest name, in characters (CSI).
const LONGEST_NAME: usize = 63;

/// Which of the plugin's services an instance serves. What the plugin can do is the same for all.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
pub enum ServedPart {
    /// Controller and node
    #[default]
    All,
    /// The controller only: nothing is mounted here
    Controller,
    /// The node only: another instance is the controller
    Node,
}

/// What a careless plugin leaves out of a publish, and answers OK.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum IgnoredField {
    /// `readonly` of `NodePublishVolume`
    Readonly,
    /// `mount_flags`
    MountFlags,
    /// `fs_type`
    FsType,
}

/// How lists come in pages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
pub enum ListPages {
    /// A token says all, so any instance goes on with the list
    #[default]
    Stateless,
    /// Only the process that began a list goes on with it; for another one the list is at its end
    Process,
    /// A list ends with its first page: there is no token, however many entries are left
    Cut,
}

/// What an instance is, and can do.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is one switch of the command line")]
pub struct Profile {
    /// The node that this instance serves, as `NodeGetInfo` tells it
    #[arg(long, value_parser = parse_node_id)]
    pub node_id: String,
    /// The plugin's name
    #[arg(long, value_name = "NAME", default_value = "dev.berth", value_parser = parse_plugin_name)]
    pub driver_name: String,
    /// The plugin's version
    #[arg(long, value_name = "TEXT", default_value = berth_version::current())]
    pub vendor_version: String,
    /// How many volumes can be attached to this node; 0 means no limit
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = value_parser!(i64).range(0..))]
    pub max_volumes: i64,
    /// What the plugin cannot do, and what cannot be done without that; may be repeated
    #[arg(long, value_name = "ABILITY", value_delimiter = ',', hide_possible_values = false)]
    without: Vec<Ability>,
    #[command(flatten)]
    shorthands: AbilityShorthands,
    /// What the plugin ignores when it publishes, and answers OK all the same; may be repeated
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub ignore: Vec<IgnoredField>,
    /// Which of the plugin's services this instance serves; the others are another instance's
    #[arg(long, value_name = "SERVICES", default_value = "all")]
    serve: ServedPart,
    /// Be a storage system of its own: volumes made here exist on this node only, and calls about
    /// those of other nodes answer `NOT_FOUND`
    #[arg(long)]
    pub bound: bool,
    /// Where the node is, as topological segments; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = parse_pair)]
    topology: Vec<(String, String)>,
    /// Make each volume accessible from there, too, wherever it was requested, as a disk in two
    /// zones is; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = parse_pair)]
    also_from: Vec<(String, String)>,
    /// Make each snapshot usable from there only, wherever its volume is
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = parse_pair)]
    snapshots_from: Vec<(String, String)>,
    /// How `ListVolumes` and `ListSnapshots` come in pages
    #[arg(long, value_name = "HOW", default_value = "stateless")]
    pub list_pages: ListPages,
    /// Answer `ControllerGetVolume` about a volume that is not here with OK and an abnormal
    /// condition, as upstream's hostpath driver does
    #[arg(long)]
    pub get_anything: bool,
    /// Answer `ControllerPublishVolume` without a `publish_context`
    #[arg(long)]
    pub no_publish_context: bool,
    /// Carry out what CSI lets a plugin carry out and this one otherwise refuses: attach a second
    /// node, detach and delete what is mounted, unmount what another id has at the path. With
    /// `--bound`, answer OK to the deletion of what another node has. The calls are logged, and the
    /// judge finds what was wrong with them
    #[arg(long)]
    pub lenient: bool,
    /// How many bytes all volumes and snapshots may have together; without it, no limit
    #[arg(long, value_name = "N", value_parser = value_parser!(i64).range(0..))]
    pub pool_bytes: Option<i64>,
    /// Answer `UNAUTHENTICATED` to each call that takes secrets and has none of this value
    #[arg(long, value_name = "VALUE", env = "BERTH_CSI_DEV_SECRET", hide_env_values = true)]
    pub secret: Option<String>,
}

/// The abilities that tests switch off most.
#[derive(Args, Debug)]
struct AbilityShorthands {
    /// Do not attach; the same as --without attach
    #[arg(long)]
    no_attach: bool,
    /// Do not stage; the same as --without stage
    #[arg(long)]
    no_stage: bool,
    /// Be a node-only plugin; the same as --without controller
    #[arg(long)]
    no_controller: bool,
}

impl Profile {
    /// Whether the plugin has this ability.
    pub fn has(&self, ability: Ability) -> bool {
        let is_off = match ability {
            Ability::Attach => self.shorthands.no_attach,
            Ability::Stage => self.shorthands.no_stage,
            Ability::Controller => self.shorthands.no_controller,
            Ability::Topology => self.topology.is_empty(),
            _ => false,
        };
        !is_off
            && !self.without.contains(&ability)
            && ability.needs().iter().all(|need| self.has(*need))
    }

    /// Whether this instance serves the controller.
    pub fn is_controller(&self) -> bool {
        self.has(Ability::Controller) && self.serve != ServedPart::Node
    }

    /// Whether this instance serves a node.
    pub fn is_node(&self) -> bool {
        self.serve != ServedPart::Controller
    }

    /// The node's segments; empty if the plugin knows no topology.
    pub fn topology(&self) -> Segments {
        self.topology.iter().cloned().collect()
    }

    /// Where each volume is accessible from besides; nowhere if empty.
    pub fn also_from(&self) -> Segments {
        self.also_from.iter().cloned().collect()
    }

    /// Where each snapshot is usable from; everywhere if empty.
    pub fn snapshots_from(&self) -> Segments {
        self.snapshots_from.iter().cloned().collect()
    }

    /// Whether the plugin ignores this field.
    pub fn ignores(&self, field: IgnoredField) -> bool {
        self.ignore.contains(&field)
    }
}

fn parse_node_id(id: &str) -> Result<String, String> {
    if id.is_empty() || id.len() > LONGEST_ID_BYTES {
        return Err(format!("1 to {LONGEST_ID_BYTES} bytes, not {}", id.len()));
    }
    Ok(id.to_owned())
}

/// CSI: domain name notation.
fn parse_plugin_name(name: &str) -> Result<String, String> {
    let is_edge = |char: &char| char.is_ascii_alphanumeric();
    let is_inner = |char: char| is_edge(&char) || matches!(char, '-' | '.');
    let edges = [name.chars().next(), name.chars().last()];
    if name.len() <= LONGEST_NAME
        && name.chars().all(is_inner)
        && edges.iter().all(|edge| edge.as_ref().is_some_and(is_edge))
    {
        return Ok(name.to_owned());
    }
    Err(format!(
        "1 to {LONGEST_NAME} letters, digits, '-' and '.', with a letter or digit at both ends"
    ))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct TestCli {
        #[command(flatten)]
        profile: Profile,
    }

    fn with(flags: &[&str]) -> Profile {
        TestCli::parse_from([&["x", "--node-id", "n"], flags].concat()).profile
    }

    #[test]
    fn an_ability_is_off_without_the_abilities_it_needs() {
        let profile = with(&["--topology", "zone=a"]);
        assert!(Ability::value_variants().iter().all(|ability| profile.has(*ability)));

        let no_list = with(&["--without", "list"]);
        assert!(!no_list.has(Ability::List) && !no_list.has(Ability::PublishedNodes));
        assert!(no_list.has(Ability::Attach) && no_list.has(Ability::Capacity));

        let node_only = with(&["--no-controller"]);
        let on = Ability::value_variants().iter().filter(|ability| node_only.has(**ability));
        assert_eq!(
            on.map(ToString::to_string).collect::<Vec<_>>().join(" "),
            "expand-node online-expand stats condition health single-node-multi-writer stage \
             mount-group"
        );
    }

    #[test]
    fn plugin_names_are_domain_names() {
        for name in ["dev.berth", "a", "ebs.csi.aws.com", "x-1.y"] {
            assert!(parse_plugin_name(name).is_ok(), "{name}");
        }
        for name in ["", ".a", "a-", "a/b", "ä", &"a".repeat(LONGEST_NAME + 1)] {
            assert!(parse_plugin_name(name).is_err(), "{name}");
        }
    }
}
