//! Members that reach each other by https, with certificates of one authority or without.

use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_proto::etcd::rpc;
use holdfast_proto::etcd::rpc::cluster_client::ClusterClient;
use holdfast_store::api::StoreServer;
use holdfast_store::options::{ClusterState, ListenUrl, PeerTls, StoreOptions};
use holdfast_store::tls::{Accepted, Authority, FilePair, PEER, Protocol, Subject, TlsOptions};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::api_support::{PATIENCE, eventually};
use crate::cluster_support::{Cluster, free_ports};

/// How long a member is watched that must not get in.
const LOOK: Duration = Duration::from_secs(2);
const YEAR: Duration = Duration::from_hours(24 * 365);

/// Files of an authority and of the members it signs for.
struct Files {
    folder: TempDir,
    authority: Authority,
}

impl Files {
    fn new(name: &str) -> Files {
        let authority = Authority::new(&subject(name, &[])).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca"), authority.certificate_pem()).unwrap();
        Files { folder, authority }
    }

    fn ca(&self) -> PathBuf {
        self.folder.path().join("ca")
    }

    /// A certificate for the member `name`, in files that stay where they are.
    fn issue(&self, name: &str) -> FilePair {
        issue(&self.authority, self.folder.path(), name)
    }

    /// TLS for the member `name`: callers must show a certificate.
    fn member(&self, name: &str) -> TlsOptions {
        TlsOptions {
            identity: Some(self.issue(name)),
            authorities: Some(self.ca()),
            asks_callers: true,
            ..TlsOptions::new(&PEER)
        }
    }
}

fn subject(name: &str, hosts: &[&str]) -> Subject {
    Subject {
        common_name: name.to_owned(),
        hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
        begins: Duration::ZERO,
        lasts: 200 * YEAR,
    }
}

fn issue(authority: &Authority, folder: &Path, name: &str) -> FilePair {
    let issued = authority.issue(&subject(name, &["127.0.0.1"])).unwrap();
    let pair = FilePair {
        certificate: folder.join(format!("{name}.crt")),
        key: folder.join(format!("{name}.key")),
    };
    std::fs::write(&pair.certificate, issued.certificate_pem()).unwrap();
    std::fs::write(&pair.key, issued.key_pem()).unwrap();
    pair
}

/// Everything between the members goes by https.
fn secure(options: &mut StoreOptions, tls: PeerTls) {
    for url in &mut options.listen.peer_urls {
        let (host, port) = match url {
            ListenUrl::Http { host, port } => (host.clone(), *port),
            other => panic!("{other}"),
        };
        *url = ListenUrl::Https { host, port };
    }
    let founders = options.cluster.initial_cluster.iter_mut();
    let urls = founders.flat_map(|(_, urls)| urls);
    for url in urls.chain(&mut options.cluster.advertise_peer_urls) {
        *url = url.replace("http://", "https://");
    }
    options.peer_tls = Some(tls);
}

fn by_files(files: &Files) -> impl Fn(&mut StoreOptions) {
    |options| {
        let tls = files.member(&options.name);
        secure(options, PeerTls::Files(Box::new(tls)));
    }
}

async fn assert_serves(cluster: &Cluster, key: &str) {
    for at in cluster.running() {
        cluster.put(at, &format!("{key}{at}"), "v").await.unwrap();
    }
    cluster.agree().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_with_client_certificates_form_a_cluster_and_send_snapshots() {
    let files = Files::new("one");
    let mut cluster = Cluster::start_with(3, |options| {
        options.raft.snapshot_count = 20;
        options.raft.catch_up_entries = 5;
        by_files(&files)(options);
    })
    .await;
    assert_serves(&cluster, "first").await;
    let away = cluster.follower().await;
    cluster.stop(away).await;
    let leader = cluster.leader().await;
    let value = "v".repeat(10_000);
    for key in 0..100 {
        cluster
            .put(leader, &format!("k{key}"), &value)
            .await
            .unwrap();
    }
    for at in cluster.running() {
        cluster.member(at).purge_log().await.unwrap();
    }
    cluster.restart(away).await;
    assert_serves(&cluster, "after").await;
    // Nobody is answered in clear.
    let address = cluster.servers[0].as_ref().unwrap().peer_addresses()[0];
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"GET /members HTTP/1.0\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer).await);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_joins_over_tls_and_is_told_what_keeps_it_out() {
    let files = Files::new("one");
    let mut cluster = Cluster::start_with(1, by_files(&files)).await;
    let port = free_ports(1)[0];
    let url = format!("https://127.0.0.1:{port}");
    let clients = cluster.servers[0].as_ref().unwrap().client_addresses()[0];
    let mut client = ClusterClient::connect(format!("http://{clients}"))
        .await
        .unwrap();
    let request = rpc::MemberAddRequest {
        peer_ur_ls: vec![url.clone()],
        is_learner: false,
    };
    client.member_add(request).await.unwrap();
    let mut options = cluster.options[0].clone();
    options.name = "new".to_owned();
    options.data_dir = files.folder.path().join("new");
    options.advertise_client_urls = Vec::new();
    options.cluster.state = ClusterState::Existing;
    options.cluster.advertise_peer_urls = vec![url.clone()];
    options
        .cluster
        .initial_cluster
        .push(("new".to_owned(), vec![url]));
    options.listen.peer_urls = vec![ListenUrl::Https {
        host: "127.0.0.1".to_owned(),
        port,
    }];
    let stranger = Files::new("two");
    for (tls, texts) in [
        (
            stranger.member("new"),
            ["no authority of --peer-trusted-ca-file", "has signed it"],
        ),
        (
            TlsOptions {
                authorities: Some(files.ca()),
                ..stranger.member("new")
            },
            ["UnknownCA", "--peer-cert-file"],
        ),
    ] {
        options.peer_tls = Some(PeerTls::Files(Box::new(tls)));
        let refused = StoreServer::start(options.clone()).await.unwrap_err();
        for text in texts {
            assert!(refused.to_string().contains(text), "{refused}");
        }
    }
    options.peer_tls = Some(PeerTls::Files(Box::new(files.member("new"))));
    let started = timeout(PATIENCE, StoreServer::start(options.clone())).await;
    cluster.servers.push(Some(started.unwrap().unwrap()));
    cluster.options.push(options);
    assert_serves(&cluster, "k").await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_of_another_name_or_authority_does_not_get_in() {
    let (files, others) = (Files::new("one"), Files::new("two"));
    let stranger = TlsOptions {
        // It believes the others; they do not believe it.
        authorities: Some(files.ca()),
        ..others.member("m2")
    };
    let unwanted = files.member("m9");
    for third in [stranger, unwanted] {
        let mut cluster = Cluster::plan(3, |options| {
            let mut tls = match options.name.as_str() {
                "m2" => third.clone(),
                name => files.member(name),
            };
            if options.name != "m2" {
                tls.accepted = Accepted::CommonNames(vec!["m0".to_owned(), "m1".to_owned()]);
            }
            secure(options, PeerTls::Files(Box::new(tls)));
        });
        let out = StoreServer::start(cluster.options[2].clone());
        let mut out = std::pin::pin!(out);
        // It may not even wait: nobody else is there, and nobody who is lets it in.
        let early = timeout(Duration::from_millis(200), out.as_mut()).await;
        assert!(early.is_err(), "{early:?}");
        cluster.servers.truncate(2);
        cluster.start_all().await;
        cluster.put(0, "k", "v").await.unwrap();
        let late = timeout(LOOK, out.as_mut()).await;
        assert!(late.is_err(), "{late:?}");
        cluster.put(1, "k", "v").await.unwrap();
        cluster.stop_all().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_and_their_authority_are_rotated_while_the_members_run() {
    let files = Files::new("one");
    let mut cluster = Cluster::start_with(3, by_files(&files)).await;
    assert_serves(&cluster, "before").await;
    // The next authority is believed beside the old one, then members get its certificates, then
    // the old one goes.
    let next = Authority::new(&subject("next", &[])).unwrap();
    let both = files.authority.certificate_pem() + &next.certificate_pem();
    std::fs::write(files.ca(), both).unwrap();
    for at in 0..3 {
        issue(&next, files.folder.path(), &format!("m{at}"));
    }
    let made = cluster.network.made();
    for at in 0..3 {
        cluster.disconnect(at, made).await;
        cluster.heal();
    }
    // Only connections that were made with the new certificates are left, and there are some.
    assert_serves(&cluster, "between").await;
    assert!(cluster.network.made() > made);
    std::fs::write(files.ca(), next.certificate_pem()).unwrap();
    let leader = cluster.leader().await;
    cluster.isolate(leader);
    let others = [(leader + 1) % 3, (leader + 2) % 3];
    cluster.leader_among(&others).await;
    cluster.heal();
    eventually(|| async {
        timeout(Duration::from_secs(1), cluster.leader())
            .await
            .is_ok()
    })
    .await;
    assert_serves(&cluster, "after").await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_with_made_certificates_form_a_cluster() {
    let mut cluster = Cluster::start_with(3, |options| {
        let made = PeerTls::Made {
            years: 1,
            protocol: Protocol::default(),
        };
        secure(options, made);
    })
    .await;
    assert_serves(&cluster, "k").await;
    cluster.stop_all().await;
}
