//! Classes, and the guards of their quotas.

use std::collections::{BTreeMap, HashMap};

use berth_contract::record::{self, UnreadableRecord};
use berth_domain::class::Class;
use berth_domain::{ClassId, Namespace};

/// All classes.
#[derive(Debug, Default)]
pub struct Classes {
    classes: BTreeMap<ClassId, StoredClass>,
    quotas: HashMap<(ClassId, Namespace), u64>,
}

/// A class as it is stored.
#[derive(Debug, Clone)]
pub struct StoredClass {
    /// Its revision.
    pub revision: u64,
    /// The class, if this version can read it.
    pub class: Result<Box<Class>, UnreadableRecord>,
}

impl Classes {
    /// A class.
    pub fn get(&self, class: &ClassId) -> Option<&StoredClass> {
        self.classes.get(class)
    }

    /// All classes, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&ClassId, &StoredClass)> {
        self.classes.iter()
    }

    /// The number of classes.
    pub fn len(&self) -> usize {
        self.classes.len()
    }

    /// Whether there is no class.
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// The revision of the guard of a namespace's quota.
    pub fn quota_revision(&self, class: &ClassId, namespace: &Namespace) -> u64 {
        self.quotas.get(&(class.clone(), namespace.clone())).copied().unwrap_or_default()
    }

    pub(super) fn put(&mut self, key: &str, class: ClassId, revision: u64, value: &[u8]) {
        let read = record::read::<Class>(value).map(|record| Box::new(record.body));
        let read = read.map_err(|error| error.unreadable_at(key));
        if let Err(unreadable) = &read {
            tracing::error!(key, error = unreadable.error, "the class cannot be used here");
        }
        self.classes.insert(class, StoredClass { revision, class: read });
    }

    pub(super) fn delete(&mut self, class: &ClassId) {
        self.classes.remove(class);
    }

    pub(super) fn put_quota(&mut self, class: ClassId, namespace: Namespace, revision: u64) {
        self.quotas.insert((class, namespace), revision);
    }
}
