//! The member's database: the backup's buckets, with what belongs to the old cluster replaced.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::io::Write;

use holdfast_store::bolt::{Bucket, Measure, Plan, ReadAt, WriteError, Writer};
use holdfast_store::etcd_file::{ConfState, EtcdFile};
use holdfast_store::mvcc::Revision;

use super::cluster::Identified;
use super::files::NewFile;
use super::{DataDirPlan, TERM, bumped_revision, content_error};
use crate::error::{Error, Result};

/// Buckets a member expects, whether the backup has them or not.
const BUCKETS: [&str; 10] = [
    "alarm",
    "auth",
    "authRoles",
    "authUsers",
    "cluster",
    "key",
    "lease",
    "members",
    "members_removed",
    "meta",
];
/// Buckets of one backup; etcd has ten.
const BUCKETS_MAX: usize = 256;

/// Entries to put into a bucket, over what the backup has there.
type Overlay = BTreeMap<Vec<u8>, Vec<u8>>;

/// How the backup's content is changed on its way into the directory.
#[derive(Debug)]
pub(super) struct Content {
    /// All buckets to write, and whether the backup's entries go into them.
    buckets: BTreeMap<Vec<u8>, bool>,
    overlays: BTreeMap<&'static str, Overlay>,
    revision: i64,
    compact_revision: i64,
}

/// Either pass over the content.
pub(crate) trait Pass {
    fn bucket(&mut self, name: &[u8]) -> Result<(), WriteError>;
    fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError>;
}

impl Pass for Measure {
    fn bucket(&mut self, name: &[u8]) -> Result<(), WriteError> {
        Measure::bucket(self, name)
    }

    fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        Measure::entry(self, key.len(), value.len())
    }
}

impl<W: Write> Pass for Writer<W> {
    fn bucket(&mut self, name: &[u8]) -> Result<(), WriteError> {
        Writer::bucket(self, name)
    }

    fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        Writer::put(self, key, value)
    }
}

impl Content {
    pub(super) fn plan<R: ReadAt>(
        source: &EtcdFile<R>,
        members: &[Identified],
        plan: &DataDirPlan,
    ) -> Result<Self> {
        let mut buckets: BTreeMap<Vec<u8>, bool> = BUCKETS
            .iter()
            .map(|name| (name.as_bytes().to_vec(), true))
            .collect();
        for name in source.bolt().buckets().map_err(content_error)? {
            buckets.insert(name.to_vec(), true);
        }
        if buckets.len() > BUCKETS_MAX {
            return Err(Error::Content {
                reason: format!("{} buckets", buckets.len()),
            });
        }
        let mut dropped: BTreeSet<&str> = BTreeSet::from(["members", "members_removed"]);
        if plan.clear_alarms {
            dropped.insert("alarm");
        }
        for name in dropped {
            buckets.insert(name.as_bytes().to_vec(), false);
        }

        let newest = source.newest_revision().map_err(content_error)?;
        let compacted = source.compact_revision().map_err(content_error)?;
        let bumped = bumped_revision(newest, plan.bump_revision)?;
        let mut overlays = BTreeMap::new();
        overlays.insert("members", member_records(members));
        overlays.insert(
            "meta",
            meta_records(members, plan.mark_compacted.then_some(bumped))?,
        );
        if plan.bump_revision > 0 {
            let row = Revision {
                main: bumped,
                sub: 0,
            }
            .encode()
            .to_vec();
            overlays.insert("key", Overlay::from([(row, Vec::new())]));
        }
        Ok(Self {
            buckets,
            overlays,
            revision: bumped.max(1),
            compact_revision: if plan.mark_compacted {
                bumped
            } else {
                compacted
            },
        })
    }

    pub(super) fn revision(&self) -> i64 {
        self.revision
    }

    pub(super) fn compact_revision(&self) -> i64 {
        self.compact_revision
    }

    /// Writes the database into `file`, synced; returns its size in bytes.
    pub(super) fn write<R: ReadAt>(&self, source: &EtcdFile<R>, file: &NewFile) -> Result<u64> {
        let mut measure = Measure::with_page_size(source.bolt().page_size())
            .map_err(|error| file.failed(error))?;
        self.feed(source, &mut measure, file)?;
        let plan: Plan = measure.finish().map_err(|error| file.failed(error))?;
        file.fill(|sink| {
            let mut writer = Writer::new(plan, sink).map_err(|error| file.failed(error))?;
            self.feed(source, &mut writer, file)?;
            writer.finish().map_err(|error| file.failed(error))?;
            Ok(plan.size())
        })
    }

    fn feed<R: ReadAt, T: Pass>(
        &self,
        source: &EtcdFile<R>,
        target: &mut T,
        file: &NewFile,
    ) -> Result<()> {
        let nothing = Overlay::new();
        for (name, is_copied) in &self.buckets {
            target.bucket(name).map_err(|error| file.failed(error))?;
            let text = std::str::from_utf8(name).unwrap_or_default();
            let overlay = self.overlays.get(text).unwrap_or(&nothing);
            let bucket = if *is_copied {
                source.bolt().bucket(name).map_err(content_error)?
            } else {
                None
            };
            merge(bucket, overlay, target, file)?;
        }
        Ok(())
    }
}

/// Feeds a bucket in key order, with the overlay's entries in place of or beside its own.
fn merge<R: ReadAt, T: Pass>(
    bucket: Option<Bucket<'_, R>>,
    overlay: &Overlay,
    target: &mut T,
    file: &NewFile,
) -> Result<()> {
    let mut extra = overlay.iter().peekable();
    let mut put =
        |key: &[u8], value: &[u8]| target.entry(key, value).map_err(|error| file.failed(error));
    if let Some(bucket) = bucket {
        let mut cursor = bucket.cursor();
        while let Some(entry) = cursor.advance().map_err(content_error)? {
            if entry.is_bucket {
                return Err(Error::Content {
                    reason: "a bucket inside a bucket".into(),
                });
            }
            while let Some((key, value)) = extra.next_if(|(extra, _)| extra.as_slice() < entry.key)
            {
                put(key, value)?;
            }
            match extra.next_if(|(extra, _)| extra.as_slice() == entry.key) {
                Some((key, value)) => put(key, value)?,
                None => put(entry.key, entry.value)?,
            }
        }
    }
    extra.try_for_each(|(key, value)| put(key, value))
}

fn member_records(members: &[Identified]) -> Overlay {
    members
        .iter()
        .map(|member| (member.key(), member.record()))
        .collect()
}

/// Raft's place in the new log, its members, and the compaction to carry out at the start.
fn meta_records(members: &[Identified], compact: Option<i64>) -> Result<Overlay> {
    let conf_state = ConfState {
        voters: members.iter().map(|member| member.id.0).collect(),
        ..ConfState::default()
    };
    let conf_state = serde_json::to_vec(&conf_state).map_err(|error| Error::Refused {
        reason: error.to_string(),
    })?;
    let index = u64::try_from(members.len()).unwrap_or(u64::MAX);
    let mut records = Overlay::from([
        (b"confState".to_vec(), conf_state),
        (b"consistent_index".to_vec(), index.to_be_bytes().to_vec()),
        (b"term".to_vec(), TERM.to_be_bytes().to_vec()),
    ]);
    if let Some(revision) = compact {
        let row = Revision {
            main: revision,
            sub: 0,
        }
        .encode()
        .to_vec();
        records.insert(b"scheduledCompactRev".to_vec(), row);
    }
    Ok(records)
}
