//! What the engine and a volume plugin say to each other (`docs/extend/plugins_volume` of Docker).
//!
//! **Owns** the paths and the JSON. Everything is a POST, and an error is a text in `Err`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The content type of every answer.
pub const CONTENT_TYPE: &str = "application/vnd.docker.plugins.v1.1+json";

/// What the engine may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    Activate,
    Create,
    Remove,
    Mount,
    Unmount,
    Path,
    Get,
    List,
    Capabilities,
}

impl Endpoint {
    /// By its path.
    pub fn of(path: &str) -> Option<Self> {
        Some(match path {
            "/Plugin.Activate" => Self::Activate,
            "/VolumeDriver.Create" => Self::Create,
            "/VolumeDriver.Remove" => Self::Remove,
            "/VolumeDriver.Mount" => Self::Mount,
            "/VolumeDriver.Unmount" => Self::Unmount,
            "/VolumeDriver.Path" => Self::Path,
            "/VolumeDriver.Get" => Self::Get,
            "/VolumeDriver.List" => Self::List,
            "/VolumeDriver.Capabilities" => Self::Capabilities,
            _ => return None,
        })
    }
}

/// What is asked. Each endpoint looks at its own fields.
#[derive(Debug, Default, Deserialize)]
pub struct Question {
    #[serde(rename = "Name", default)]
    pub name: String,
    #[serde(rename = "ID", default)]
    pub id: String,
    // Docker writes null for none.
    #[serde(rename = "Opts", default)]
    pub options: Option<BTreeMap<String, String>>,
}

/// What is answered when it is done.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Answer {
    Activated {
        #[serde(rename = "Implements")]
        implements: [&'static str; 1],
    },
    Done {
        #[serde(rename = "Err")]
        error: String,
    },
    Mountpoint {
        #[serde(rename = "Mountpoint")]
        mountpoint: String,
        #[serde(rename = "Err")]
        error: String,
    },
    Volume {
        #[serde(rename = "Volume")]
        volume: Volume,
        #[serde(rename = "Err")]
        error: String,
    },
    Volumes {
        #[serde(rename = "Volumes")]
        volumes: Vec<Volume>,
        #[serde(rename = "Err")]
        error: String,
    },
    Capabilities {
        #[serde(rename = "Capabilities")]
        capabilities: Scope,
    },
}

impl Answer {
    /// This plugin has volumes.
    pub fn activated() -> Self {
        Self::Activated { implements: ["VolumeDriver"] }
    }

    /// It is done.
    pub fn done() -> Self {
        Self::Done { error: String::new() }
    }

    /// It is there.
    pub fn mountpoint(path: String) -> Self {
        Self::Mountpoint { mountpoint: path, error: String::new() }
    }

    /// A volume.
    pub fn volume(volume: Volume) -> Self {
        Self::Volume { volume, error: String::new() }
    }

    /// Volumes.
    pub fn volumes(volumes: Vec<Volume>) -> Self {
        Self::Volumes { volumes, error: String::new() }
    }

    /// What a name means is the same on every host.
    pub fn capabilities() -> Self {
        Self::Capabilities { capabilities: Scope { scope: "global" } }
    }

    /// It was not done.
    pub fn error(error: String) -> Self {
        Self::Done { error }
    }
}

/// A volume, as Docker shows it.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Volume {
    #[serde(rename = "Name")]
    pub name: String,
    #[serde(rename = "Mountpoint")]
    pub mountpoint: String,
    #[serde(rename = "CreatedAt", skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    // Shown by `docker volume inspect`.
    #[serde(rename = "Status", skip_serializing_if = "BTreeMap::is_empty")]
    pub status: BTreeMap<&'static str, Value>,
}

#[derive(Debug, Serialize)]
pub struct Scope {
    #[serde(rename = "Scope")]
    scope: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_what_the_engine_reads() {
        for (answer, expected) in [
            (Answer::activated(), r#"{"Implements":["VolumeDriver"]}"#),
            (Answer::done(), r#"{"Err":""}"#),
            (Answer::error("no".to_owned()), r#"{"Err":"no"}"#),
            (Answer::mountpoint("/p".to_owned()), r#"{"Mountpoint":"/p","Err":""}"#),
            (Answer::capabilities(), r#"{"Capabilities":{"Scope":"global"}}"#),
            (
                Answer::volumes(vec![Volume { name: "v".to_owned(), ..Volume::default() }]),
                r#"{"Volumes":[{"Name":"v","Mountpoint":""}],"Err":""}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&answer).unwrap(), expected);
        }
    }

    #[test]
    fn no_options_may_be_null_or_absent() {
        for text in [r#"{"Name":"v","Opts":null}"#, r#"{"Name":"v"}"#] {
            let question: Question = serde_json::from_str(text).unwrap();
            assert_eq!((question.name.as_str(), question.options), ("v", None));
        }
        assert_eq!(Endpoint::of("/VolumeDriver.Mount"), Some(Endpoint::Mount));
        assert_eq!(Endpoint::of("/VolumeDriver.Format"), None);
    }
}
