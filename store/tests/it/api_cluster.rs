//! The membership, changed through the API of a store that is a cluster of one.

use holdfast_proto::etcd::rpc;
use holdfast_store::bolt::Bolt;
use serde_json::Value;
use tonic::{Code, Status};

use crate::api_support::Store;

fn add(url: &str, is_learner: bool) -> rpc::MemberAddRequest {
    rpc::MemberAddRequest {
        peer_ur_ls: vec![url.to_owned()],
        is_learner,
    }
}

async fn added(store: &Store, url: &str, is_learner: bool) -> rpc::MemberAddResponse {
    let answer = store.cluster().member_add(add(url, is_learner)).await;
    answer.unwrap().into_inner()
}

async fn members(store: &Store) -> Vec<rpc::Member> {
    let request = rpc::MemberListRequest { linearizable: true };
    let answer = store.cluster().member_list(request).await;
    answer.unwrap().into_inner().members
}

fn told(error: &Status) -> (Code, &str) {
    (error.code(), error.message())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_was_added_and_never_started_does_not_stop_the_cluster() {
    let store = Store::start().await;
    let answer = added(&store, "http://127.0.0.1:1", false).await;
    let header = answer.header.unwrap();
    let member = answer.member.unwrap();
    assert_eq!(header.revision, 0, "as etcd's");
    assert_eq!(member.name, "");
    assert!(!member.is_learner, "a voter to clients at once");
    assert_eq!(answer.members, members(&store).await);
    assert_eq!(answer.members.len(), 2);
    assert!(store.put("still", "here").await > 1);
    let second = store
        .cluster()
        .member_add(add("http://127.0.0.1:2", false))
        .await;
    assert_eq!(
        told(&second.unwrap_err()),
        (
            Code::FailedPrecondition,
            "etcdserver: re-configuration failed due to not enough started members"
        )
    );
    let request = rpc::MemberRemoveRequest { id: member.id };
    let left = store
        .cluster()
        .member_remove(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(left.members.len(), 1);
    let again = store.cluster().member_remove(request).await.unwrap_err();
    assert_eq!(
        told(&again),
        (Code::NotFound, "etcdserver: member not found")
    );
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_break_a_rule_are_refused_with_etcds_texts() {
    let store = Store::start_with(|options| options.cluster.learners_max = 1).await;
    let learner = added(&store, "http://127.0.0.1:1", true)
        .await
        .member
        .unwrap();
    assert!(learner.is_learner);
    let mut cluster = store.cluster();
    let second = cluster.member_add(add("http://127.0.0.1:2", true)).await;
    assert_eq!(
        told(&second.unwrap_err()),
        (
            Code::FailedPrecondition,
            "etcdserver: too many learner members in cluster"
        )
    );
    // Within one second the same address alone would give the same id.
    let mut known = add("http://127.0.0.1:1", false);
    known.peer_ur_ls.push("http://127.0.0.1:3".to_owned());
    let known = cluster.member_add(known).await;
    assert_eq!(
        told(&known.unwrap_err()),
        (
            Code::FailedPrecondition,
            "etcdserver: Peer URLs already exists"
        )
    );
    let wrong = cluster.member_add(add("127.0.0.1:1", false)).await;
    assert_eq!(
        told(&wrong.unwrap_err()),
        (
            Code::InvalidArgument,
            "etcdserver: given member URLs are invalid"
        )
    );
    let request = rpc::MemberPromoteRequest { id: learner.id };
    let early = cluster.member_promote(request).await.unwrap_err();
    assert_eq!(
        told(&early),
        (
            Code::FailedPrecondition,
            "etcdserver: can only promote a learner member which is in sync with leader"
        )
    );
    let request = rpc::MemberPromoteRequest {
        id: store.server.member().id().0,
    };
    let voter = cluster.member_promote(request).await.unwrap_err();
    assert_eq!(
        told(&voter),
        (
            Code::FailedPrecondition,
            "etcdserver: can only promote a learner member"
        )
    );
    let elsewhere = rpc::MemberUpdateRequest {
        id: learner.id,
        peer_ur_ls: vec!["http://127.0.0.1:9".to_owned()],
    };
    let updated = cluster.member_update(elsewhere).await.unwrap().into_inner();
    let updated = updated
        .members
        .into_iter()
        .find(|member| member.id == learner.id);
    let updated = updated.unwrap();
    assert_eq!(updated.peer_ur_ls, ["http://127.0.0.1:9"]);
    assert!(updated.is_learner);
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_says_of_each_member_what_etcds_would() {
    let store = Store::start().await;
    let learner = added(&store, "http://127.0.0.1:2", true)
        .await
        .member
        .unwrap();
    let voter = added(&store, "http://127.0.0.1:1", false)
        .await
        .member
        .unwrap();
    let gone = rpc::MemberRemoveRequest { id: voter.id };
    store.cluster().member_remove(gone).await.unwrap();
    let mut file = Vec::new();
    let mut export = store.server.member().state().export().unwrap();
    export.write_to(&mut file).unwrap();
    let file = Bolt::open(file).unwrap();
    let stored = |bucket: &str, id: u64| {
        let bucket = file.bucket(bucket.as_bytes()).unwrap().unwrap();
        let value = bucket.get(format!("{id:x}").as_bytes()).unwrap();
        value.map(|value| value.to_vec())
    };
    let member: Value = serde_json::from_slice(&stored("members", learner.id).unwrap()).unwrap();
    assert_eq!(member["isLearner"], true);
    assert_eq!(member["peerURLs"][0], "http://127.0.0.1:2");
    assert!(member.get("name").is_none());
    let own = store.server.member().id().0;
    let own: Value = serde_json::from_slice(&stored("members", own).unwrap()).unwrap();
    assert_eq!((own.get("isLearner"), &own["name"]), (None, &"one".into()));
    assert_eq!(stored("members", voter.id), None);
    assert!(stored("members_removed", voter.id).is_some());
    store.stop().await;
}
