//! Values of every message: texts, lists, maps, sizes and ids, each with its bound.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::limits;
use berth_domain::size::Size;
use serde_json::Value;

use super::{Decode, Decoder, kind};
use crate::decode_leaf;

impl Decode for String {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        match value {
            Value::String(text) if text.len() <= limits::TEXT_BYTES_MAX => Some(text),
            Value::String(text) => {
                decoder.fault(format!(
                    "has {} bytes; at most {} are taken",
                    text.len(),
                    limits::TEXT_BYTES_MAX
                ));
                None
            }
            other => {
                decoder.fault(format!("is {}, not a string", kind(&other)));
                None
            }
        }
    }

    /// The map's own bound holds: a plugin's context may be one long text.
    fn decode_in_map(value: Value, decoder: &mut Decoder) -> Option<Self> {
        match value {
            Value::String(text) => Some(text),
            other => Self::decode(other, decoder),
        }
    }
}

/// Bytes, or a text with a unit.
impl Decode for Size {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let size = match value {
            Value::String(_) => String::decode(value, decoder)?.parse(),
            Value::Number(number) => match number.as_u64() {
                Some(bytes) => Self::new(bytes),
                // Less than 0, more than 64 bits, or with a fraction: the text says which.
                None => number.to_string().parse(),
            },
            other => {
                decoder.fault(format!(
                    "is {}, not a size; write a whole number of bytes, or a text with a unit, such \
                     as \"10GiB\"",
                    kind(&other)
                ));
                return None;
            }
        };
        size.map_err(|fault| decoder.fault(fault)).ok()
    }
}

impl<T: Decode> Decode for Box<T> {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        T::decode(value, decoder).map(Self::new)
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        T::decode(value, decoder).map(Some)
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        list(value, limits::LIST_MAX, decoder)
    }

    fn absent() -> Option<Self> {
        Some(Self::new())
    }
}

/// A set names things of one volume, of which there may be as many as it has claims.
impl<T: Decode + Ord> Decode for BTreeSet<T> {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        list(value, limits::CLAIMS_MAX, decoder).map(BTreeSet::from_iter)
    }

    fn absent() -> Option<Self> {
        Some(Self::new())
    }
}

fn list<T: Decode>(value: Value, most: usize, decoder: &mut Decoder) -> Option<Vec<T>> {
    let Value::Array(items) = value else {
        decoder.fault(format!("is {}, not a list", kind(&value)));
        return None;
    };
    if items.len() > most {
        decoder.fault(format!("has {} entries; at most {most} are taken", items.len()));
        return None;
    }
    // Every entry is read, also after a faulty one: all faults at once.
    let read: Vec<Option<T>> = items
        .into_iter()
        .enumerate()
        .map(|(at, item)| decoder.read_at(format!("[{at}]"), |decoder| T::decode(item, decoder)))
        .collect();
    read.into_iter().collect()
}

impl<T: Decode> Decode for BTreeMap<String, T> {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let object = decoder.object(value)?;
        let bytes: usize =
            object.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
        if object.len() > limits::MAP_ENTRIES_MAX || bytes > limits::MAP_BYTES_MAX {
            decoder.fault(format!(
                "has {} entries of {bytes} bytes; at most {} of {} are taken",
                object.len(),
                limits::MAP_ENTRIES_MAX,
                limits::MAP_BYTES_MAX
            ));
            return None;
        }
        let read: Vec<Option<(String, T)>> = object
            .into_iter()
            .map(|(key, value)| {
                let at = format!(".{key}");
                let read = decoder.read_at(at, |decoder| T::decode_in_map(value, decoder));
                read.map(|value| (key, value))
            })
            .collect();
        read.into_iter().collect()
    }

    fn absent() -> Option<Self> {
        Some(Self::new())
    }
}

decode_leaf!(
    bool,
    u32,
    u64,
    i64,
    berth_domain::AllocId,
    berth_domain::AttemptId,
    berth_domain::ClassId,
    berth_domain::JobId,
    berth_domain::Namespace,
    berth_domain::NodeId,
    berth_domain::OwnerId,
    berth_domain::PluginId,
    berth_domain::SnapshotId,
    berth_domain::VolumeId,
    berth_domain::WorkerId,
    berth_domain::Timestamp,
);
