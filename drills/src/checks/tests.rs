//! Every check against a served copy of a golden snapshot, as it is and with something wrong.

use std::path::Path;

use bytes::Bytes;
use holdfast_interop::peers::{Peer, Peers};
use holdfast_restore::etcd_datadir::{self, DataDirPlan, write_etcd_datadir};
use holdfast_store::bolt::{FileSource, ReadAt};
use holdfast_store::datadir::bootstrap::{Changes, NewCluster, write_data_dir};
use holdfast_store::etcd_file::{EtcdFile, Trailer, check_trailer};

use super::*;
use crate::scratch::tests::{assert_no_process, member_command};
use crate::scratch::{MemberOrder, Pass, Program, ScratchMember};

const BUMP: i64 = 1_000_000_000;
const PEER_URL: &str = "http://127.0.0.1:0";

fn golden(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/tests/fixtures/etcd/v3.7.3");
    folder.join(format!("{name}.db"))
}

fn decoded<R: ReadAt>(source: R) -> Expected {
    let is_trailer_valid = check_trailer(&source).unwrap() == Trailer::Valid;
    Expected::read(&EtcdFile::open(source).unwrap(), is_trailer_valid).unwrap()
}

/// A golden snapshot, restored and served.
struct Served {
    scratch: tempfile::TempDir,
    member: ScratchMember,
    subject: Subject,
}

fn programs() -> Vec<Program> {
    let etcd = Peers::get().map(|peers| Program::Etcd(peers.path(Peer::Etcd).unwrap()));
    [Some(Program::Holdfast), etcd]
        .into_iter()
        .flatten()
        .collect()
}

async fn serve(name: &str, program: &Program, bump: i64) -> Served {
    let scratch = tempfile::tempdir().unwrap();
    let data_dir = scratch.path().join("data");
    let file = golden(name);
    write(&file, &data_dir, program, bump);
    let expected = decoded(FileSource::open(&file).unwrap());
    let is_etcd = matches!(program, Program::Etcd(_));
    let pass = (is_etcd && expected.auth.is_enabled)
        .then(|| Pass::create(scratch.path(), &expected.auth).unwrap());
    let order = MemberOrder {
        name: "drill".to_owned(),
        data_dir: data_dir.clone(),
        cluster: vec![("drill".to_owned(), PEER_URL.to_owned())],
        token: "token".to_owned(),
        program: program.clone(),
        auth_token: pass.as_ref().map(|pass| pass.flag.clone()),
        deadline_s: 120,
    };
    let member = ScratchMember::start(&member_command(), &order, scratch.path())
        .await
        .unwrap();
    let facts = Facts {
        id: DrillId::new(chrono::DateTime::UNIX_EPOCH, [1; 10]),
        revision: expected.revision,
        recorded_hash: expected.hash_kv,
        told_hash: Ok(expected.hash_kv),
        recorded_keys: expected.count(),
        wanted_keys: None,
        is_new: false,
        revision_after: expected.revision + bump,
        highest_seen: expected.revision + 1000,
        restored_file: matches!(program, Program::Etcd(_)).then(|| data_dir.join("member/snap/db")),
        member_auth: member.auth().cloned(),
    };
    let client = Client::new(member.address()).unwrap();
    let client = match pass {
        Some(pass) => client.with_token(pass.token),
        None => client,
    };
    let subject = Subject {
        facts,
        expected: Arc::new(expected),
        client,
    };
    Served {
        scratch,
        member,
        subject,
    }
}

fn write(file: &Path, data_dir: &Path, program: &Program, bump: i64) {
    let is_bumped = bump > 0;
    match program {
        Program::Holdfast => {
            let cluster = NewCluster::single("drill", &[PEER_URL.to_owned()], "token");
            let changes = Changes {
                bump,
                mark_compacted: is_bumped,
                clear_alarms: false,
            };
            let source = EtcdFile::open(FileSource::open(file).unwrap()).unwrap();
            write_data_dir(data_dir, &source, &cluster, changes).unwrap();
        }
        Program::Etcd(_) => {
            let plan = DataDirPlan {
                data_dir: data_dir.to_owned(),
                wal_dir: None,
                name: "drill".to_owned(),
                cluster: etcd_datadir::NewCluster::parse(&format!("drill={PEER_URL}"), "token")
                    .unwrap(),
                bump_revision: u64::try_from(bump).unwrap(),
                mark_compacted: is_bumped,
                clear_alarms: false,
            };
            let source = FileSource::open(file).unwrap();
            write_etcd_datadir(&EtcdFile::open(source).unwrap(), &plan).unwrap();
        }
    }
}

impl Served {
    async fn outcome(&self, name: &str) -> (Outcome, String) {
        let record = check(name, &self.subject).await;
        (record.outcome, record.detail)
    }

    /// The outcome of a check when the backup had been another.
    async fn outcome_if(
        &self,
        name: &str,
        change: impl FnOnce(&mut Expected),
    ) -> (Outcome, String) {
        let file = FileSource::open(&golden("small")).unwrap();
        let mut expected = decoded(file);
        change(&mut expected);
        let subject = Subject {
            expected: Arc::new(expected),
            ..self.subject.clone()
        };
        let record = check(name, &subject).await;
        (record.outcome, record.detail)
    }

    async fn stop(self) {
        assert_eq!(self.member.stop().await, Vec::<String>::new());
        assert_no_process(self.scratch.path()).await;
    }
}

async fn assert_fails(served: &Served, name: &str, why: &str, change: impl FnOnce(&mut Expected)) {
    let (outcome, detail) = served.outcome_if(name, change).await;
    assert_eq!(outcome, Outcome::Failed, "{name}: {detail}");
    assert!(
        detail.contains(why),
        "{name}: {detail} does not say {why:?}"
    );
}

#[tokio::test]
async fn a_faithful_restore_passes_every_check_on_every_target() {
    for program in programs() {
        let served = serve("small", &program, BUMP).await;
        for name in CHECK_NAMES {
            let (outcome, detail) = served.outcome(name).await;
            assert_eq!(outcome, Outcome::Passed, "{name} on {program:?}: {detail}");
        }
        served.stop().await;
    }
}

#[tokio::test]
async fn whatever_differs_from_the_backup_fails_its_check() {
    for program in programs() {
        let served = serve("small", &program, BUMP).await;
        let one = 7;
        assert_fails(&served, "keys", "another value", |backup| {
            backup.keys[one].value[0] ^= 1;
        })
        .await;
        assert_fails(&served, "keys", "mod_revision", |backup| {
            backup.keys[one].mod_revision += 1;
        })
        .await;
        assert_fails(&served, "keys", "create_revision", |backup| {
            backup.keys[one].create_revision -= 1;
        })
        .await;
        assert_fails(&served, "keys", "version", |backup| {
            backup.keys[one].version += 1;
        })
        .await;
        assert_fails(&served, "keys", "lease", |backup| {
            backup.keys[one].lease += 1;
        })
        .await;
        assert_fails(&served, "keys", "is not in the backup", |backup| {
            backup.keys.remove(one);
        })
        .await;
        assert_fails(&served, "keys", "is missing", |backup| {
            let mut lost = backup.keys[one].clone();
            lost.key = [&lost.key[..], b"!"].concat().into();
            backup.keys.insert(one + 1, lost);
        })
        .await;
        assert_fails(&served, "keys", "is missing", |backup| {
            let mut lost = backup.keys[one].clone();
            lost.key = Bytes::from_static(b"\xff\xff\xff\xff");
            backup.keys.push(lost);
        })
        .await;
        assert_fails(&served, "prefixes", "the member counts", |backup| {
            backup.keys.remove(one);
        })
        .await;
        assert_fails(&served, "leases", "not in the backup", |backup| {
            backup.leases.clear();
        })
        .await;
        assert_fails(&served, "leases", "is missing", |backup| {
            let mut lost = backup.leases[0].clone();
            (lost.id, lost.granted_ttl) = (1, 86_400);
            backup.leases.push(lost);
        })
        .await;
        assert_fails(&served, "leases", "is granted", |backup| {
            for lease in &mut backup.leases {
                lease.granted_ttl += 1;
            }
        })
        .await;
        assert_fails(&served, "auth", "auth is off", |backup| {
            backup.auth.is_enabled = true;
        })
        .await;
        served.stop().await;
    }
}

#[tokio::test]
async fn content_that_is_not_what_was_backed_up_fails() {
    let expected = decoded(FileSource::open(&golden("small")).unwrap());
    let facts = Facts {
        id: DrillId::new(chrono::DateTime::UNIX_EPOCH, [1; 10]),
        revision: expected.revision,
        recorded_hash: expected.hash_kv,
        told_hash: Ok(expected.hash_kv),
        recorded_keys: expected.count(),
        wanted_keys: Some(expected.count()),
        is_new: false,
        revision_after: 0,
        highest_seen: 0,
        restored_file: None,
        member_auth: None,
    };
    assert!(content::check(&facts, &expected).is_ok());
    let wrong = [
        Facts {
            revision: facts.revision + 1,
            ..facts.clone()
        },
        Facts {
            recorded_hash: 1,
            ..facts.clone()
        },
        Facts {
            told_hash: Ok(1),
            ..facts.clone()
        },
        Facts {
            recorded_keys: 1,
            ..facts.clone()
        },
        Facts {
            wanted_keys: Some(1),
            ..facts.clone()
        },
    ];
    for facts in wrong {
        let finding = content::check(&facts, &expected);
        assert!(matches!(finding, Err(Doubt::Failed(_))), "{finding:?}");
    }
    let silent = Facts {
        told_hash: Err("it was asleep".to_owned()),
        ..facts
    };
    let finding = content::check(&silent, &expected);
    assert!(
        matches!(finding, Err(Doubt::Inconclusive(_))),
        "{finding:?}"
    );
}

#[test]
fn bytes_without_the_digest_they_end_in_fail() {
    let mut bytes = std::fs::read(golden("small")).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    assert!(!decoded(bytes).is_trailer_valid);
}

#[tokio::test]
async fn an_empty_backup_fails_unless_it_is_expected_or_nothing_was_ever_written() {
    let expected = decoded(FileSource::open(&golden("empty")).unwrap());
    let mut facts = Facts {
        id: DrillId::new(chrono::DateTime::UNIX_EPOCH, [1; 10]),
        revision: expected.revision,
        recorded_hash: expected.hash_kv,
        told_hash: Ok(expected.hash_kv),
        recorded_keys: 0,
        wanted_keys: None,
        is_new: false,
        revision_after: 0,
        highest_seen: 0,
        restored_file: None,
        member_auth: None,
    };
    let finding = content::check(&facts, &expected);
    assert_eq!(
        finding,
        Err(Doubt::Failed(
            "the backup holds no key, and keys were written to the source".to_owned()
        ))
    );
    facts.is_new = true;
    assert!(content::check(&facts, &expected).is_ok());
    facts.is_new = false;
    facts.wanted_keys = Some(0);
    assert!(content::check(&facts, &expected).is_ok());
}

#[tokio::test]
async fn a_restore_without_a_bump_is_found_out_by_three_checks() {
    for program in programs() {
        let served = serve("small", &program, 0).await;
        for name in ["revision", "compacted", "watch"] {
            let (outcome, detail) = served.outcome(name).await;
            assert_eq!(outcome, Outcome::Failed, "{name} on {program:?}: {detail}");
        }
        served.stop().await;
    }
}

#[tokio::test]
async fn an_alarm_that_comes_back_fails_the_drill() {
    for program in programs() {
        let served = serve("alarm", &program, BUMP).await;
        for name in ["alarms", "write"] {
            let (outcome, detail) = served.outcome(name).await;
            assert_eq!(outcome, Outcome::Failed, "{name} on {program:?}: {detail}");
        }
        served.stop().await;
    }
}

#[tokio::test]
async fn users_and_roles_come_back_on_every_target() {
    for program in programs() {
        let served = serve("auth", &program, BUMP).await;
        let (outcome, detail) = served.outcome("auth").await;
        assert_eq!(outcome, Outcome::Passed, "{program:?}: {detail}");
        assert!(detail.starts_with("on, "), "{detail}");
        let is_etcd = matches!(program, Program::Etcd(_));
        assert_eq!(
            detail.contains("a caller without a user is refused"),
            is_etcd
        );
        // With the drill's own token everything else can be asked too.
        for name in ["keys", "watch", "leases", "write"] {
            let (outcome, detail) = served.outcome(name).await;
            assert_eq!(outcome, Outcome::Passed, "{program:?}: {name}: {detail}");
        }
        served.stop().await;
    }
}

#[tokio::test]
async fn a_member_that_is_gone_leaves_every_question_open() {
    let Some(program) = programs().pop() else {
        return;
    };
    let served = serve("small", &program, BUMP).await;
    let subject = served.subject.clone();
    served.stop().await;
    for name in CHECK_NAMES
        .iter()
        .filter(|name| !["content", "auth"].contains(name))
    {
        let record = check(name, &subject).await;
        assert_eq!(
            record.outcome,
            Outcome::Inconclusive,
            "{name}: {}",
            record.detail
        );
    }
}
