//! The records of the two volumes as they are stored. Each record has a number.

use std::collections::BTreeMap;

use berth_bus::Fold as _;
use berth_contract::{key, record};
use berth_domain::access::{AccessMode, AttachmentMode, Capability, CapabilityFilter, Mode};
use berth_domain::volume::{Claim, Handle, HandleOwner, Route, State, Take, VolumeSpec};
use berth_domain::{AllocId, AttemptId, Namespace, NodeId, Timestamp, VolumeKey, WorkerId};
use berth_service::projection::Volumes;
use serde::Serialize;

use super::world::{External, Key, Messages, Name};

/// The content of a record.
#[derive(Debug, Clone)]
enum Record {
    Spec(External),
    Claim(Box<Claim>),
    Owner(Name),
}

/// The names in this world, and every record that was stored.
pub(super) struct Values {
    pub(super) attempt: AttemptId,
    pub(super) worker: WorkerId,
    controller: bool,
    handles: [Handle; 2],
    volumes: [VolumeKey; 2],
    allocs: [AllocId; 2],
    node: NodeId,
    records: Vec<(Vec<u8>, Record)>,
    numbers: BTreeMap<Vec<u8>, u16>,
}

#[expect(clippy::expect_used, reason = "the ids are written here, and records can be written")]
impl Values {
    pub(super) fn new(controller: bool) -> Self {
        let namespace = Namespace::new("default").expect("a namespace");
        let volume = |name: &str| VolumeKey::new(namespace.clone(), name.parse().expect("an id"));
        let handle = |id: &str| Handle {
            plugin: "plugin".parse().expect("an id"),
            external_id: id.to_owned(),
        };
        Self {
            handles: ["shared", "own"].map(handle),
            attempt: AttemptId::new("attempt").expect("an id"),
            worker: WorkerId::new("worker").expect("an id"),
            controller,
            volumes: ["a", "b"].map(volume),
            allocs: ["x", "y"].map(|id| AllocId::new(id).expect("an id")),
            node: NodeId::new("n1").expect("an id"),
            records: Vec::new(),
            numbers: BTreeMap::new(),
        }
    }

    pub(super) fn volume(&self, name: Name) -> &VolumeKey {
        &self.volumes[name as usize]
    }

    pub(super) fn alloc(&self, name: Name) -> &AllocId {
        &self.allocs[name as usize]
    }

    pub(super) fn spec(&self, external: External) -> VolumeSpec {
        VolumeSpec {
            external_id: Some(self.handle(external).external_id),
            capabilities: vec![Capability {
                access: AccessMode::SingleNodeWriter,
                attachment: AttachmentMode::FileSystem,
            }]
            .into(),
            ..VolumeSpec::empty(&"plugin".parse().expect("an id"))
        }
    }

    pub(super) fn handle(&self, external: External) -> Handle {
        self.handles[external as usize].clone()
    }

    pub(super) fn take(&self, name: Name) -> Take {
        Take {
            alloc: self.alloc(name).clone(),
            node: self.node.clone(),
            mode: Mode::Write,
            capability: CapabilityFilter::default(),
            wait: false,
            route: Ok(Route {
                controller: self.controller,
                external_node: Some("the plugin's n1".to_owned()),
                ..Route::default()
            }),
            worker: self.worker.clone(),
        }
    }

    /// A claim that an older version granted.
    pub(super) fn taken(&self) -> Claim {
        let access = AccessMode::SingleNodeWriter;
        let capability = Capability { access, attachment: AttachmentMode::FileSystem };
        let (node, since) = (self.node.clone(), Timestamp::default());
        Claim {
            controller: self.controller,
            external_node: Some("the plugin's n1".to_owned()),
            ..Claim::new(State::Taken, node, Mode::Write, capability, since)
        }
    }

    /// The number of a spec. Nothing here depends on the time or the actor of its registration.
    pub(super) fn number_spec(&mut self, spec: &VolumeSpec) -> u16 {
        let own = self.handle(External::Own).external_id;
        let is_own = spec.external_id.as_ref() == Some(&own);
        let external = if is_own { External::Own } else { External::Shared };
        self.number(&VolumeSpec { create_index: 0, ..spec.clone() }, Record::Spec(external))
    }

    /// The number of a claim. No answer and no release names an epoch here.
    pub(super) fn number_claim(&mut self, claim: &Claim) -> u16 {
        let claim = Claim { epoch: 0, ..claim.clone() };
        self.number(&claim, Record::Claim(Box::new(claim.clone())))
    }

    pub(super) fn number_owner(&mut self, name: Name) -> u16 {
        let VolumeKey { namespace, volume } = self.volume(name).clone();
        self.number(&HandleOwner { namespace, volume }, Record::Owner(name))
    }

    fn number(&mut self, body: &impl Serialize, record: Record) -> u16 {
        let bytes = record::write(body, None).expect("a record");
        if let Some(number) = self.numbers.get(&bytes) {
            return *number;
        }
        let number = u16::try_from(self.records.len()).expect("few records");
        self.records.push((bytes.clone(), record));
        self.numbers.insert(bytes, number);
        number
    }

    /// The handle that a volume is registered for.
    pub(super) fn registered(&self, messages: &Messages, name: Name) -> Option<External> {
        match self.record(messages, Key::Spec(name))? {
            Record::Spec(external) => Some(*external),
            Record::Claim(_) | Record::Owner(_) => None,
        }
    }

    pub(super) fn claim(&self, messages: &Messages, name: Name) -> Option<&Claim> {
        match self.record(messages, Key::Claim(name))? {
            Record::Claim(claim) => Some(claim),
            Record::Spec(_) | Record::Owner(_) => None,
        }
    }

    /// The volume that the key of a handle names.
    pub(super) fn owner(&self, messages: &Messages, external: External) -> Option<Name> {
        match self.record(messages, Key::Handle(external))? {
            Record::Owner(name) => Some(*name),
            Record::Spec(_) | Record::Claim(_) => None,
        }
    }

    fn record(&self, messages: &Messages, key: Key) -> Option<&Record> {
        let number = messages.get(&key)?.value?;
        self.records.get(usize::from(number)).map(|(_, record)| record)
    }

    /// The projection of these messages as the services keep it.
    pub(super) fn project(&self, messages: &Messages) -> Volumes {
        let mut in_order: Vec<_> = messages.iter().collect();
        in_order.sort_by_key(|(_, message)| message.revision);
        let mut volumes = Volumes::default();
        for (key, message) in in_order {
            let (key, revision) = (self.key(*key), u64::from(message.revision));
            match message.value {
                Some(value) => volumes.put(&key, revision, &self.records[usize::from(value)].0),
                None => volumes.delete(&key, revision),
            }
        }
        volumes
    }

    fn key(&self, key: Key) -> String {
        match key {
            Key::Spec(name) => key::spec(self.volume(name)),
            Key::Claim(name) => key::claim(self.volume(name), self.alloc(name)),
            Key::Handle(external) => key::handle(&self.handle(external)),
        }
    }
}
