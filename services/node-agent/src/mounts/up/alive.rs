//! Checks that a mount answers before a workload gets its path.
//!
//! The mount table still lists a mount whose server has died or whose device has vanished. A
//! workload with such a path would fail later, far from the cause.

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::hint::namespace_option;
use berth_contract::message::claim::Grant;
use berth_contract::problem::Problem;
use berth_domain::{NodeId, Timestamp};
use berth_host::MountTable;
use berth_service::clock;

use crate::host::paths::VolumePaths;
use crate::journal::Disk;
use crate::mounts::health::{self, MountHealths, ProbeAnswer};

/// Time before the caller's deadline at which the agent answers that a mount hangs.
const ANSWER_BEFORE_DEADLINE: Duration = Duration::from_millis(500);

/// Refuses while the grant's mount is dead, hangs, or has another disk behind it than `was`. A
/// mount that cannot be probed counts as healthy. Returns the disk behind the mount. The table was
/// read after the last call of the plugin.
pub(super) async fn check_alive(
    healths: &MountHealths,
    node: &NodeId,
    grant: &Grant,
    (place, table): (&VolumePaths, &MountTable),
    was: Option<&Disk>,
    deadline: Timestamp,
) -> Result<Option<Disk>, Problem> {
    let left = deadline.since(clock::now()).saturating_sub(ANSWER_BEFORE_DEADLINE);
    let patience = health::PROBE_TIMEOUT.min(left);
    let looked = {
        let at = (&grant.plugin, place.target.as_path());
        healths.probe_mount(at, grant.attachment, table, was, patience)
    };
    let (why, is_final) = match looked.await {
        ProbeAnswer::Well(disk) => return Ok(disk),
        ProbeAnswer::Unknown(_) => return Ok(None),
        ProbeAnswer::Missing => ("nothing is there any more".to_owned(), true),
        ProbeAnswer::Dead(why) => (format!("it is dead: {why}"), true),
        ProbeAnswer::Hung(since) => (format!("it has not answered a look since {since}"), false),
    };
    healths.request_probe();
    let message = format!("the volume is mounted at {}, and {why}", place.target.display());
    let next = format!(
        "`berth volume republish {} --node {} --alloc {}{}` brings it back; leave --alloc away \
         where the volume is dead for others on the node, too",
        grant.volume,
        node,
        grant.alloc,
        namespace_option(&grant.namespace)
    );
    let problem = Problem::new(Code::MountFailed, message).next(next);
    Err(if is_final { problem } else { problem.retryable() })
}
