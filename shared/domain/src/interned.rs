//! A value that many records have alike, in eight bytes of each.
//!
//! **Owns** how such a value is kept: the default is a null pointer, and equal values may share one
//! copy.
//!
//! **Promises** that it reads, compares, prints and is stored as the value itself. A change of one
//! record changes no other.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value that is kept out of its record: there are many records, and most have the default, or
/// the same value as others.
#[derive(Clone)]
pub struct Interned<T>(Option<Arc<T>>);

/// What can be interned: its default is there without memory of its own.
pub trait Blank: Clone + Default + PartialEq + 'static {
    /// The default.
    const BLANK: &'static Self;
}

impl Blank for String {
    const BLANK: &'static Self = &Self::new();
}

impl<T: Clone + PartialEq + 'static> Blank for Vec<T> {
    const BLANK: &'static Self = &Self::new();
}

impl<K: Clone + Ord + 'static, V: Clone + PartialEq + 'static> Blank for BTreeMap<K, V> {
    const BLANK: &'static Self = &Self::new();
}

impl<T: Blank> Interned<T> {
    /// A copy of the value.
    pub fn to_value(&self) -> T {
        T::clone(self)
    }

    /// Changes the value, and no other record's.
    pub fn change<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        let Some(copy) = &mut self.0 else {
            let mut value = T::default();
            let result = change(&mut value);
            *self = value.into();
            return result;
        };
        let value = Arc::make_mut(copy);
        let result = change(value);
        if *value == *T::BLANK {
            self.0 = None;
        }
        result
    }

    /// Uses the copy of the other one if both are equal.
    pub fn share_with(&mut self, other: &Self) {
        if self == other {
            self.clone_from(other);
        }
    }
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Blank> From<T> for Interned<T> {
    fn from(value: T) -> Self {
        Self((value != *T::BLANK).then(|| Arc::new(value)))
    }
}

impl<T: Blank> Deref for Interned<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::BLANK)
    }
}

impl<T: Blank> PartialEq for Interned<T> {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(own), Some(others)) if Arc::ptr_eq(own, others) => true,
            _ => **self == **other,
        }
    }
}

impl<T: Blank + Eq> Eq for Interned<T> {}

impl<T: Blank + fmt::Debug> fmt::Debug for Interned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Blank + Serialize> Serialize for Interned<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de, T: Blank + Deserialize<'de>> Deserialize<'de> for Interned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type List = Interned<Vec<u8>>;

    #[test]
    fn a_default_is_a_null_pointer_however_it_came() {
        assert_eq!(size_of::<List>(), size_of::<usize>());
        let read: List = serde_json::from_str("[]").unwrap();
        let mut cleared = List::from(vec![1]);
        cleared.change(Vec::clear);
        cleared.change(|list| list.sort_unstable());
        for list in [List::default(), Vec::new().into(), read, cleared] {
            assert!(list.0.is_none() && list.is_empty());
        }
    }

    #[test]
    fn it_compares_prints_and_is_stored_as_its_value() {
        let list = List::from(vec![1, 2]);
        assert_eq!(list, List::from(vec![1, 2]));
        assert_ne!(list, List::default());
        assert_eq!(format!("{list:?}"), "[1, 2]");
        let stored = serde_json::to_string(&list).unwrap();
        assert_eq!(stored, "[1,2]");
        assert_eq!(serde_json::from_str::<List>(&stored).unwrap(), list);
        assert_eq!(serde_json::to_string(&List::default()).unwrap(), "[]");
    }

    #[test]
    fn equal_values_share_a_copy_until_one_of_them_changes() {
        let first = List::from(vec![1]);
        let (mut second, mut other) = (List::from(vec![1]), List::from(vec![2]));
        second.share_with(&first);
        other.share_with(&first);
        let copy = |list: &List| list.as_ptr();
        assert_eq!(copy(&second), copy(&first));
        assert_eq!(*other, [2]);
        second.change(|list| list.push(3));
        other.change(|list| list.push(3));
        assert_eq!((&first.to_value()[..], &second.to_value()[..]), (&[1][..], &[1, 3][..]));
    }
}
