use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

const HOUR: Duration = Duration::from_hours(1);
/// Long before any test and long after.
const ALWAYS: (Duration, Duration) = (Duration::ZERO, Duration::from_hours(24 * 365 * 200));
/// Long over.
const OVER: (Duration, Duration) = (Duration::ZERO, HOUR);

fn subject(name: &str, hosts: &[&str], (begins, lasts): (Duration, Duration)) -> Subject {
    Subject {
        common_name: name.to_owned(),
        hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
        begins,
        lasts,
    }
}

/// Two sides in files of their own, and the authorities that may sign for them.
struct Stage {
    folder: TempDir,
    authority: Authority,
}

impl Stage {
    fn new() -> Self {
        Self::named("an authority")
    }

    fn named(name: &str) -> Self {
        let stage = Self {
            folder: tempfile::tempdir().unwrap(),
            authority: Authority::new(&subject(name, &[], ALWAYS)).unwrap(),
        };
        std::fs::write(stage.path("ca"), stage.authority.certificate_pem()).unwrap();
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn issue(&self, name: &str, hosts: &[&str], times: (Duration, Duration)) -> Issued {
        let subject = subject(name, hosts, times);
        self.authority.issue(&subject).unwrap()
    }

    fn write(&self, name: &str, issued: &Issued) -> FilePair {
        let pair = FilePair {
            certificate: self.path(&format!("{name}.crt")),
            key: self.path(&format!("{name}.key")),
        };
        std::fs::write(&pair.certificate, issued.certificate_pem()).unwrap();
        std::fs::write(&pair.key, issued.key_pem()).unwrap();
        pair
    }

    /// A side called `name` for the loopback address.
    fn member(&self, name: &str) -> TlsOptions {
        let issued = self.issue(name, &["127.0.0.1"], ALWAYS);
        self.side(self.write(name, &issued))
    }

    fn side(&self, pair: FilePair) -> TlsOptions {
        TlsOptions {
            identity: Some(pair),
            authorities: Some(self.path("ca")),
            ..TlsOptions::new(&PEER)
        }
    }
}

fn open(options: TlsOptions) -> Arc<Tls> {
    Arc::new(Tls::open(options).unwrap())
}

/// What both sides make of a connection: a word there and back, or why not.
async fn meet(server: &Arc<Tls>, client: &Arc<Tls>) -> (Result<(), String>, Result<(), String>) {
    let (near, far) = tokio::io::duplex(1 << 16);
    let accepting = async {
        let address = "127.0.0.1".parse().unwrap();
        let mut stream = server.accept(far, address).await?;
        let mut word = [0; 4];
        stream.read_exact(&mut word).await?;
        stream.write_all(&word).await?;
        stream.shutdown().await
    };
    let connecting = async {
        let mut stream = client.connect(near, "127.0.0.1", &["h2"]).await?;
        stream.write_all(b"word").await?;
        let mut word = [0; 4];
        stream.read_exact(&mut word).await?;
        assert_eq!(&word, b"word");
        Ok::<_, io::Error>(())
    };
    let (accepted, connected) = tokio::join!(accepting, connecting);
    let told = |result: io::Result<()>| result.map_err(|error| error.to_string());
    (told(accepted), told(connected))
}

fn assert_told(result: Result<(), String>, texts: &[&str]) {
    let error = result.unwrap_err();
    for text in texts {
        assert!(error.contains(text), "no {text:?} in {error:?}");
    }
}

#[tokio::test]
async fn members_of_one_authority_speak_to_each_other() {
    let stage = Stage::new();
    let (server, client) = (open(stage.member("a")), open(stage.member("b")));
    assert_eq!(meet(&server, &client).await, (Ok(()), Ok(())));
}

#[tokio::test]
async fn a_caller_without_a_certificate_is_refused_and_told_which_flag_gives_one() {
    let stage = Stage::new();
    let server = open(stage.member("a"));
    let bare = open(TlsOptions {
        authorities: Some(stage.path("ca")),
        ..TlsOptions::new(&PEER)
    });
    let (accepted, connected) = meet(&server, &bare).await;
    let ca = stage.path("ca").display().to_string();
    assert_told(accepted, &["shows no certificate", "--peer-cert-file", &ca]);
    assert_told(connected, &["CertificateRequired", "--peer-cert-file"]);
}

#[tokio::test]
async fn certificates_of_another_authority_are_refused_on_both_sides() {
    let (ours, theirs) = (Stage::new(), Stage::named("another authority"));
    let (server, stranger) = (open(ours.member("a")), open(theirs.member("b")));
    let (accepted, connected) = meet(&server, &stranger).await;
    assert_told(
        connected,
        &["no authority of --peer-trusted-ca-file", "has signed it"],
    );
    assert_told(accepted, &["UnknownCA", "--peer-trusted-ca-file"]);
    // One that believes the server, whose certificate the server does not believe.
    let mut options = theirs.member("b");
    options.authorities = Some(ours.path("ca"));
    let shown = options.identity.clone().unwrap().certificate;
    let (accepted, connected) = meet(&server, &open(options)).await;
    assert_told(
        accepted,
        &["the caller's certificate is refused", "has signed it"],
    );
    assert_told(connected, &["UnknownCA", &shown.display().to_string()]);
}

#[tokio::test]
async fn only_the_names_let_in_are_let_in_whoever_calls() {
    let stage = Stage::new();
    let accepting = |accepted: Accepted| {
        open(TlsOptions {
            accepted,
            ..stage.member("a")
        })
    };
    let names = |names: &[&str]| {
        names
            .iter()
            .map(|&name| name.to_owned())
            .collect::<Vec<_>>()
    };
    let other = open(stage.member("b"));
    for fine in [
        Accepted::CommonNames(names(&["x", "b"])),
        Accepted::Hosts(names(&["x", "127.0.0.1"])),
    ] {
        assert_eq!(meet(&accepting(fine), &other).await, (Ok(()), Ok(())));
    }
    for wrong in [
        Accepted::CommonNames(names(&["x"])),
        Accepted::Hosts(names(&["x", "127.0.0.2"])),
    ] {
        let picky = accepting(wrong);
        let texts = [
            "client certificate authentication failed",
            "--peer-cert-allowed-cn",
        ];
        assert_told(meet(&picky, &other).await.0, &texts);
        assert_told(meet(&other, &picky).await.1, &texts);
    }
}

#[tokio::test]
async fn a_caller_comes_from_where_its_certificate_says_unless_nobody_asks() {
    let stage = Stage::new();
    let mut options = stage.member("a");
    let caller = |hosts: &[&str]| {
        let pair = stage.write("b", &stage.issue("b", hosts, ALWAYS));
        open(stage.side(pair))
    };
    let server = open(options.clone());
    for hosts in [&[][..], &["127.0.0.9", "localhost"], &["127.0.0.1"]] {
        assert_eq!(meet(&server, &caller(hosts)).await.0, Ok(()), "{hosts:?}");
    }
    let elsewhere = caller(&["192.0.2.7"]);
    let texts = ["192.0.2.7", "--peer-skip-client-san-verification"];
    assert_told(meet(&server, &elsewhere).await.0, &texts);
    options.skips_address = true;
    assert_eq!(meet(&open(options), &elsewhere).await.0, Ok(()));
}

#[tokio::test]
async fn a_server_is_who_the_url_says() {
    let stage = Stage::new();
    let pair = stage.write("a", &stage.issue("a", &["other.example"], ALWAYS));
    let server = open(stage.side(pair));
    let (_, connected) = meet(&server, &open(stage.member("b"))).await;
    assert_told(connected, &["issue one that names the host of the URL"]);
    let named = open(TlsOptions {
        server_name: Some("other.example".to_owned()),
        ..stage.member("b")
    });
    assert_eq!(meet(&server, &named).await, (Ok(()), Ok(())));
}

#[tokio::test]
async fn rotated_files_count_for_the_next_connection_and_broken_ones_do_not() {
    let stage = Stage::new();
    let server = open(stage.member("a"));
    let expired = stage.issue("b", &["127.0.0.1"], OVER);
    let pair = stage.write("b", &expired);
    let client = open(stage.side(pair.clone()));
    assert_told(
        meet(&server, &client).await.0,
        &["expired", "issue a new one"],
    );
    stage.write("b", &stage.issue("b", &["127.0.0.1"], ALWAYS));
    assert_eq!(meet(&server, &client).await, (Ok(()), Ok(())));
    std::fs::write(&pair.key, "half a k").unwrap();
    assert_eq!(meet(&server, &client).await, (Ok(()), Ok(())));
    std::fs::remove_file(&pair.certificate).unwrap();
    assert_eq!(meet(&server, &client).await, (Ok(()), Ok(())));
    // Another authority, on both sides: the file holds the old and the new while members change.
    let next = Authority::new(&subject("the next", &[], ALWAYS)).unwrap();
    let both = stage.authority.certificate_pem() + &next.certificate_pem();
    std::fs::write(stage.path("ca"), both).unwrap();
    let issued = next.issue(&subject("b", &["127.0.0.1"], ALWAYS)).unwrap();
    stage.write("b", &issued);
    assert_eq!(meet(&server, &client).await, (Ok(()), Ok(())));
}

#[tokio::test]
async fn revoked_certificates_are_refused_once_the_list_names_them() {
    let stage = Stage::new();
    let list = |revoked: &[&Issued]| {
        let list = stage.authority.revoke(revoked, HOUR).unwrap();
        std::fs::write(stage.path("crl"), list).unwrap();
    };
    let issued = stage.issue("b", &["127.0.0.1"], ALWAYS);
    let client = open(stage.side(stage.write("b", &issued)));
    list(&[&stage.issue("c", &[], ALWAYS)]);
    let server = open(TlsOptions {
        revoked: Some(stage.path("crl")),
        ..stage.member("a")
    });
    assert_eq!(meet(&server, &client).await, (Ok(()), Ok(())));
    list(&[&issued]);
    let texts = ["certificate serial", "revoked", "--peer-crl-file"];
    assert_told(meet(&server, &client).await.0, &texts);
    assert_told(meet(&client, &server).await.1, &texts);
}

#[tokio::test]
async fn with_made_certificates_all_is_enciphered_and_nobody_known() {
    let made = || {
        let issued = self_signed(&subject("", &["127.0.0.1"], OVER)).unwrap();
        Arc::new(Tls::unchecked(Protocol::default(), issued).unwrap())
    };
    assert_eq!(meet(&made(), &made()).await, (Ok(()), Ok(())));
    let (_, connected) = meet(&made(), &open(Stage::new().member("b"))).await;
    assert_told(connected, &["its certificate is refused"]);
}

#[tokio::test]
async fn who_does_not_speak_tls_is_told_of() {
    let server = open(Stage::new().member("a"));
    let (mut near, far) = tokio::io::duplex(1 << 16);
    near.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    let refused = server.accept(far, "127.0.0.1".parse().unwrap()).await;
    let told = refused.map(drop).map_err(|error| error.to_string());
    assert_told(told, &["does not speak TLS", "https"]);
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let stage = Stage::new();
    let refused = |options: TlsOptions| Tls::open(options).unwrap_err().to_string();
    let mut options = stage.member("a");
    options.authorities = Some(Path::new("/no/such/file").to_owned());
    let told = refused(options);
    assert!(
        told.contains("peer-trusted-ca-file") && told.contains("/no/such/file"),
        "{told}"
    );
    let mut options = stage.member("a");
    let other = stage.member("b").identity.unwrap();
    options.identity.as_mut().unwrap().key = other.key;
    let told = refused(options);
    assert!(told.contains("peer-key-file"), "{told}");
    let mut options = stage.member("a");
    options.revoked = Some(stage.path("ca"));
    let told = refused(options);
    assert!(told.contains("peer-crl-file"), "{told}");
}
