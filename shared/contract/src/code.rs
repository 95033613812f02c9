//! Error codes: one per reason a person or program may meet, stable for ever.
//!
//! **Owns** the numbers and their one-line titles; `berth explain CODE` and `docs/errors.md` say
//! more. A number is never reused; a new reason gets the next one of its group.

use std::fmt::Write as _;

use berth_domain::volume::ErrorCode;
use serde::{Deserialize, Serialize};

/// What each code begins with.
const PREFIX: &str = "BERTH";

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $title:literal, $next:literal;)*) => {
        /// Why a request was not done.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Code {
            $($(#[$doc])* #[serde(rename = $code)] $name,)*
            /// A code of a newer version that we do not know.
            #[serde(other, rename = "BERTH9999")]
            Unknown,
        }

        impl Code {
            /// Every code, in order.
            pub const ALL: &[Self] = &[$(Self::$name,)* Self::Unknown];

            /// The code as users see it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code,)* Self::Unknown => "BERTH9999" }
            }

            /// What it means, in one line.
            pub const fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title,)*
                    Self::Unknown => "an error of a newer version of Berth",
                }
            }

            /// The next thing to try, when the place that failed knows nothing better.
            pub const fn next(self) -> &'static str {
                match self {
                    $(Self::$name => $next,)*
                    Self::Unknown => "read its message, or upgrade this client",
                }
            }
        }
    };
}

codes! {
    // 00xx: the request itself.
    /// Fields are missing or wrong; all of them are listed.
    BadInput = "BERTH0001", "the input is not valid; every fault is listed",
        "mend the fields listed; nothing was written";
    /// The request came after its deadline, and nothing was done.
    Late = "BERTH0002", "the request arrived after its deadline, so nothing was done",
        "ask again; if it happens again, a clock is wrong: see SKEW in `berth node status`, and \
         `clock_skew_ms` in `nats micro info berth-claim`";
    /// No one listens on the subject.
    NoResponder = "BERTH0003", "no service answers there",
        "start the service, or look with `nats micro ls` for what runs";
    /// No answer before the deadline: what was asked may have been done.
    NoAnswer = "BERTH0004", "no answer in time; what was asked may or may not have been done",
        "ask again, which is harmless; if it stays so, read the log of the service that was asked";
    /// The bus cannot be reached or cannot store: not done.
    BusUnavailable = "BERTH0005", "the bus cannot be reached or cannot store; nothing was written",
        "check nats-server with `nats server check connection`; the request may be repeated";
    /// The record was written by a newer version.
    NewerRecord = "BERTH0006", "the record was written by a newer version and is read-only here",
        "ask again, which may reach a newer replica; `berth doctor` names the older ones: upgrade \
         them";
    /// Something that must not happen did.
    Internal = "BERTH0007", "a defect in Berth",
        "report it with the trace id and the service's log";
    /// Too much at once.
    Overloaded = "BERTH0008", "the service has as much under way as it takes",
        "ask again in a moment; if it stays so, start another replica of the service";
    /// A condition of the request does not hold any more.
    Changed = "BERTH0009", "it has changed since it was looked at, so nothing was done",
        "look at it again (a node: `berth node status NODE`), and repeat the request with the new \
         revision if it is still right";
    /// The credentials do not allow it.
    NotAllowed = "BERTH0010", "the credentials do not allow this",
        "ask the fleet's operator for the capability that is named, or use other credentials";
    /// A bucket was deleted or replaced, and nothing may be decided without it.
    BucketLost = "BERTH0011", "a bucket of records is gone, or is another one than before",
        "restore it from a backup (`berth bus restore DIR`), or accept what is there now (`berth \
         bus accept`): see docs/backup.md";
    /// The record is damaged: no version can read it.
    DamagedRecord = "BERTH0012", "a stored record is damaged and cannot be read",
        "look at the named key with `nats kv get`; restore it, or delete it once nothing uses it";
    /// It would write a record that not all replicas can read, or an operator holds such writes.
    LevelTooLow = "BERTH0013", "it needs a higher level of records than is in force",
        "upgrade the replica that the message names; the level rises by itself then, unless an \
         operator holds it: `berth doctor` shows that";

    // 01xx: volumes and claims.
    /// No such volume.
    NoSuchVolume = "BERTH0101", "no such volume in this namespace",
        "list them with `berth volume list`, or register it with `berth volume register FILE`";
    /// The volume is on its way out.
    VolumeClosing = "BERTH0102", "the volume is being deregistered",
        "wait until it is gone, then register it again";
    /// The volume has no such capability.
    CapabilityNotOffered = "BERTH0103", "the volume does not offer this access or attachment mode",
        "ask for one of the capabilities it lists, or register it with this one too";
    /// Others hold the volume in another access mode.
    AccessInUse = "BERTH0104", "the volume is in use in another access or attachment mode",
        "wait for its holders, or ask for the mode in use";
    /// The access mode does not allow writing.
    ReadOnlyVolume = "BERTH0105", "the volume's access mode allows no writer",
        "ask for a read claim";
    /// Held by others.
    Held = "BERTH0106", "the volume is held by others",
        "see the holders with `berth volume status VOLUME`; end a holder's workload, then stop its \
         alloc (which ends no process); or ask with `--wait`";
    /// A call is under way for the volume.
    Busy = "BERTH0107", "another call is under way for this volume",
        "ask again; it joins what is under way";
    /// The alloc's own earlier claim is being released.
    Releasing = "BERTH0108", "this alloc's earlier claim on the volume is still being released",
        "wait for it: `berth claim status` shows the step";
    /// The alloc claims the volume elsewhere or in another mode.
    ClaimDiffers = "BERTH0109", "this alloc already claims the volume, for another node or mode",
        "use the claim it has; where the volume is mounted, only the end of the alloc lets go of \
         it: stop the alloc, and register another one";
    /// Claims remain.
    ClaimsLive = "BERTH0110", "claims on the volume remain",
        "stop the allocs named; or deregister the volume with `--force`, which closes it until \
         they have ended";
    /// The update would change what may not change.
    UnsafeUpdate = "BERTH0111", "these fields cannot change",
        "stop its holders first (`berth volume status VOLUME` names them), or register a new \
         volume";
    /// No such claim.
    NoSuchClaim = "BERTH0112", "no such claim",
        "list them with `berth claim status`";
    /// The attempt is not the one on the record.
    StaleAttempt = "BERTH0113", "the answer is of an attempt that is no longer current",
        "nothing: the record went on without it";
    /// Nothing to do for this claim now.
    NotDue = "BERTH0114", "there is nothing to do for this claim yet",
        "nothing: it is taken up when it is due";
    /// Too many claims.
    TooManyClaims = "BERTH0115", "the volume has as many claims as one volume may have",
        "stop allocs that need the volume no more: `berth claim status --volume VOLUME` lists them";
    /// In line for the volume.
    Waiting = "BERTH0116", "the claim waits in line for the volume",
        "keep asking: it is granted in its turn";
    /// The volume's secrets cannot be opened or handed out.
    SecretsUnavailable = "BERTH0117", "the volume's secrets cannot be opened or handed out",
        "see the message; `secrets.key_file` of berth-claim must hold the key they were sealed for";
    /// Another volume is registered with the same plugin and external id.
    HandleTaken = "BERTH0118", "another volume has this external id at the plugin already",
        "use the volume that is named, or deregister that one first";
    /// The volume and another are the same volume at the plugin: neither is granted.
    RegisteredTwice = "BERTH0119", "the same volume of the plugin is registered more than once",
        "stop the allocs of all but one of them, then deregister the others: \
         `berth volume status VOLUME` names them";
    /// The registry's record of the node has another sealing key than its agent, or none.
    SealingKeyUnknown = "BERTH0120", "the registry does not know the sealing key of the node",
        "the agent reports it again by itself and asks again; if it stays so, see in the agent's \
         log whether the registry takes its reports, and upgrade plugin-registry and the agent";
    /// The alloc waits for a volume that is held by one that waits for the alloc's own.
    Deadlock = "BERTH0121", "allocs wait for each other's volumes",
        "stop the alloc and start it again with `agent.mount-all`, or mount its volumes in the \
         order of their ids";

    /// The volume is not there at the storage yet, or no longer.
    VolumeNotReady = "BERTH0122", "the volume is not ready at its storage",
        "wait for it: `berth volume status VOLUME` shows the operation, its error and its next \
         try; delete a volume that failed";
    /// There is such a volume, and it was not created so.
    VolumeExists = "BERTH0123", "there is such a volume already",
        "use it as it is, choose another id, or delete it first";
    /// Another change of the storage is under way.
    OperationUnderWay = "BERTH0124", "another change of the volume at its storage is under way",
        "wait for it: `berth volume status VOLUME` shows its error and its next try";
    /// A volume never gets smaller.
    NeverSmaller = "BERTH0125", "a volume never gets smaller",
        "ask for at least its present size, or copy the data into a smaller volume";
    /// The plugin does this only to a volume that is not in use.
    VolumeInUse = "BERTH0126", "the plugin does this only while the volume is not in use",
        "stop the allocs named, or ask with `--when-free`";
    /// A snapshot of the volume is being cut, or a copy of the volume or snapshot is being created.
    StorageInUse = "BERTH0127", "a snapshot or a copy is being made of the volume or snapshot",
        "wait until the one that the message names is ready, or delete that one first";
    /// There is such a snapshot.
    SnapshotExists = "BERTH0128", "there is such a snapshot already",
        "choose another id, or delete it first";
    /// No such snapshot.
    NoSuchSnapshot = "BERTH0129", "no such snapshot of this volume",
        "list them with `berth snapshot list`";
    /// The snapshot is deleted with its group only.
    SnapshotInGroup = "BERTH0130", "the snapshot is in a group, and is deleted with the group only",
        "delete the group: `berth snapshot group delete VOLUME@SNAPSHOT`";
    /// Too many snapshots.
    TooManySnapshots = "BERTH0131", "the volume has as many snapshots as a volume may have",
        "delete some: `berth snapshot list VOLUME` shows them";
    /// No such class.
    NoSuchClass = "BERTH0132", "no such class",
        "list them with `berth class list`";
    /// The class does not allow the request.
    ClassRefused = "BERTH0133", "the class does not allow this",
        "see what it allows with `berth class status CLASS`";
    /// The namespace has as much of the class as it may have.
    QuotaExceeded = "BERTH0134", "the namespace's quota of the class is used up",
        "delete volumes that are not needed, or ask the fleet's operator for more";
    /// Volumes were made from the class.
    ClassInUse = "BERTH0135", "volumes of the class remain",
        "delete or deregister the volumes named first";
    /// Claims stand below a name that is not their volume's any more.
    RegistrationLost = "BERTH0136", "claims remain of a volume whose registration was lost",
        "stop their allocs: `berth claim status --volume VOLUME` names them; or register the \
         volume again with the plugin and external id that it had";

    // 02xx: plugins and nodes.
    /// No such plugin.
    NoSuchPlugin = "BERTH0201", "no agent has reported this plugin",
        "check its name with `berth plugin list` and that its socket is in an agent's config";
    /// The plugin has no healthy instance to do this.
    PluginUnhealthy = "BERTH0202", "the plugin has no healthy instance for this",
        "see why with `berth plugin status PLUGIN`";
    /// No such node.
    NoSuchNode = "BERTH0203", "no such node",
        "list them with `berth node list`; `berth run` is told by --node or BERTH_NODE";
    /// The node's agent does not answer.
    NodeDown = "BERTH0204", "the node's agent does not answer",
        "start berth-node-agent there, or look at its log";
    /// The plugin said no.
    PluginRefused = "BERTH0205", "the plugin refused the call",
        "correct what the plugin's message names, in the volume's document or in the storage: the \
         same request will be refused again";
    /// The plugin failed or did not answer in time.
    PluginFailed = "BERTH0206", "the plugin failed, or its answer is unknown",
        "it is tried again; if it stays so, `berth why VOLUME` says what is to be mended";
    /// The plugin may still be at an earlier call for this volume, or at this one.
    StillBusy = "BERTH0207", "the plugin may still be at a call for this volume",
        "it is tried again once the plugin has answered; if it never does, restart the plugin";
    /// The call is older than one already seen, or than the agent that got it.
    OldCall = "BERTH0208", "the call is an old one, and does nothing",
        "nothing: a newer call counts, or is made";
    /// The node's clock is too far off.
    ClockSkew = "BERTH0209", "the node's clock is too far from the registry's",
        "set the node's clock; `berth node status NODE` shows the difference";
    /// Mounting failed on the node.
    MountFailed = "BERTH0210", "the volume could not be made available on the node",
        "see the message; a volume half mounted is taken down when the alloc stops";
    /// Taking a volume down failed on the node.
    UnmountFailed = "BERTH0211", "the volume could not be taken down on the node",
        "see the message for what still holds it; it is tried again";
    /// The plugin has no room for it.
    PluginExhausted = "BERTH0212", "the plugin has no room for the volume now",
        "release another volume of the plugin on this node; it is tried again";
    /// The node is there.
    NodeReady = "BERTH0213", "the node's agent is there, so the node is not gone",
        "stop its agent and its workloads, or switch the host off, and wait until its lease ends";
    /// Somebody runs or uses the plugin.
    PluginInUse = "BERTH0214", "the plugin is used by volumes, or still runs somewhere",
        "deregister its volumes and take it from the agents named first";
    /// Too many jobs.
    TooManyJobs = "BERTH0215", "as many jobs provide the plugin as may provide one",
        "take one of its jobs back first: `berth plugin status PLUGIN` lists them";
    /// The node counts as gone, or it is not known yet that it does not.
    NodeReturning = "BERTH0216", "the node takes nothing new before it is known to be there",
        "wait for it: `berth node status NODE` shows what it is at";
    /// The node has as many volumes of the plugin as the plugin takes there.
    NodeFull = "BERTH0217", "the node has as many volumes of the plugin as it takes",
        "release one on this node, or use a node with room: \
         `berth volume placement VOLUME` shows whether there is one";
    /// The volume cannot be reached from the node.
    OutOfReach = "BERTH0218", "the volume cannot be reached from where the node is",
        "use a node within the volume's topology: `berth volume placement VOLUME` shows \
         whether there is one";
    /// The path that a volume is to be seen at will not do.
    PathRefused = "BERTH0219", "the volume cannot be put at that path",
        "choose another path, or leave it out and use the one that the agent answers";
    /// The mount options that are asked for cannot be had.
    MountOptionsRefused = "BERTH0220", "the volume cannot be mounted with these options",
        "leave the option out that the message names, or use a plugin that has it";
    /// Mounts need the plugin that is to be stopped.
    PluginHeld = "BERTH0221", "mounts on the node need this plugin",
        "stop the allocs that use them, or say it with `--even-with-mounts`: they may end with it";
    /// The plugin gives two nodes one id.
    SharedNodeId = "BERTH0222", "the plugin gives the node an id that is another node's too",
        "give each node's driver a node id of its own; `berth plugin status PLUGIN` names both";
    /// A process of the node has a volume that is to be released.
    VolumeHeldByProcess = "BERTH0224", "processes on the node still have the volume mounted",
        "end the processes that the message names; the release goes on by itself then";
    /// The node has a mount of the volume that no claim covers.
    MountUnaccounted = "BERTH0225", "the node has a mount of the volume that no claim covers",
        "end its workload on the node, then `berth node unmount NODE VOLUME`";
    /// A mount that nothing proves to be the agent's own is where one of the agent's is to go.
    ForeignMount = "BERTH0226", "something else is mounted where the volume was",
        "see what it is with `findmnt --mountpoint PATH`, and unmount it; the agent then goes on";
    /// A read-only volume, or one with a flag that protects the host, was mounted without it.
    NotReadOnly = "BERTH0227", "the plugin ignores that the volume is to be read-only",
        "use another plugin, or ask for the volume for writing; report it to the plugin's authors";

    /// The plugin does not say that it has an ability that the request needs.
    PluginLacks = "BERTH0228", "the plugin lacks an ability that the request needs",
        "see its abilities with `berth plugin status PLUGIN`, or use another plugin";
    /// The plugin said that it did nothing, and that it may do it later.
    PluginUnable = "BERTH0229", "the plugin could not do it now, and did nothing",
        "see the plugin's message, and ask again; a change of a volume at its storage is tried \
         again by itself";
    /// A node that may have the volume has not said yet what it has mounted.
    MountsNotSaid = "BERTH0230", "a node that may have the volume has not said what it has mounted",
        "ask again in a moment; if it stays so, see the named node with `berth node status NODE`: \
         its agent compares its mounts with the claims when it has started";
    /// The mount answers, and is not taken down without force.
    MountWell = "BERTH0231", "the mount is well, so nothing is mended",
        "nothing; with `--force` it is unmounted under its workload, and mounted again";
    /// After a restore, a node has not said yet what is mounted there.
    MountsUnreported = "BERTH0235", "a node has not said yet what is mounted there since a restore",
        "start the agents of the nodes that are named; a node that is gone for good has to \
         be declared gone, see docs/failover.md";
    /// Whether the alloc's guard or command lives cannot be looked at, so its volumes stay.
    RunUnknown = "BERTH0236", "it cannot be seen whether the alloc still runs, so its volumes stay",
        "do what the message says on the node; the release goes on by itself then";
    /// The node is declared gone, and another node that is there may be the same agent or host.
    NodeElsewhere = "BERTH0237", "another node that is there may be this node under another name",
        "start the agent under its old name again; it undoes its mounts then";
    /// The state directory is that of another node.
    NodeRenamed = "BERTH0238", "the agent's state directory belongs to another node",
        "start the agent with the node's old name; for a new name, give it an empty state \
         directory once nothing below the old one is mounted";

    /// The plugin says that the node does not reach its storage.
    StorageAway = "BERTH0239", "the node does not reach the plugin's storage, as the plugin says",
        "mend the way from the node to the storage, or use another node: \
         `berth volume placement VOLUME` shows whether there is one";
    /// The plugin has no room for a new volume where the node is, and has room elsewhere.
    NoRoomHere = "BERTH0240", "the plugin has no room where the node is, and has some elsewhere",
        "use another node: `berth volume placement VOLUME` shows which fit; or make room here";

    // 03xx: allocs.
    /// No such alloc.
    NoSuchAlloc = "BERTH0301", "no such alloc",
        "list them with `berth alloc list`; `berth run` registers one, or a scheduler";
    /// The alloc has ended.
    AllocTerminal = "BERTH0302", "the alloc has ended",
        "start a new one";
    /// The alloc is placed on another node.
    AllocForeign = "BERTH0303", "the alloc is placed on another node",
        "claim from the node it is placed on";
    /// The alloc did not ask for this volume.
    VolumeNotRequested = "BERTH0304", "the alloc did not ask for this volume",
        "name the volume when registering the alloc";
    /// The grant is void: the alloc was told to detach.
    GrantVoid = "BERTH0305", "the claim was released before the volume was mounted",
        "start its workload again, as a new alloc";
    /// The alloc's record is still needed.
    AllocKept = "BERTH0306", "the alloc's record is still needed",
        "stop it, and wait until its claims are released: `berth claim status` shows them";
    /// The workload's runner cannot mount what it asks for.
    RunnerCannotMount = "BERTH0307", "the workload's runner cannot mount this volume",
        "run it with a runner that can, or without the volume; nothing was claimed or attached";
    /// The alloc belongs to another owner.
    AllocOwned = "BERTH0308", "the alloc belongs to another owner",
        "have its owner do it; or repeat it with the `revision` that `berth alloc status` shows";
    /// Another process holds the owner's lease, or the owner holds it and keeps its allocs.
    OwnerHeld = "BERTH0309", "the owner's lease is held",
        "wait until it ends, or use an owner's name of your own: `berth owner list` shows them";
    /// What is to guard the alloc is not there, or something else guards it.
    GuardRefused = "BERTH0310", "the alloc cannot be guarded by that",
        "name a process, cgroup or lock that lives on the alloc's node, and that the agent sees";
}

impl Code {
    /// Whether the answer only says to wait: nothing has failed, and the caller asks again.
    pub const fn is_wait(self) -> bool {
        matches!(self, Self::Busy | Self::Releasing | Self::NotDue | Self::Waiting)
    }

    /// Whether it is the plugin's answer, or that it gave none.
    pub const fn is_of_plugin(self) -> bool {
        matches!(
            self,
            Self::PluginRefused
                | Self::PluginExhausted
                | Self::PluginFailed
                | Self::PluginUnable
                | Self::StillBusy
        )
    }

    /// Whether the same request may succeed later without anybody changing it. Where it is false, a
    /// place that knows better may still say so in its reply.
    pub const fn retryable(self) -> bool {
        matches!(
            self,
            Self::Late
                | Self::NoResponder
                | Self::NoAnswer
                | Self::BusUnavailable
                | Self::NewerRecord
                | Self::LevelTooLow
                | Self::Overloaded
                | Self::Busy
                | Self::Releasing
                | Self::NotDue
                | Self::Waiting
                | Self::SealingKeyUnknown
                | Self::PluginUnhealthy
                | Self::NodeReturning
                | Self::VolumeHeldByProcess
                | Self::RunUnknown
                | Self::MountsNotSaid
                | Self::PluginFailed
                | Self::StillBusy
                | Self::OperationUnderWay
                | Self::StorageInUse
                | Self::PluginUnable
        )
    }
}

impl From<Code> for ErrorCode {
    fn from(code: Code) -> Self {
        let (_, number) = code.as_str().split_at(PREFIX.len());
        Self(number.parse().unwrap_or_default())
    }
}

impl From<ErrorCode> for Code {
    fn from(code: ErrorCode) -> Self {
        let is_it = |one: &&Self| ErrorCode::from(**one) == code;
        Self::ALL.iter().find(is_it).copied().unwrap_or(Self::Unknown)
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The reference page, `docs/errors.md`.
pub fn page() -> String {
    let mut page = String::from(
        "# Error codes\n\n\
         Made from `shared/contract/src/code.rs`. `berth explain` says the same. A code is \
         never reused.\n\n\
         | code | what it means | what to try next |\n| --- | --- | --- |\n",
    );
    for code in Code::ALL {
        // Writing to a String cannot fail.
        let _ = writeln!(page, "| {code} | {} | {} |", code.title(), code.next());
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_page_is_current() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors.md");
        if std::env::var_os("BERTH_WRITE_DOCS").is_some() {
            std::fs::write(file, page()).unwrap();
        }
        let written = std::fs::read_to_string(file).unwrap_or_default();
        assert!(written == page(), "run BERTH_WRITE_DOCS=1 cargo test -p berth-contract");
    }

    #[test]
    fn codes_are_unique_and_in_order() {
        let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        let mut sorted = codes.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(codes, sorted);
    }

    #[test]
    fn a_code_of_the_future_is_read_as_unknown() {
        assert_eq!(serde_json::from_str::<Code>("\"BERTH4242\"").unwrap(), Code::Unknown);
        assert_eq!(serde_json::to_string(&Code::Held).unwrap(), "\"BERTH0106\"");
    }
}
