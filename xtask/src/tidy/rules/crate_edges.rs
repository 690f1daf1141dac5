//! Which crate of the workspace may use which, read from cargo's metadata.

use std::path::Path;

use anyhow::{Context as _, Result};
use cargo_metadata::{DependencyKind, MetadataCommand, Package};

use crate::tidy::check::Finding;

/// A crate and what it may use of the workspace, outside of its tests. Crates that are never
/// shipped may use everything.
const ALLOWED: [(&str, &[&str]); 6] = [
    ("holdfast-proto", &[]),
    ("holdfast-policies", &[]),
    ("holdfast-store", &["holdfast-proto"]),
    (
        "holdfast-restore",
        &["holdfast-store", "holdfast-policies", "holdfast-proto"],
    ),
    (
        "holdfast-drills",
        &[
            "holdfast-restore",
            "holdfast-store",
            "holdfast-policies",
            "holdfast-proto",
        ],
    ),
    (
        "holdfast-appliance",
        &[
            "holdfast-drills",
            "holdfast-restore",
            "holdfast-store",
            "holdfast-policies",
            "holdfast-proto",
        ],
    ),
];

/// Libraries that a crate may not use, and why.
const BANNED: [(&str, &str, &str); 4] = [
    ("holdfast-policies", "tokio", "decisions are pure"),
    ("holdfast-store", "anyhow", "libraries have typed errors"),
    ("holdfast-restore", "anyhow", "libraries have typed errors"),
    ("holdfast-drills", "anyhow", "libraries have typed errors"),
];

/// # Errors
/// When cargo cannot read the workspace.
pub(in crate::tidy) fn check(root: &Path) -> Result<Vec<Finding>> {
    let metadata = MetadataCommand::new()
        .current_dir(root)
        .no_deps()
        .exec()
        .context("cargo metadata")?;
    Ok(metadata.packages.iter().flat_map(findings).collect())
}

fn findings(package: &Package) -> Vec<Finding> {
    let shipped = |kind: DependencyKind| kind != DependencyKind::Development;
    let used = package
        .dependencies
        .iter()
        .filter(|dependency| shipped(dependency.kind));
    let name = package.name.as_str();
    used.filter_map(|dependency| Some(Finding::file(name, forbidden(name, &dependency.name)?)))
        .collect()
}

/// Why `from` may not use `to`, if so.
fn forbidden(from: &str, to: &str) -> Option<String> {
    let banned = BANNED
        .iter()
        .find(|(package, library, _)| *package == from && *library == to);
    if let Some((_, _, reason)) = banned {
        return Some(format!("uses `{to}`: {reason}"));
    }
    let (_, allowed) = ALLOWED.iter().find(|(package, _)| *package == from)?;
    let is_ours = to.starts_with("holdfast-") || to == "xtask";
    (is_ours && !allowed.contains(&to)).then(|| format!("uses `{to}`, which is not below it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_may_not_use_the_pipeline() {
        assert!(forbidden("holdfast-store", "holdfast-restore").is_some());
        assert!(forbidden("holdfast-restore", "holdfast-store").is_none());
        assert!(forbidden("holdfast-proto", "holdfast-policies").is_some());
    }

    #[test]
    fn decisions_may_not_use_a_runtime() {
        assert!(forbidden("holdfast-policies", "tokio").is_some());
        assert!(forbidden("holdfast-policies", "serde").is_none());
    }

    #[test]
    fn what_is_never_shipped_may_use_everything() {
        assert!(forbidden("holdfast-interop", "holdfast-restore").is_none());
    }
}
