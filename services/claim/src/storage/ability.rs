//! What a plugin must be able to do for a request.

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_domain::PluginId;
use berth_domain::plugin::{ControllerAbilities, Half, NodeAbilities};

use crate::store::state::StateInner;

/// One ability of a plugin, by CSI's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    CreateDeleteVolume,
    CloneVolume,
    CreateDeleteSnapshot,
    GroupSnapshot,
    ExpandVolume,
    ModifyVolume,
    ListVolumes,
    GetVolume,
    ListSnapshots,
    GetCapacity,
    Topology,
}

impl Ability {
    const fn is_in(self, can: &ControllerAbilities) -> bool {
        match self {
            Self::CreateDeleteVolume => can.create_delete_volume,
            Self::CloneVolume => can.clone_volume,
            Self::CreateDeleteSnapshot => can.create_delete_snapshot,
            Self::GroupSnapshot => can.group_snapshot,
            Self::ExpandVolume => can.expand_volume,
            Self::ModifyVolume => can.modify_volume,
            Self::ListVolumes => can.list_volumes,
            Self::GetVolume => can.get_volume,
            Self::ListSnapshots => can.list_snapshots,
            Self::GetCapacity => can.get_capacity,
            Self::Topology => can.topology,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::CreateDeleteVolume => "CREATE_DELETE_VOLUME",
            Self::CloneVolume => "CLONE_VOLUME",
            Self::CreateDeleteSnapshot => "CREATE_DELETE_SNAPSHOT",
            Self::GroupSnapshot => "CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT",
            Self::ExpandVolume => "EXPAND_VOLUME",
            Self::ModifyVolume => "MODIFY_VOLUME",
            Self::ListVolumes => "LIST_VOLUMES",
            Self::GetVolume => "GET_VOLUME",
            Self::ListSnapshots => "LIST_SNAPSHOTS",
            Self::GetCapacity => "GET_CAPACITY",
            Self::Topology => "VOLUME_ACCESSIBILITY_CONSTRAINTS",
        }
    }

    /// The purpose in words.
    const fn purpose(self) -> &'static str {
        match self {
            Self::CreateDeleteVolume => "create and delete volumes",
            Self::CloneVolume => "copy a volume into a new one",
            Self::CreateDeleteSnapshot => "cut, delete and restore snapshots",
            Self::GroupSnapshot => "cut snapshots of several volumes at one moment",
            Self::ExpandVolume => "expand volumes",
            Self::ModifyVolume => "change parameters of a volume",
            Self::ListVolumes => "list its volumes",
            Self::GetVolume => "tell of one volume",
            Self::ListSnapshots => "list its snapshots",
            Self::GetCapacity => "say how much room it has",
            Self::Topology => "create volumes in a topology",
        }
    }
}

/// How a plugin expands a volume.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExpansionWay {
    /// The controller expands only volumes that are not in use.
    pub offline: bool,
    /// No controller expands it: the nodes do, where it is mounted.
    pub node_only: bool,
}

impl StateInner {
    /// How the plugin expands volumes; a problem if it does not. CSI allows a plugin to do so on
    /// nodes only (`VolumeExpansion.ONLINE`).
    pub fn require_expansion(&self, plugin: &PluginId) -> Result<ExpansionWay, Problem> {
        let lacking = match self.require(plugin, Ability::ExpandVolume) {
            Ok(can) => {
                return Ok(ExpansionWay { offline: can.expand_offline_only, node_only: false });
            }
            Err(lacking) => lacking,
        };
        // While no controller is reported, none can be said to lack it.
        let node_only = !lacking.retryable || !self.has_controller_service(plugin);
        if node_only && self.expands_on_nodes(plugin) {
            return Ok(ExpansionWay { offline: false, node_only });
        }
        Err(lacking)
    }

    /// Whether a node of the plugin says that it expands volumes.
    pub fn expands_on_nodes(&self, plugin: &PluginId) -> bool {
        self.any_node(plugin, |node| node.expand_volume)
    }

    fn has_controller_service(&self, plugin: &PluginId) -> bool {
        self.any_node(plugin, |node| node.controller_service)
    }

    fn any_node(&self, plugin: &PluginId, is: impl Fn(&NodeAbilities) -> bool) -> bool {
        self.plugins.mirror.read(|plugins| {
            let instances = plugins.get(plugin).into_iter().flat_map(|it| it.instances.values());
            instances.filter_map(|instance| instance.node.as_ref()).any(is)
        })
    }

    /// The abilities of the first of the plugin's controllers that has this one; a problem if none
    /// has it. Any controller counts, because one of them gets the call.
    pub fn require(
        &self,
        plugin: &PluginId,
        ability: Ability,
    ) -> Result<ControllerAbilities, Problem> {
        let abilities = self.plugins.mirror.read(|plugins| {
            let plugin_state = plugins.get(plugin)?;
            let of_controllers =
                plugin_state.instances.iter().filter_map(|((_, half), instance)| {
                    instance.controller.filter(|_| *half == Half::Controller)
                });
            Some(of_controllers.collect::<Vec<_>>())
        });
        let Some(abilities) = abilities else {
            let message = format!("no agent has reported plugin {plugin}");
            return Err(Problem::new(Code::NoSuchPlugin, message).retryable());
        };
        let able = abilities.iter().find(|can| ability.is_in(can));
        able.copied().ok_or_else(|| {
            let purpose = ability.purpose();
            let lacks = |lacks: &str| {
                let message = format!("plugin {plugin} cannot {purpose}: it {lacks}");
                Problem::new(Code::PluginLacks, message).plugin(plugin)
            };
            match abilities.as_slice() {
                // If an agent or its plugin was restarted, the agent reports the abilities later.
                [] => lacks("has no controller that an agent has reported").retryable(),
                _ => lacks(&format!("does not say that it has the ability {}", ability.name())),
            }
        })
    }
}
