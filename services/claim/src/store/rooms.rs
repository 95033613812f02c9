//! Where there is room for a volume that its first claim will have created.

use berth_domain::VolumeKey;
use berth_domain::room::Rooms;
use berth_domain::volume::storage::Stage;
use tokio::time::Instant;

use crate::store::room_table::VolumeKind;
use crate::store::state::StateInner;

impl StateInner {
    /// Where the volume's plugin has room for it, by its last answers; none for a volume that is
    /// not created by its next claim.
    pub async fn rooms_for(&self, volume: &VolumeKey, until: Instant) -> Option<Rooms> {
        let (kind, needed_bytes) = self.volumes.mirror.read(|volumes| {
            let spec = volumes.get(volume)?.volume.spec.as_ref()?;
            let provision = spec.provision().filter(|_| spec.stage() == Stage::Unused)?;
            Some((VolumeKind::from_spec(spec), provision.required_bytes))
        })?;
        let places = self.rooms.read_places(kind, until).await?;
        Some(Rooms::new(needed_bytes, places))
    }
}
