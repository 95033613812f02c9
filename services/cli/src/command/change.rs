//! The end of a command that changes the storage: it waits, or says how to follow the change.

use berth_contract::hint::{namespace_option, quoted};
use berth_contract::message::storage::StorageChanged;
use berth_contract::message::volume::VolumeStatus;
use berth_domain::{Namespace, VolumeId};
use tokio::time::Instant;

use crate::args::WaitArgs;
use crate::failure::Failure;
use crate::output::print_note;
use crate::session::Session;
use crate::storage::{CHANGE_PATIENCE, Change, StorageGoal};
use crate::table::plain;

/// When a wait of this session ends: `--timeout` from now, or else [`CHANGE_PATIENCE`].
pub fn deadline(session: &Session) -> Instant {
    Instant::now() + session.timeout.unwrap_or(CHANGE_PATIENCE)
}

/// A change of a volume, and whether the command waits for it.
#[derive(Debug)]
pub struct Following<'a> {
    /// The session.
    pub session: &'a Session,
    /// The volume's namespace.
    pub namespace: &'a Namespace,
    /// What the change is to lead to.
    pub goal: &'a StorageGoal,
    /// Whether to wait.
    pub wait: WaitArgs,
    /// When the wait ends.
    pub until: Instant,
}

impl Following<'_> {
    /// Waits, unless the user does not want to, and prints the answer. `text` gets the volume; none
    /// if it is gone, or if nothing was waited for.
    pub async fn finish(
        &self,
        id: &VolumeId,
        changed: StorageChanged,
        text: impl Fn(&StorageChanged, Option<&VolumeStatus>) -> String,
    ) -> Result<(), Failure> {
        let output = self.session.output;
        if self.wait.no_wait && !changed.gone {
            output.reply(&changed, |changed| text(changed, None));
            print_note(format_args!(
                "follow it with: berth volume status {}{} --watch",
                quoted(id.as_str()),
                namespace_option(self.namespace)
            ));
            return Ok(());
        }
        let volume = if changed.gone {
            None
        } else {
            let Self { session, namespace, goal, .. } = *self;
            let index = changed.index;
            Change { session, namespace, id, goal, index }.wait(self.until).await?
        };
        let reply = match &volume {
            Some(volume) => StorageChanged {
                index: volume.modify_index,
                storage: volume.storage.clone(),
                ..changed
            },
            None => StorageChanged { gone: true, storage: None, ..changed },
        };
        output.reply(&reply, |reply| text(reply, volume.as_ref()));
        let faults = volume.iter().filter_map(|volume| volume.storage.as_ref());
        for fault in faults.flat_map(|storage| &storage.faults) {
            print_note(format_args!("a fault of the plugin: {}", plain(fault)));
        }
        Ok(())
    }
}
