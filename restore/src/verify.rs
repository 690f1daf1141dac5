//! Verification of one backup, up to L2, from nothing but the vault.
//!
//! | level | checked here |
//! |---|---|
//! | L0 | the manifest is there and genuine, every part is there at its size |
//! | L1 | every byte read back: digests hold, everything decrypts and decompresses |
//! | L2 | the database is sound page by page, its HashKV recomputed equals the source's |
//!
//! Without an identity the stored digests are still checked and the verdict stops at L0, saying
//! so. Damage is a finding, not an error: an error means that nothing can be said.

mod parts;

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use holdfast_policies::{Level, SnapshotId};
use holdfast_store::etcd_file::EtcdFile;

use crate::error::{Error, Result};
use crate::flaw::{Flaw, FlawKind};
use crate::inspect::{self, Comparison};
use crate::key::Keys;
use crate::manifest::{MANIFEST_BYTES_MAX, Manifest, SourceHash};
use crate::progress::{Phase, Progress, ProgressFn};
use crate::proof::{Evidence, Proof};
use crate::rewrap::ENVELOPES_MAX;
use crate::seal::PartKey;
use crate::spool::{Spool, SpoolReader};
use crate::vault::{Backup, Catalog, Folder, Vault, layout};

pub(crate) use parts::{Spooled, fetch_parts};

/// Largest further envelope read, in bytes.
const ENVELOPE_BYTES_MAX: u64 = 64 * 1024;

/// Most problems of one database named in a proof.
const PROBLEMS_NAMED_MAX: usize = 5;

/// How a backup is verified.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// The highest level to try: L0, L1 or L2; higher ones are a drill's.
    pub upto: Level,
    /// The time, by the verifier's clock.
    pub now: DateTime<Utc>,
    /// A folder for the sealed spool, for L2.
    pub work_dir: PathBuf,
}

/// Verifies one backup. Record the proof with [`crate::proof::record`].
pub async fn verify<Mode: Sync>(
    vault: &Vault<Mode>,
    catalog: &Catalog,
    id: SnapshotId,
    keys: &Keys,
    options: &VerifyOptions,
    progress: ProgressFn<'_>,
) -> Result<Proof> {
    let backup = catalog.get_named(id)?;
    let mut proof = Proof {
        id,
        cluster: catalog.cluster.clone(),
        manifest: backup.link.digest,
        at: options.now,
        level: None,
        evidence: Evidence::default(),
        flaws: chain_flaws(catalog, backup),
    };
    check_presence(vault, backup, &mut proof).await?;
    if !proof.flaws.is_empty() || options.upto == Level::L0 {
        if proof.flaws.is_empty() {
            proof.level = Some(Level::L0);
        }
        return Ok(proof);
    }
    proof.level = Some(Level::L0);
    let spool = if options.upto >= Level::L2 {
        let work_dir = options.work_dir.clone();
        Some(tokio::task::spawn_blocking(move || Spool::create(&work_dir)).await??)
    } else {
        None
    };
    let key = part_key(vault, backup, keys, &mut proof).await?;
    let fetched = fetch_parts(
        vault,
        &backup.manifest,
        key.as_ref(),
        spool,
        (Phase::Fetching, progress),
    )
    .await?;
    fetched.enter(&mut proof.evidence);
    let is_opened = key.is_some();
    proof.flaws.extend(fetched.flaws);
    let is_damaged = proof
        .flaws
        .iter()
        .any(|flaw| flaw.kind != FlawKind::WrongIdentity);
    if is_damaged {
        proof.level = None;
        return Ok(proof);
    }
    if !is_opened {
        return Ok(proof);
    }
    proof.level = Some(Level::L1);
    if let Some(spooled) = fetched.spooled {
        let bytes = backup.manifest.content.bytes;
        progress(Progress {
            phase: Phase::Checking,
            done: 0,
            total: Some(bytes),
        });
        let manifest = backup.manifest.clone();
        proof = tokio::task::spawn_blocking(move || {
            let reader = spooled.spool.into_reader(bytes, manifest.part_bytes);
            Ok::<_, Error>(check_content((reader, spooled.trailer), &manifest, proof))
        })
        .await??;
    }
    Ok(proof)
}

/// What the chain says against this backup; what it says about its neighbours is a remark.
fn chain_flaws(catalog: &Catalog, backup: &Backup) -> Vec<Flaw> {
    let own = layout::manifest(&catalog.cluster, backup.manifest.sequence).to_string();
    catalog
        .flaws
        .iter()
        .filter(|flaw| flaw.object == own)
        .cloned()
        .collect()
}

/// L0: the manifest as the catalog knows it, and every part at its size.
async fn check_presence<Mode>(
    vault: &Vault<Mode>,
    backup: &Backup,
    proof: &mut Proof,
) -> Result<()> {
    let manifest = &backup.manifest;
    let name = layout::manifest(&manifest.cluster, manifest.sequence);
    match vault.get(&name, MANIFEST_BYTES_MAX).await {
        Ok(bytes) if crate::digest::Digest::of(&bytes) == backup.link.digest => {}
        Ok(_) | Err(Error::TooLarge { .. }) => {
            let detail = "changed since the catalog was read";
            proof
                .flaws
                .push(Flaw::new(FlawKind::ManifestEdited, &name, detail));
        }
        Err(Error::ObjectMissing { .. }) => {
            let detail = "gone since the catalog was read";
            proof
                .flaws
                .push(Flaw::new(FlawKind::ManifestMissing, &name, detail));
        }
        Err(other) => return Err(other),
    }
    let listed = vault
        .list(&Folder::Parts.of_backup(&manifest.cluster, manifest.id))
        .await?;
    for (index, part) in manifest.parts.iter().enumerate() {
        let name = layout::part(&manifest.cluster, manifest.id, index);
        match listed.iter().find(|entry| entry.name == name) {
            None => {
                proof
                    .flaws
                    .push(Flaw::new(FlawKind::PartMissing, name, "not in the vault"));
            }
            Some(entry) if entry.bytes != part.stored_bytes => {
                let detail = format!("{} bytes, expected {}", entry.bytes, part.stored_bytes);
                proof
                    .flaws
                    .push(Flaw::new(FlawKind::PartSize, name, detail));
            }
            Some(_) => proof.evidence.parts_present += 1,
        }
    }
    Ok(())
}

/// The key of the parts, as far as the identities at hand give it.
async fn part_key<Mode>(
    vault: &Vault<Mode>,
    backup: &Backup,
    keys: &Keys,
    proof: &mut Proof,
) -> Result<Option<PartKey>> {
    match open_key(vault, &backup.manifest, keys).await {
        Ok(key) => Ok(Some(key)),
        Err(Error::IdentityNeeded { .. }) => {
            let note = "no identity here: stored digests checked, nothing decrypted";
            proof.evidence.notes.push(note.to_owned());
            Ok(None)
        }
        Err(error @ Error::NoMatchingIdentity { .. }) => {
            let id = backup.id();
            proof
                .flaws
                .push(Flaw::new(FlawKind::WrongIdentity, id, error));
            Ok(None)
        }
        Err(error @ (Error::Decrypt { .. } | Error::Malformed { .. } | Error::TooLarge { .. })) => {
            let id = backup.id();
            proof
                .flaws
                .push(Flaw::new(FlawKind::PartUnreadable, id, error));
            Ok(None)
        }
        Err(other) => Err(other),
    }
}

/// Opens the manifest's envelope, or one that a rewrap added.
pub(crate) async fn open_key<Mode>(
    vault: &Vault<Mode>,
    manifest: &Manifest,
    keys: &Keys,
) -> Result<PartKey> {
    let first = manifest.encryption.open(keys.identities.as_ref(), &[]);
    let Err(Error::NoMatchingIdentity { recipients }) = first else {
        return first;
    };
    let folder = Folder::Envelopes.of_backup(&manifest.cluster, manifest.id);
    let mut further = Vec::new();
    for listed in vault.list(&folder).await?.iter().rev().take(ENVELOPES_MAX) {
        further.push(vault.get(&listed.name, ENVELOPE_BYTES_MAX).await?);
    }
    if further.is_empty() {
        return Err(Error::NoMatchingIdentity { recipients });
    }
    manifest.encryption.open(keys.identities.as_ref(), &further)
}

/// L2: the content itself.
fn check_content(
    (reader, trailer): (SpoolReader, std::result::Result<(), String>),
    manifest: &Manifest,
    mut proof: Proof,
) -> Proof {
    let object = manifest.id;
    let broken = |detail: String| Flaw::new(FlawKind::StructureBroken, object, detail);
    match trailer {
        Ok(()) => proof.evidence.is_trailer_valid = true,
        Err(reason) => proof
            .flaws
            .push(broken(format!("digest trailer: {reason}"))),
    }
    let file = match EtcdFile::open(reader) {
        Ok(file) => file,
        Err(error) => {
            proof
                .flaws
                .push(broken(inspect::unreadable(&error).to_string()));
            return proof;
        }
    };
    let survey = file.survey(|_pair| ());
    proof.evidence.pages = survey.report.pages;
    let problems = survey.report.problems.iter().take(PROBLEMS_NAMED_MAX);
    proof
        .flaws
        .extend(problems.map(|problem| broken(problem.to_string())));
    let inspected = match &survey.content {
        Ok(content) => {
            let whole = (manifest.content.bytes, manifest.content.digest);
            inspect::inspect(&file, content, whole)
        }
        // Named already.
        Err(_) if survey.report.bucket_problems > 0 => return proof,
        Err(error) => Err(inspect::unreadable(error)),
    };
    let content = match inspected {
        Ok(content) => content,
        Err(error) => {
            proof.flaws.push(broken(error.to_string()));
            return proof;
        }
    };
    proof.evidence.keys = content.keys;
    proof.evidence.hash_kv = Some(content.hash_kv);
    if content != manifest.content {
        let detail = "the decoded content is not what the manifest says";
        proof
            .flaws
            .push(Flaw::new(FlawKind::ContentMismatch, object, detail));
    }
    if let SourceHash::Told { hash, .. } = &manifest.source_hash {
        proof.evidence.source_hash_kv = Some(*hash);
    }
    match inspect::compare(&content, &manifest.source_hash) {
        Comparison::Equal if proof.flaws.is_empty() => proof.level = Some(Level::L2),
        Comparison::Equal => {}
        Comparison::Unknown(reason) => {
            proof
                .evidence
                .notes
                .push(format!("no hash of the source to compare with: {reason}"));
        }
        Comparison::Different => {
            let detail = format!("recomputed {}", content.hash_kv);
            proof
                .flaws
                .push(Flaw::new(FlawKind::HashMismatch, object, detail));
        }
    }
    proof
}
