//! Where there is room for a volume that its first claim will have created.
//!
//! **Promises** that a place counts as better only if a claim there would be granted now, as
//! [`route`](StateInner::route) decides.
//!
//! **Never** asks a plugin: what it last said counts.

use berth_domain::plugin::Half;
use berth_domain::room::Rooms;
use berth_domain::volume::VolumeSpec;
use berth_domain::volume::storage::{Stage, Topology};
use berth_domain::{NodeId, VolumeKey};
use berth_service::clock;
use tokio::time::Instant;

use crate::store::room_table::VolumeKind;
use crate::store::state::StateInner;

impl StateInner {
    /// Where the volume's plugin has room for it, by its last answers; none for a volume that is
    /// not created by its next claim.
    pub async fn rooms_for(&self, volume: &VolumeKey, until: Instant) -> Option<Rooms> {
        let spec = self.volumes.mirror.read(|volumes| {
            let spec = volumes.get(volume)?.volume.spec.as_ref()?;
            (spec.stage() == Stage::Unused).then(|| spec.clone())
        })?;
        let provision = spec.provision()?;
        // A copy may share the room of what it is a copy of, and be nowhere else.
        if provision.origin.is_some() {
            return None;
        }
        let places = self.rooms.read_places(VolumeKind::from_spec(&spec), until).await?;
        let find_place = |has_room: &dyn Fn(&Topology) -> bool| {
            let mut nodes = self.nodes_at(&spec, has_room).into_iter();
            let granted = nodes.find(|(node, _)| {
                let others = self.count_other_volumes(volume, node);
                self.route(volume, &spec, node, others, None).is_ok()
            });
            granted.map(|(_, place)| place)
        };
        Some(Rooms::new(provision.required_bytes, places, find_place))
    }

    /// The volume's plugin has no room, or may have some again: it is asked soon.
    pub fn doubt_room(&self, volume: &VolumeKey) {
        self.volumes.mirror.read(|volumes| {
            let spec = volumes.get(volume).and_then(|subtree| subtree.volume.spec.as_ref());
            spec.map(|spec| self.rooms.doubt_plugin(&spec.plugin))
        });
    }

    /// The nodes of the volume's plugin at places that pass a test, and did not just refuse to
    /// create the volume.
    fn nodes_at(
        &self,
        spec: &VolumeSpec,
        is_at: impl Fn(&Topology) -> bool,
    ) -> Vec<(NodeId, Topology)> {
        let now = clock::now();
        let is_refused = |place: &Topology| {
            let until = spec.provision().and_then(|provision| provision.refused_until(place));
            until.is_some_and(|until| until > now)
        };
        self.plugins.mirror.read(|plugins| {
            let instances = plugins.get(&spec.plugin).into_iter().flat_map(|it| &it.instances);
            let nodes = instances.filter(|((_, half), _)| *half == Half::Node);
            let places = nodes.filter_map(|((node, _), instance)| {
                let place = &instance.node.as_ref()?.topology;
                (is_at(place) && !is_refused(place)).then(|| (node.clone(), place.clone()))
            });
            places.collect()
        })
    }
}
