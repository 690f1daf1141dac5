//! `holdfast vault check` on a real S3 server.

use anyhow::{Context as _, Result};
use holdfast_interop::peers::Peers;
use holdfast_interop::server::{Kind, Server};

use super::appliance::Appliance;

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_finds_a_real_s3_server_fit_and_leaves_nothing_behind() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let server = Server::start(&peers, Kind::Etcd)?;
    let appliance = Appliance::on_s3(&peers, &server)?;
    let checked = appliance
        .run(&["vault", "check", "-w", "json"])?
        .success()?
        .json()?;
    let findings = checked["findings"].as_array().context("no findings")?;
    let detail = |name: &str| -> Result<String> {
        let found = findings.iter().find(|one| one["name"] == name);
        let found = found.with_context(|| format!("{name} in {checked}"))?;
        assert_eq!(found["is_good"], true, "{found}");
        Ok(found["detail"].as_str().unwrap_or_default().to_owned())
    };
    for name in [
        "write",
        "create only",
        "read",
        "list",
        "clock",
        "remove",
        "multipart",
        "multipart abort",
    ] {
        detail(name)?;
    }
    for name in ["signed digest", "checksum"] {
        let said = detail(name)?;
        assert!(said.starts_with("verified: "), "{name}: {said}");
    }
    assert_eq!(appliance.objects()?, ["vault.json"]);
    let told = appliance.run(&["vault", "check"])?.success()?;
    assert!(
        told.stdout.contains("ok    checksum: verified"),
        "{}",
        told.stdout
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_and_a_missing_bucket_are_told_apart() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let server = Server::start(&peers, Kind::Etcd)?;
    let appliance = Appliance::on_s3(&peers, &server)?;
    let missing = ["vault", "check", "--set", "restore.vault.s3.bucket=nowhere"];
    let refused = appliance.run(&missing)?;
    assert_eq!(refused.code, 10, "{refused:?}");
    assert!(refused.stderr.contains("make the bucket"), "{refused:?}");
    assert!(!refused.stderr.contains("<Error>"), "{refused:?}");

    let text = "aws_access_key_id = holdfast\naws_secret_access_key = wrong\n";
    std::fs::write(appliance.path("s3-credentials"), text)?;
    for words in [&["backup", "now"][..], &["vault", "check"]] {
        let refused = appliance.run(words)?;
        assert_eq!(refused.code, 13, "{refused:?}");
        assert!(refused.stderr.contains("credentials_file"), "{refused:?}");
    }
    Ok(())
}
