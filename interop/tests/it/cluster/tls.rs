//! Members that reach each other by https: what operators see, and who is kept out.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use holdfast_interop::cluster::Cluster;
use holdfast_interop::peers::Peers;
use holdfast_interop::server::Kind;
use holdfast_interop::{ports, wait};
use holdfast_store::tls::{Authority, Subject};

use super::script::{Script, assert_alike};
use super::{TRUSTED_AFTER, wait_writable};
use crate::pair::our_kind;

fn subject(name: &str, hosts: &[&str]) -> Subject {
    Subject {
        common_name: name.to_owned(),
        hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
        begins: Duration::from_hours(24 * 365 * 50),
        lasts: Duration::from_hours(24 * 365 * 50),
    }
}

/// `ca.crt`, and `member.crt` with `member.key` for the loopback address.
fn write_files(folder: &Path) -> Result<()> {
    let authority = Authority::new(&subject("authority", &[]))?;
    let member = authority.issue(&subject("member", &["127.0.0.1", "localhost"]))?;
    std::fs::write(folder.join("ca.crt"), authority.certificate_pem())?;
    std::fs::write(folder.join("member.crt"), member.certificate_pem())?;
    std::fs::write(folder.join("member.key"), member.key_pem())?;
    Ok(())
}

/// Loss, return and joining of members, as an operator sees them.
fn walk(cluster: &mut Cluster, script: &mut Script) -> Result<()> {
    for line in ["member list", "endpoint status --cluster", "put k v"] {
        script.step(cluster, 1, line)?;
    }
    cluster.kill(2)?;
    wait_writable(cluster, 0)?;
    script.step(cluster, 0, "put k w")?;
    cluster.restart(2)?;
    wait::pause(TRUSTED_AFTER);
    let new = cluster.reserve()?;
    script.step(cluster, 1, "member add m3 --peer-urls=PEER(m3) --learner")?;
    cluster.boot(new, &cluster.initial_cluster(), "existing")?;
    wait::until("the learner to catch up", wait::READY_MAX, || {
        let found = cluster.ctl(new).run(&["get", "k", "--consistency=s"])?;
        Ok(found.stdout.contains('w').then_some(()))
    })?;
    script.step(cluster, new, "get k --consistency=s")?;
    script.step(cluster, 0, "member list")?;
    script.step(cluster, 0, "member remove ID(added3)")?;
    wait_writable(cluster, 1)?;
    script.step(cluster, 2, "get k")?;
    Ok(())
}

/// Walks through both with the same flags; both logs say `texts`.
fn compare_secure(peers: &Peers, flags: &[&str], texts: &[&str]) -> Result<()> {
    let mut seen = Vec::new();
    for kind in [Kind::Etcd, our_kind()] {
        let mut cluster = Cluster::plan(peers, kind, 3, flags)?;
        cluster.is_secure = true;
        cluster.launch_all(&cluster.initial_cluster())?;
        let mut script = Script::default();
        for (name, id) in cluster.members(0)? {
            script.name(id, &name);
        }
        wait::pause(TRUSTED_AFTER);
        walk(&mut cluster, &mut script)?;
        for text in texts {
            let log = cluster.log(0);
            ensure!(
                log.contains(text),
                "no {text:?} in the log of {kind:?}\n{log}"
            );
        }
        seen.push(script);
    }
    assert_alike(&seen[0], &seen[1]);
    Ok(())
}

#[test]
fn members_with_client_certificates_look_as_etcds_do() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    write_files(folder.path())?;
    let file = |flag: &str, name: &str| format!("--{flag}={}", folder.path().join(name).display());
    let flags = [
        file("peer-cert-file", "member.crt"),
        file("peer-key-file", "member.key"),
        file("peer-trusted-ca-file", "ca.crt"),
        "--peer-client-cert-auth".to_owned(),
        "--peer-cert-allowed-cn=member".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    compare_secure(&peers, &flags, &["starting with peer TLS"])
}

#[test]
fn members_that_make_their_certificates_look_as_etcds_do() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    compare_secure(
        &peers,
        &["--peer-auto-tls"],
        &[
            "automatically generate certificates",
            "starting with peer TLS",
        ],
    )
}

#[test]
fn founders_meet_in_a_registry_that_is_reached_by_tls_with_a_user() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    write_files(folder.path())?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut registry = Cluster::plan(&peers, Kind::Etcd, 1, &[])?;
    let secure = format!("https://127.0.0.1:{}", ports::free()?);
    // Beside the port in clear, by which the registry is filled.
    registry.flags = vec![
        format!("--listen-client-urls={},{secure}", registry.endpoint(0)),
        format!("--cert-file={}", path("member.crt")),
        format!("--key-file={}", path("member.key")),
        format!("--trusted-ca-file={}", path("ca.crt")),
        "--client-cert-auth".to_owned(),
    ];
    registry.launch_all(&registry.initial_cluster())?;
    let ctl = registry.ctl(0);
    for line in [
        "put /_etcd/registry/t/_config/size 3",
        "user add root:secret",
        "user grant-role root root",
        "auth enable",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        ctl.run(&words)?.success()?;
    }
    let flags = [
        "--discovery-token=t".to_owned(),
        format!("--discovery-endpoints={secure}"),
        format!("--discovery-cacert={}", path("ca.crt")),
        format!("--discovery-cert={}", path("member.crt")),
        format!("--discovery-key={}", path("member.key")),
        "--discovery-user=root".to_owned(),
        "--discovery-password=secret".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut cluster = Cluster::plan(&peers, our_kind(), 3, &flags)?;
    cluster.launch_all("")?;
    wait_writable(&cluster, 1)?;
    assert_eq!(cluster.members(2)?.len(), 3);
    Ok(())
}
