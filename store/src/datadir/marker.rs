//! The marker of a complete data directory: whose data it is.

use std::io;

use serde::{Deserialize, Serialize};

use super::identity::{ClusterId, MemberId};
use super::{Layout, durable};
use crate::error::Error;

/// Version of the data directory's format. Format page: `docs/formats/data-dir.md`.
pub const MARKER_VERSION: u32 = 1;
/// A marker is small; more is not one.
const MARKER_BYTES_MAX: u64 = 1 << 20;

/// Whose data a directory holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Marker {
    /// [`MARKER_VERSION`].
    pub version: u32,
    /// The member's name.
    pub name: String,
    /// The member's id, in hexadecimal.
    pub member_id: String,
    /// The cluster's id, in hexadecimal.
    pub cluster_id: String,
    /// The member's peer URLs when it was founded.
    pub peer_urls: Vec<String>,
    /// Whether the member joined a running cluster: it founds none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub joined: bool,
    /// Whether the member has been removed from its cluster, for good.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
}

impl Marker {
    /// The marker of a new member.
    pub fn new(name: &str, member: MemberId, cluster: ClusterId, peer_urls: &[String]) -> Self {
        Self {
            version: MARKER_VERSION,
            name: name.to_owned(),
            member_id: member.to_string(),
            cluster_id: cluster.to_string(),
            peer_urls: peer_urls.to_vec(),
            joined: false,
            removed: false,
        }
    }

    /// The member's id.
    pub fn member(&self) -> Result<MemberId, Error> {
        parse_id(&self.member_id).map(MemberId)
    }

    /// The cluster's id.
    pub fn cluster(&self) -> Result<ClusterId, Error> {
        parse_id(&self.cluster_id).map(ClusterId)
    }

    /// Reads the marker of a complete directory.
    pub fn read(layout: &Layout) -> Result<Self, Error> {
        let path = layout.marker();
        let failed = |source| Error::Io {
            doing: "read the data directory's marker",
            source,
        };
        if std::fs::metadata(&path).map_err(failed)?.len() > MARKER_BYTES_MAX {
            return Err(damaged("it is too large"));
        }
        let bytes = std::fs::read(&path).map_err(failed)?;
        let marker: Self =
            serde_json::from_slice(&bytes).map_err(|error| damaged(&error.to_string()))?;
        if marker.version != MARKER_VERSION {
            return Err(damaged(&format!("version {} is not known", marker.version)));
        }
        marker.member()?;
        marker.cluster()?;
        Ok(marker)
    }

    /// Writes the marker: the directory is complete from then on.
    pub fn write(&self, layout: &Layout) -> Result<(), Error> {
        let failed = |source| Error::Io {
            doing: "write the data directory's marker",
            source,
        };
        let mut bytes =
            serde_json::to_vec_pretty(self).map_err(|error| failed(io::Error::other(error)))?;
        bytes.push(b'\n');
        durable::write_file(&layout.marker(), &bytes).map_err(failed)
    }
}

fn parse_id(text: &str) -> Result<u64, Error> {
    u64::from_str_radix(text, 16).or(Err(damaged("an id is not a hexadecimal number")))
}

fn damaged(reason: &str) -> Error {
    Error::Format {
        what: "member.json",
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn the_marker_of_the_first_version_is_read_and_written_the_same() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/data-dir/v1");
        let marker = Marker::read(&Layout::new(&golden)).unwrap();
        assert_eq!(marker.member().unwrap(), MemberId(0x8e9e_05c5_2164_694d));
        assert_eq!(marker.cluster().unwrap(), ClusterId(0xcdf8_1819_4e3a_8c32));
        let dir = TempDir::new().unwrap();
        let layout = Layout::new(dir.path());
        marker.write(&layout).unwrap();
        let written = std::fs::read_to_string(layout.marker()).unwrap();
        assert_eq!(
            written,
            std::fs::read_to_string(golden.join("member.json")).unwrap()
        );
    }

    #[test]
    fn a_marker_of_a_later_version_is_refused() {
        let dir = TempDir::new().unwrap();
        let layout = Layout::new(dir.path());
        let marker = Marker::new("m", MemberId(1), ClusterId(2), &[]);
        Marker {
            version: MARKER_VERSION + 1,
            ..marker
        }
        .write(&layout)
        .unwrap();
        let error = Marker::read(&layout).unwrap_err();
        assert!(
            error.to_string().contains("version 2 is not known"),
            "{error}"
        );
    }
}
