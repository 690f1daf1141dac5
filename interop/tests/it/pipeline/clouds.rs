//! Backups to every kind of place: checked by the doctor, stored, copied there, verified byte by
//! byte and restored from there.

use anyhow::{Context as _, Result};
use holdfast_interop::clouds::Cloud;
use holdfast_interop::peers::{Peer, Peers};
use holdfast_interop::server::{Kind, Server};

use super::appliance::Appliance;
use crate::long::rounds;

/// What every kind of place must be fit for.
const NEEDED: [&str; 6] = ["write", "create only", "read", "list", "clock", "remove"];

fn whole_story(cloud: &Cloud, server: &Server) -> Result<()> {
    let appliance = Appliance::new(server)?;
    let copies = format!(
        "restore:\n  copies:\n    - {{ name: cloud, vault: {} }}\n",
        cloud.vault()
    );
    appliance.edit("restore:\n", &copies)?;
    let checked = appliance.run(&["vault", "check", "--vault", "cloud", "-w", "json"])?;
    let checked = checked.success()?.json()?;
    let findings = checked["findings"].as_array().context("no findings")?;
    for name in NEEDED {
        let found = findings.iter().find(|one| one["name"] == name);
        let found = found.with_context(|| format!("{name} in {checked}"))?;
        assert_eq!(found["is_good"], true, "{found}");
    }
    appliance.run(&["backup", "now"])?.success()?;
    appliance
        .run(&["vault", "copy", "first", "cloud"])?
        .success()?;
    let again = appliance.run(&["vault", "copy", "first", "cloud", "-w", "json"])?;
    assert_eq!(
        again.success()?.json()?["clusters"][0]["copied"]["objects"],
        0
    );
    appliance
        .run(&["vault", "verify", "first", "cloud"])?
        .success()?;
    std::fs::remove_dir_all(appliance.path("holdfast-data/vault"))?;
    let verified = ["backup", "verify", "--level", "L2", "--vault", "cloud"];
    appliance.run(&verified)?.success()?;
    let restore = [
        "restore",
        "--latest",
        "--vault",
        "cloud",
        "--data-dir",
        "new",
    ];
    appliance.run(&restore)?.success()?;
    // As the first vault, for a host that knows nothing else.
    let place = format!("restore.vault={}", cloud.vault());
    let none = "restore.copies=[]";
    let first = ["backup", "now", "--set", &place, "--set", none];
    appliance.run(&first)?.success()?;
    let list = [
        "backup", "list", "-w", "json", "--set", &place, "--set", none,
    ];
    let list = appliance.run(&list)?.success()?.json()?;
    assert_eq!(list["backups"].as_array().map(Vec::len), Some(2), "{list}");
    Ok(())
}

/// A real etcd with something in it.
fn source(peers: &Peers) -> Result<Server> {
    Server::start(peers, Kind::Etcd)
}

#[test]
fn a_stand_in_for_azure_blob_storage_keeps_a_vault() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let Some(cloud) = Cloud::azure(&peers)? else {
        return Ok(());
    };
    whole_story(&cloud, &source(&peers)?)
}

/// Its program takes minutes to build: only the long form of the tests does that.
#[test]
fn a_second_implementation_of_s3_keeps_a_vault() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    if !rounds(peers.is_built(Peer::Minio), true) {
        eprintln!("SKIPPED: minio is built by `cargo xtask long` only");
        return Ok(());
    }
    whole_story(&Cloud::minio(&peers)?, &source(&peers)?)
}
