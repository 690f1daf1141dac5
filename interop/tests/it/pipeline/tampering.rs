//! Whatever was done to a vault is named, and nothing is restored from it.

use anyhow::Result;
use holdfast_interop::client::{Client, limited};
use holdfast_interop::peers::Peers;
use holdfast_interop::server::{Kind, Server};
use holdfast_policies::{Level, SnapshotId};
use holdfast_proto::etcd::rpc;
use holdfast_restore::{ErrorKind, EtcdSource, EtcdSpec, FlawKind, Pick, RestoreOptions, Target};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tonic::Request;

use super::damage::{Damage, Damaged};
use super::stage::{Place, Stage, leftovers};

/// Values that do not compress, enough for several parts.
const VALUES: u64 = 3;
const VALUE_BYTES: usize = 1_000_000;

pub(crate) async fn put_large(server: &Server) -> Result<()> {
    let mut client = Client::connect(&server.endpoint()).await?;
    let mut rng = StdRng::seed_from_u64(1);
    for number in 0..VALUES {
        let mut value = vec![0; VALUE_BYTES];
        rng.fill_bytes(&mut value);
        let put = rpc::PutRequest {
            key: format!("large/{number:03}").into(),
            value: value.into(),
            ..Default::default()
        };
        client.kv.put(limited(Request::new(put))).await?;
    }
    Ok(())
}

async fn every_damage_is_found(place: Place) -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let real = Server::start(&peers, Kind::Etcd)?;
    let stage = Stage::new(&peers, place).await?;
    let source = EtcdSource::new(EtcdSpec::at([real.endpoint()]))?;
    stage.capture(&source).await?;
    put_large(&real).await?;
    let id = stage.capture(&source).await?.manifest.id;
    let keys = stage.keys()?;
    assert_eq!(stage.verify(id, &keys).await?.level, Some(Level::L2));

    for damage in Damage::ALL {
        let damaged = Damaged::new(&stage.objects(), &stage.path("aside"), id, damage)?;
        check(&stage, id, damage).await?;
        damaged.undo()?;
    }
    wrong_identity_opens_nothing(&stage, id).await?;

    // Put back, the backup is as good as before.
    assert_eq!(stage.verify(id, &keys).await?.level, Some(Level::L2));
    let target = stage.path("whole");
    let options = RestoreOptions::single(Target::Etcd, target.clone(), "m0", "http://127.0.0.1:1");
    stage.restore(Pick::Id(id), &options, &keys).await?;
    assert!(target.is_dir());
    Ok(())
}

async fn check(stage: &Stage, id: SnapshotId, damage: Damage) -> Result<()> {
    let keys = stage.keys()?;
    let found: Vec<FlawKind> = if damage.is_in_a_part() {
        let proof = stage.verify(id, &keys).await?;
        assert!(
            proof.level < Some(Level::L1),
            "{damage:?}: {:?}",
            proof.level
        );
        proof.flaws.iter().map(|flaw| flaw.kind).collect()
    } else {
        stage
            .catalog()
            .await?
            .flaws
            .iter()
            .map(|flaw| flaw.kind)
            .collect()
    };
    let is_named = found.iter().any(|kind| damage.flaws().contains(kind));
    assert!(is_named, "{damage:?} was found as {found:?}");

    let target = stage.path("damaged");
    let options = RestoreOptions::single(Target::Etcd, target.clone(), "m0", "http://127.0.0.1:1");
    let restored = stage.restore(Pick::Id(id), &options, &keys).await;
    assert!(restored.is_err(), "{damage:?} was restored: {restored:?}");
    assert_eq!(
        leftovers(&target)?,
        Vec::<String>::new(),
        "after {damage:?}"
    );
    Ok(())
}

async fn wrong_identity_opens_nothing(stage: &Stage, id: SnapshotId) -> Result<()> {
    let keys = stage.wrong_keys()?;
    let proof = stage.verify(id, &keys).await?;
    assert!(proof.level < Some(Level::L2), "{proof:?}");
    assert!(
        proof
            .flaws
            .iter()
            .any(|flaw| flaw.kind == FlawKind::WrongIdentity),
        "{proof:?}"
    );

    let target = stage.path("sealed");
    let options = RestoreOptions::single(Target::Etcd, target.clone(), "m0", "http://127.0.0.1:1");
    let error = stage
        .restore(Pick::Id(id), &options, &keys)
        .await
        .expect_err("opened");
    let kind = error
        .downcast_ref::<holdfast_restore::Error>()
        .map(holdfast_restore::Error::kind);
    assert_eq!(kind, Some(ErrorKind::Denied), "{error:?}");
    assert_eq!(leftovers(&target)?, Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tampering_with_a_local_vault_is_named_and_nothing_is_restored() -> Result<()> {
    every_damage_is_found(Place::Local).await
}

#[tokio::test(flavor = "multi_thread")]
async fn tampering_with_a_vault_on_s3_is_named_and_nothing_is_restored() -> Result<()> {
    every_damage_is_found(Place::S3).await
}
