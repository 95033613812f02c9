//! Keys of the buckets, written and read here only.
//!
//! **Promises** that each constructor has a parser that takes back what it wrote, and that a key
//! that is none of ours is no key rather than a panic.

use berth_domain::plugin::Half;
use berth_domain::volume::Handle;
use berth_domain::{
    AllocId, ClassId, JobId, Namespace, NodeId, OwnerId, PluginId, SecretsId, SnapshotId, VolumeId,
    VolumeKey,
};

use crate::token::{decode, encode};

/// `<ns>.<vol>.spec`.
pub fn spec(volume: &VolumeKey) -> String {
    format!("{}.spec", prefix(volume))
}

/// `<ns>.<vol>.claim.<alloc>`.
pub fn claim(volume: &VolumeKey, alloc: &AllocId) -> String {
    format!("{}.claim.{}", prefix(volume), encode(alloc))
}

/// `<ns>.<vol>.snapshot.<snapshot>`.
pub fn snapshot(volume: &VolumeKey, snapshot: &SnapshotId) -> String {
    format!("{}.snapshot.{}", prefix(volume), encode(snapshot))
}

/// The last token of [`barrier`].
pub const BARRIER: &str = "barrier";

/// `<ns>.<vol>.barrier`: never has a value. A marker stored here under the volume's guard shows
/// that nothing was written since; and an older version takes it for none of its keys.
pub fn barrier(volume: &VolumeKey) -> String {
    format!("{}.{BARRIER}", prefix(volume))
}

/// `<ns>.<vol>.>`: all that concerns one volume; the scope of its guard.
pub fn subtree(volume: &VolumeKey) -> String {
    format!("{}.>", prefix(volume))
}

/// The first token of a key that guards a handle. No id is encoded so: after `=` stand two
/// upper-case hex digits there. So the key is below no namespace, and an older version takes it for
/// none of ours.
const HANDLE: &str = "=handle";

/// `=handle.<plugin>.<external id>`: the key that says which volume is registered for what its
/// plugin knows by this id (the volume handle). Its value is a [`HandleOwner`].
///
/// [`HandleOwner`]: berth_domain::volume::HandleOwner
pub fn handle(handle: &Handle) -> String {
    format!("{HANDLE}.{}.{}", encode(&handle.plugin), encode(&handle.external_id))
}

const CLASS: &str = "=class";
const QUOTA: &str = "=quota";

/// `=class.<class>`: a template of volumes.
pub fn class(class: &ClassId) -> String {
    format!("{CLASS}.{}", encode(class))
}

/// `=quota.<class>.<ns>`: written with each volume of a class with a quota, so that two requests do
/// not both get the last part of it.
pub fn quota(class: &ClassId, namespace: &Namespace) -> String {
    format!("{QUOTA}.{}.{}", encode(class), encode(namespace))
}

/// The key of the [level](crate::level) of records, below no namespace.
pub const LEVEL: &str = "=level";

fn prefix(volume: &VolumeKey) -> String {
    format!("{}.{}", encode(&volume.namespace), encode(&volume.volume))
}

/// What a key of the volumes bucket names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeEntry {
    /// A volume's spec.
    Spec(VolumeKey),
    /// One of its claims.
    Claim(VolumeKey, AllocId),
    /// One of its snapshots.
    Snapshot(VolumeKey, SnapshotId),
    /// The guard of a handle.
    Handle(Handle),
    /// A template of volumes.
    Class(ClassId),
    /// The guard of a namespace's quota.
    Quota(ClassId, Namespace),
    /// The level of records.
    Level,
}

/// Reads a key of the volumes bucket.
pub fn parse_volume(key: &str) -> Option<VolumeEntry> {
    let mut tokens = key.split('.');
    let first = tokens.next()?;
    if key == LEVEL {
        return Some(VolumeEntry::Level);
    }
    if first == HANDLE {
        let plugin = PluginId::new(decode(tokens.next()?).ok()?).ok()?;
        let handle = Handle { plugin, external_id: decode(tokens.next()?).ok()? };
        return tokens.next().is_none().then_some(VolumeEntry::Handle(handle));
    }
    if first == CLASS {
        let class = ClassId::new(decode(tokens.next()?).ok()?).ok()?;
        return tokens.next().is_none().then_some(VolumeEntry::Class(class));
    }
    if first == QUOTA {
        let class = ClassId::new(decode(tokens.next()?).ok()?).ok()?;
        let namespace = Namespace::new(decode(tokens.next()?).ok()?).ok()?;
        return tokens.next().is_none().then_some(VolumeEntry::Quota(class, namespace));
    }
    let namespace = Namespace::new(decode(first).ok()?).ok()?;
    let volume = VolumeId::new(decode(tokens.next()?).ok()?).ok()?;
    let volume = VolumeKey::new(namespace, volume);
    let entry = match tokens.next()? {
        "spec" => VolumeEntry::Spec(volume),
        "claim" => VolumeEntry::Claim(volume, AllocId::new(decode(tokens.next()?).ok()?).ok()?),
        "snapshot" => {
            VolumeEntry::Snapshot(volume, SnapshotId::new(decode(tokens.next()?).ok()?).ok()?)
        }
        _ => return None,
    };
    tokens.next().is_none().then_some(entry)
}

/// `<ns>.<alloc>`.
pub fn alloc(namespace: &Namespace, alloc: &AllocId) -> String {
    format!("{}.{}", encode(namespace), encode(alloc))
}

/// Reads a key of the allocs bucket.
pub fn parse_alloc(key: &str) -> Option<(Namespace, AllocId)> {
    let (namespace, alloc) = key.split_once('.')?;
    let namespace = Namespace::new(decode(namespace).ok()?).ok()?;
    Some((namespace, AllocId::new(decode(alloc).ok()?).ok()?))
}

/// `owner.<ns>.<owner>`.
pub fn owner_lease(namespace: &Namespace, owner: &OwnerId) -> String {
    format!("owner.{}.{}", encode(namespace), encode(owner))
}

/// Reads the key of an owner's lease.
pub fn parse_owner_lease(key: &str) -> Option<(Namespace, OwnerId)> {
    let (namespace, owner) = key.strip_prefix("owner.")?.split_once('.')?;
    let namespace = Namespace::new(decode(namespace).ok()?).ok()?;
    Some((namespace, OwnerId::new(decode(owner).ok()?).ok()?))
}

/// `<ns>.<vol>.<id>`.
pub fn secrets(volume: &VolumeKey, id: &SecretsId) -> String {
    format!("{}.{}", prefix(volume), encode(id))
}

/// Reads a key of the secrets bucket.
pub fn parse_secrets(key: &str) -> Option<(VolumeKey, SecretsId)> {
    let mut tokens = key.split('.');
    let namespace = Namespace::new(decode(tokens.next()?).ok()?).ok()?;
    let volume = VolumeId::new(decode(tokens.next()?).ok()?).ok()?;
    let id = SecretsId::new(decode(tokens.next()?).ok()?).ok()?;
    tokens.next().is_none().then(|| (VolumeKey::new(namespace, volume), id))
}

/// `<plugin>.instance.<node>.<half>`.
pub fn instance(plugin: &PluginId, node: &NodeId, half: Half) -> String {
    format!("{}.instance.{}.{half}", encode(plugin), encode(node))
}

/// Reads an instance's key of the plugins bucket.
pub fn parse_instance(key: &str) -> Option<(PluginId, NodeId, Half)> {
    let mut tokens = key.split('.');
    let plugin = PluginId::new(decode(tokens.next()?).ok()?).ok()?;
    if tokens.next()? != "instance" {
        return None;
    }
    let node = NodeId::new(decode(tokens.next()?).ok()?).ok()?;
    let half = match tokens.next()? {
        "controller" => Half::Controller,
        "node" => Half::Node,
        _ => return None,
    };
    tokens.next().is_none().then_some((plugin, node, half))
}

/// `<plugin>.job.<ns>.<job>`.
pub fn job(plugin: &PluginId, namespace: &Namespace, job: &JobId) -> String {
    format!("{}.job.{}.{}", encode(plugin), encode(namespace), encode(job))
}

/// Reads a job's key of the plugins bucket.
pub fn parse_job(key: &str) -> Option<(PluginId, Namespace, JobId)> {
    let mut tokens = key.split('.');
    let plugin = PluginId::new(decode(tokens.next()?).ok()?).ok()?;
    if tokens.next()? != "job" {
        return None;
    }
    let namespace = Namespace::new(decode(tokens.next()?).ok()?).ok()?;
    let job = JobId::new(decode(tokens.next()?).ok()?).ok()?;
    tokens.next().is_none().then_some((plugin, namespace, job))
}

/// `<node>`.
pub fn node(node: &NodeId) -> String {
    encode(node)
}

/// Reads a key of the nodes bucket.
pub fn parse_node(key: &str) -> Option<NodeId> {
    NodeId::new(decode(key).ok()?).ok()
}

/// `node.<node>`, in the leases bucket: held by that node's agent.
pub fn node_lease(node: &NodeId) -> String {
    format!("node.{}", encode(node))
}

/// Reads a node's lease key.
pub fn parse_node_lease(key: &str) -> Option<NodeId> {
    parse_node(key.strip_prefix("node.")?)
}

/// `leader.<service>`, in the leases bucket: held by the one replica that acts.
pub fn leader_lease(service: &str) -> String {
    format!("leader.{}", encode(service))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_key_is_read_back(a in "\\PC{1,64}", b in "\\PC{1,64}", c in "\\PC{1,64}") {
            let volume = VolumeKey::new(
                Namespace::new(a.clone()).unwrap(),
                VolumeId::new(b.clone()).unwrap(),
            );
            let alloc_id = AllocId::new(c.clone()).unwrap();
            let node_id = NodeId::new(b).unwrap();
            let plugin = PluginId::new(a).unwrap();
            prop_assert_eq!(parse_volume(&spec(&volume)), Some(VolumeEntry::Spec(volume.clone())));
            prop_assert_eq!(
                parse_volume(&claim(&volume, &alloc_id)),
                Some(VolumeEntry::Claim(volume.clone(), alloc_id.clone()))
            );
            let snapshot_id = SnapshotId::new(c.clone()).unwrap();
            prop_assert_eq!(
                parse_volume(&snapshot(&volume, &snapshot_id)),
                Some(VolumeEntry::Snapshot(volume.clone(), snapshot_id))
            );
            let class_id = ClassId::new(c.clone()).unwrap();
            let entry = VolumeEntry::Class(class_id.clone());
            prop_assert_eq!(parse_volume(&class(&class_id)), Some(entry));
            let of_namespace = VolumeEntry::Quota(class_id.clone(), volume.namespace.clone());
            let key = quota(&class_id, &volume.namespace);
            prop_assert_eq!(parse_volume(&key), Some(of_namespace));
            let known = Handle { plugin: plugin.clone(), external_id: c.clone() };
            let entry = VolumeEntry::Handle(known.clone());
            prop_assert_eq!(parse_volume(&handle(&known)), Some(entry));
            // They are in no namespace, so no guard over a volume covers them, and an older version
            // takes them for none of its keys.
            let guards = [handle(&known), class(&class_id), quota(&class_id, &volume.namespace)];
            for (key, tokens) in guards.into_iter().zip([3, 2, 3]) {
                let first = key.split('.').next().map(str::to_owned).unwrap();
                prop_assert!(decode(&first).is_err(), "{}", key);
                prop_assert_eq!(key.split('.').count(), tokens);
            }
            prop_assert_eq!(parse_volume(&barrier(&volume)), None);
            prop_assert_eq!(
                parse_alloc(&alloc(&volume.namespace, &alloc_id)),
                Some((volume.namespace.clone(), alloc_id.clone()))
            );
            let secrets_id = SecretsId::new(alloc_id.as_str()).unwrap();
            prop_assert_eq!(
                parse_secrets(&secrets(&volume, &secrets_id)),
                Some((volume, secrets_id))
            );
            let job_id = JobId::new(alloc_id.as_str()).unwrap();
            let namespace = Namespace::new(alloc_id.as_str()).unwrap();
            let key = job(&plugin, &namespace, &job_id);
            prop_assert_eq!(parse_instance(&key), None);
            prop_assert_eq!(parse_job(&key), Some((plugin.clone(), namespace, job_id)));
            for half in [Half::Controller, Half::Node] {
                prop_assert_eq!(parse_job(&instance(&plugin, &node_id, half)), None);
                prop_assert_eq!(
                    parse_instance(&instance(&plugin, &node_id, half)),
                    Some((plugin.clone(), node_id.clone(), half))
                );
            }
            prop_assert_eq!(parse_node(&node(&node_id)), Some(node_id.clone()));
            prop_assert_eq!(parse_node_lease(&node_lease(&node_id)), Some(node_id));
        }

        #[test]
        fn what_is_no_key_is_none(key in "\\PC{0,40}") {
            let _ = (parse_volume(&key), parse_alloc(&key), parse_instance(&key), parse_node(&key));
            let _ = (parse_secrets(&key), parse_job(&key));
        }
    }

    #[test]
    fn a_key_with_too_few_or_too_many_tokens_is_none() {
        for key in [
            "=class",
            "=level.more",
            "=class.fast.more",
            "=class.f ast",
            "=quota.fast",
            "=quota.fast.default.more",
            "=handle.p",
            "=handle.p.vol.more",
            "=other.fast",
            "default.data",
            "default.data.snapshot",
            "default.data.snapshot.monday.more",
            "default.data.spec.more",
            "default.data.barrier",
        ] {
            assert_eq!(parse_volume(key), None, "{key}");
        }
    }

    #[test]
    fn keys_as_a_person_sees_them() {
        let volume = VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap());
        assert_eq!(spec(&volume), "default.data.spec");
        assert_eq!(claim(&volume, &AllocId::new("web-1").unwrap()), "default.data.claim.web-1");
        assert_eq!(subtree(&volume), "default.data.>");
        let monday = SnapshotId::new("monday").unwrap();
        assert_eq!(snapshot(&volume, &monday), "default.data.snapshot.monday");
        let fast = ClassId::new("fast").unwrap();
        assert_eq!(parse_volume(LEVEL), Some(VolumeEntry::Level));
        assert!(decode(LEVEL).is_err(), "below no namespace");
        assert_eq!(class(&fast), "=class.fast");
        assert_eq!(quota(&fast, &volume.namespace), "=quota.fast.default");
        let plugin = PluginId::new("ebs.csi.aws.com").unwrap();
        let known = Handle { plugin: plugin.clone(), external_id: "vol-0a1b".to_owned() };
        assert_eq!(handle(&known), "=handle.ebs=2Ecsi=2Eaws=2Ecom.vol-0a1b");
        let key = instance(&plugin, &NodeId::new("n1").unwrap(), Half::Controller);
        assert_eq!(key, "ebs=2Ecsi=2Eaws=2Ecom.instance.n1.controller");
    }
}
