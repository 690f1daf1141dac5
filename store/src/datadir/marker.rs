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
    u64::from_str_radix(text, 16).map_err(|_| damaged("an id is not a hexadecimal number"))
}

fn damaged(reason: &str) -> Error {
    Error::Format {
        what: "member.json",
        reason: reason.to_owned(),
    }
}
