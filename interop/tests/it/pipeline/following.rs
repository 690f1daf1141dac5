//! The changes of a running cluster, followed by a watch, come back at every revision at which it
//! told its hash: through compactions, leases, transactions and members that are killed.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use holdfast_interop::client::{Client, limited};
use holdfast_interop::peers::Peers;
use holdfast_interop::server::{Kind, Server};
use holdfast_proto::etcd::rpc;
use holdfast_restore::delta::{RunWriter, Session, SessionOptions, run};
use holdfast_restore::follow::{FollowedEtcd, Follower, Gathered, WatchFeed};
use holdfast_restore::manifest::SourceHash;
use holdfast_restore::{
    Bump, Captured, Error, EtcdSource, EtcdSpec, Pick, RestoreOptions, Source as _, Target, Upto,
};
use holdfast_store::etcd_file::EtcdFile;

use super::stage::{self, Place, Stage};
use crate::pair::our_kind;
use crate::snapshots::{fill, fill_behind};

/// How long one delta is gathered, at most.
const EVERY: Duration = Duration::from_millis(500);

/// The same while the server is busy.
const SHORT: Duration = Duration::from_millis(200);

/// Deltas until the follower must have come to the newest revision.
const DELTAS_MAX: usize = 50;

/// What a server said of one revision.
#[derive(Debug, Clone, Copy)]
struct Said {
    revision: i64,
    compact_revision: i64,
    hash: u32,
}

async fn said(server: &Server) -> Result<Said> {
    let mut client = Client::connect(&server.endpoint()).await?;
    let answer = client.hash_kv(0).await?;
    Ok(Said {
        revision: answer.header.context("no header")?.revision,
        compact_revision: answer.compact_revision,
        hash: answer.hash,
    })
}

/// A backup of a server and the run of changes after it.
struct Following {
    stage: Stage,
    captured: Captured,
    writer: RunWriter,
}

impl Following {
    async fn begin(peers: &Peers, server: &Server) -> Result<Self> {
        let stage = Stage::new(peers, Place::Local).await?;
        let captured = stage.capture(&etcd(server)?).await?;
        let writer = RunWriter::begin(&captured.manifest, &captured.link);
        Ok(Self {
            stage,
            captured,
            writer,
        })
    }

    /// Opened anew, as a daemon does that was killed.
    async fn follower(&self, server: &Server) -> Result<Follower<WatchFeed>, Error> {
        let to = self.writer.to();
        let source = etcd(server).map_err(|error| Error::Refused {
            reason: error.to_string(),
        })?;
        let cluster = self.captured.manifest.source.cluster_id.as_deref();
        Ok(Follower::new(
            WatchFeed::open(&source, to, cluster).await?,
            to,
        ))
    }

    async fn commit(&mut self, gathered: Gathered, told: SourceHash) -> Result<()> {
        let sealed = self.writer.seal(gathered, told, self.stage.writers())?;
        Ok(self.writer.commit(self.stage.vault(), &sealed).await?)
    }

    /// Gathers until the newest revision of the server is committed.
    async fn catch_up(
        &mut self,
        follower: &mut Follower<WatchFeed>,
        server: &Server,
    ) -> Result<Said> {
        let said = said(server).await?;
        for _ in 0..DELTAS_MAX {
            let gathered = follower.gather(EVERY, &stage::now).await?;
            let told = etcd(server)?.hash_kv(gathered.to).await?;
            self.commit(gathered, told).await?;
            if self.writer.to() == said.revision {
                return Ok(said);
            }
        }
        anyhow::bail!(
            "at {} after {DELTAS_MAX} deltas, not at {said:?}",
            self.writer.to()
        )
    }

    /// Follows until the work is done, which compacts no further than was captured: a watch that is
    /// not read falls behind, and what was compacted before it was read is a gap.
    async fn follow_during(
        &mut self,
        follower: &mut Follower<WatchFeed>,
        server: &Server,
        seed: u64,
    ) -> Result<()> {
        let (is_done, captured) = (AtomicBool::new(false), AtomicI64::new(self.writer.to()));
        let working = async {
            let outcome = fill_behind(server, seed, &captured).await;
            is_done.store(true, Ordering::Relaxed);
            outcome
        };
        let following = async {
            while !is_done.load(Ordering::Relaxed) {
                let gathered = follower.gather(SHORT, &stage::now).await?;
                let told = SourceHash::Unavailable {
                    reason: "not asked".to_owned(),
                };
                self.commit(gathered, told).await?;
                captured.store(self.writer.to(), Ordering::Relaxed);
            }
            Ok::<_, anyhow::Error>(())
        };
        let (worked, followed) = tokio::join!(working, following);
        worked?;
        followed
    }

    async fn assert_restored(&self, said: Said) -> Result<()> {
        let data_dir = self.stage.path(&format!("at-{}", said.revision));
        let options = RestoreOptions {
            bump: Bump::None,
            ..RestoreOptions::single(Target::Etcd, data_dir, "m0", "http://127.0.0.1:2380")
        };
        self.stage
            .replay(Upto::Revision(said.revision), &options)
            .await?;
        let database = std::fs::read(options.data_dir.join("member/snap/db"))?;
        let file = EtcdFile::open(database)?;
        ensure!(file.check().is_clean(), "pages");
        let found = file.hash_kv_behind(said.revision, said.compact_revision)?;
        ensure!(
            (found.hash, found.current_revision) == (said.hash, said.revision),
            "{found:?} where the server said {said:?}"
        );
        Ok(())
    }
}

fn etcd(server: &Server) -> Result<EtcdSource> {
    Ok(EtcdSource::new(EtcdSpec::at([server.endpoint()]))?)
}

async fn put(server: &Server, key: &str) -> Result<i64> {
    let mut client = Client::connect(&server.endpoint()).await?;
    let put = rpc::PutRequest {
        key: key.to_owned().into(),
        value: "value".into(),
        ..Default::default()
    };
    let answer = client.kv.put(limited(tonic::Request::new(put))).await?;
    Ok(answer.into_inner().header.context("no header")?.revision)
}

async fn delete(server: &Server, key: &str) -> Result<i64> {
    let mut client = Client::connect(&server.endpoint()).await?;
    let delete = rpc::DeleteRangeRequest {
        key: key.to_owned().into(),
        ..Default::default()
    };
    let answer = client
        .kv
        .delete_range(limited(tonic::Request::new(delete)))
        .await?;
    Ok(answer.into_inner().header.context("no header")?.revision)
}

async fn compact(server: &Server, revision: i64) -> Result<()> {
    let mut client = Client::connect(&server.endpoint()).await?;
    let compact = rpc::CompactionRequest {
        revision,
        physical: true,
    };
    client
        .kv
        .compact(limited(tonic::Request::new(compact)))
        .await?;
    Ok(())
}

/// Random work, while it is followed; then the server is killed, and it goes on.
async fn every_state_comes_back(kind: Kind) -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let mut server = Server::start(&peers, kind)?;
    fill(&server, 71).await?;
    let mut following = Following::begin(&peers, &server).await?;
    let mut all_said = Vec::new();
    for round in 0..2_u64 {
        let mut follower = following.follower(&server).await?;
        for half in 0..2 {
            following
                .follow_during(&mut follower, &server, 80 + 2 * round + half)
                .await?;
            all_said.push(following.catch_up(&mut follower, &server).await?);
        }
        put(&server, "/lost").await?;
        let gone = delete(&server, "/lost").await?;
        let newest = following.catch_up(&mut follower, &server).await?;
        assert_eq!(newest.revision, gone);
        all_said.push(newest);
        server = server.restart_after_kill()?;
        let cut = follower.gather(EVERY, &stage::now).await;
        assert!(cut.is_err(), "the watch ended with the server: {cut:?}");
    }
    let (runs, keys) = (following.stage.runs().await?, following.stage.keys()?);
    assert_eq!(
        run::verify(following.stage.vault(), &runs, &keys).await?,
        []
    );
    let has_hash = |one: &holdfast_restore::delta::Head| {
        matches!(one.record.source_hash, SourceHash::Told { .. })
    };
    assert!(runs.runs[0].deltas.iter().any(has_hash));
    for said in &all_said {
        following.assert_restored(*said).await?;
    }
    let vault = following.stage.vault();
    let found = run::last_delete(vault, &runs, b"/lost", &keys).await?;
    let newest = all_said.last().context("nothing said")?.revision;
    assert_eq!(found.map(|found| found.revision), Some(newest));
    Ok(())
}

/// A compaction beyond what was captured, while nobody followed, ends the run.
async fn a_gap_is_told(kind: Kind) -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let server = Server::start(&peers, kind)?;
    put(&server, "a").await?;
    let mut following = Following::begin(&peers, &server).await?;
    let captured = following.writer.to();
    put(&server, "b").await?;
    let last = delete(&server, "a").await?;
    // Up to what was captured nothing is lost.
    compact(&server, captured).await?;
    let mut follower = following.follower(&server).await?;
    following.catch_up(&mut follower, &server).await?;
    drop(follower);
    assert_eq!(following.writer.to(), last);
    put(&server, "c").await?;
    let gone = delete(&server, "c").await?;
    compact(&server, gone).await?;
    let mut follower = following.follower(&server).await?;
    let broken = follower.gather(EVERY, &stage::now).await;
    assert!(
        matches!(broken, Err(Error::CaptureBroken { at, .. }) if at == last),
        "{broken:?}"
    );
    // What was captured before is there as it was.
    let options = RestoreOptions::single(
        Target::Etcd,
        following.stage.path("new"),
        "m0",
        "http://127.0.0.1:2380",
    );
    let restored = following
        .stage
        .replay(Upto::Newest(Pick::Latest), &options)
        .await?;
    assert!(restored.revision > last);
    Ok(())
}

/// A session goes on by itself over a server that is killed.
async fn a_session_goes_on(kind: Kind) -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let mut server = Server::start(&peers, kind)?;
    put(&server, "first").await?;
    let following = Following::begin(&peers, &server).await?;
    let cluster = following.captured.manifest.source.cluster_id.clone();
    let source = FollowedEtcd::new(etcd(&server)?, cluster);
    let options = SessionOptions::new(SHORT);
    let mut session = Session::new(following.writer.clone(), options);
    let (vault, keys) = (following.stage.vault(), following.stage.writers());
    let mut failures = 0;
    for n in 0..3 {
        let newest = put(&server, &format!("key-{n}")).await?;
        for _ in 0..DELTAS_MAX {
            match session.step(&source, vault, keys, &stage::now).await {
                Ok(_) if session.stored() == newest => break,
                Ok(_) => {}
                Err(error) if !error.ends_run() => failures += 1,
                Err(error) => return Err(error.into()),
            }
        }
        assert_eq!(session.stored(), newest);
        // It is followed on the same port afterwards.
        server = server.restart_after_kill()?;
    }
    assert!(failures > 0, "the watch ended with the server");
    let said = said(&server).await?;
    following.assert_restored(said).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_on_over_a_real_etcd_that_is_killed() -> Result<()> {
    Box::pin(a_session_goes_on(Kind::Etcd)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_of_a_followed_real_etcd_comes_back() -> Result<()> {
    Box::pin(every_state_comes_back(Kind::Etcd)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_of_our_followed_store_comes_back() -> Result<()> {
    Box::pin(every_state_comes_back(our_kind())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_that_overtakes_the_watch_of_a_real_etcd_is_a_gap() -> Result<()> {
    a_gap_is_told(Kind::Etcd).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_that_overtakes_the_watch_of_our_store_is_a_gap() -> Result<()> {
    a_gap_is_told(our_kind()).await
}
