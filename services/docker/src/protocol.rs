//! Requests and responses of Docker's volume plugins (`docs/extend/plugins_volume` of Docker).
//!
//! **Owns** the paths and the JSON. Every request is a POST, and an error is a text in `Err`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The content type of every response.
pub const CONTENT_TYPE: &str = "application/vnd.docker.plugins.v1.1+json";

/// An endpoint, by its path.
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
    pub fn parse(path: &str) -> Option<Self> {
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

/// The fields of every request. Each endpoint uses some of them.
#[derive(Debug, Default, Deserialize)]
pub struct PluginRequest {
    #[serde(rename = "Name", default)]
    pub name: String,
    #[serde(rename = "ID", default)]
    pub id: String,
    // Docker writes null for no options.
    #[serde(rename = "Opts", default)]
    pub options: Option<BTreeMap<String, String>>,
}

/// A volume, as Docker shows it.
#[derive(Debug, Default, Serialize)]
pub struct DockerVolume {
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

/// Responds to `Plugin.Activate`: this plugin has volumes.
pub fn activated() -> Value {
    json!({"Implements": ["VolumeDriver"]})
}

/// Responds to `VolumeDriver.Capabilities`: a name means the same volume on every host.
pub fn capabilities() -> Value {
    json!({"Capabilities": {"Scope": "global"}})
}

/// The response to a request that was refused or failed. With an empty text it means success.
pub fn error(text: &str) -> Value {
    json!({"Err": text})
}

pub fn mountpoint(path: &str) -> Value {
    json!({"Mountpoint": path, "Err": ""})
}

pub fn volume(volume: &DockerVolume) -> Value {
    json!({"Volume": volume, "Err": ""})
}

pub fn volumes(volumes: &[DockerVolume]) -> Value {
    json!({"Volumes": volumes, "Err": ""})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_may_be_null_or_absent() {
        for text in [r#"{"Name":"v","Opts":null}"#, r#"{"Name":"v"}"#] {
            let request: PluginRequest = serde_json::from_str(text).unwrap();
            assert_eq!((request.name.as_str(), request.options), ("v", None));
        }
    }

    #[test]
    fn volume_without_a_time_or_a_status_has_no_such_fields() {
        let volume = DockerVolume { name: "v".to_owned(), ..DockerVolume::default() };
        let expected = json!({"Volumes": [{"Name": "v", "Mountpoint": ""}], "Err": ""});
        assert_eq!(volumes(&[volume]), expected);
    }
}
