//! Leases, members, alarms, auth records and versions, against what etcdctl showed.
#![expect(
    clippy::as_conversions,
    clippy::cast_sign_loss,
    clippy::unwrap_used,
    reason = "a test says what it expects and stops when it is not so"
)]

use holdfast_proto::etcd::auth::permission;
use holdfast_proto::etcd::rpc::AlarmType;
use holdfast_store::datadir::identity::{MemberId, cluster_id, member_id};
use serde_json::Value;

use crate::golden_fixture::{ALL, BASIC, DUMPED, base64, hexadecimal, json, list, open, text};

fn strings(value: &Value) -> Vec<String> {
    list(value)
        .iter()
        .map(|value| text(value).to_owned())
        .collect()
}

#[test]
fn leases_have_their_ids_times_and_keys() {
    for name in BASIC {
        let golden = json(name);
        let leases = open(name).survey(|_pair| ()).content.unwrap().leases;
        let expected = list(&golden["leases"]);
        assert_eq!(leases.len(), expected.len(), "{name}");
        for (lease, expected) in leases.iter().zip(expected) {
            assert_eq!(lease.id, expected["id"], "{name}");
            assert_eq!(lease.granted_ttl, expected["granted-ttl"], "{name}");
            let keys: Vec<Vec<u8>> = list(&expected["keys"]).iter().map(base64).collect();
            assert_eq!(lease.keys, keys, "{name}");
        }
    }
    for name in DUMPED {
        let dump = &json(name)["dump"];
        let leases = open(name).survey(|_pair| ()).content.unwrap().leases;
        let expected = list(&dump["leases"]);
        assert_eq!(leases.len(), expected.len(), "{name}");
        for (lease, expected) in leases.iter().zip(expected) {
            assert_eq!(lease.id as u64, hexadecimal(&expected["id_hex"]), "{name}");
            assert_eq!(lease.granted_ttl, expected["granted_ttl"], "{name}");
            assert_eq!(lease.keys, strings(&expected["keys"]), "{name}");
        }
    }
}

#[test]
fn members_have_their_names_and_urls() {
    for name in BASIC {
        let golden = json(name);
        let members = open(name).members().unwrap();
        let expected = list(&golden["members"]);
        assert_eq!(members.len(), expected.len(), "{name}");
        for (member, expected) in members.iter().zip(expected) {
            assert_eq!(member.id, expected["ID"], "{name}");
            assert_eq!(member.name, expected["name"], "{name}");
            assert_eq!(member.peer_urls, strings(&expected["peerURLs"]), "{name}");
            assert_eq!(
                member.client_urls,
                strings(&expected["clientURLs"]),
                "{name}"
            );
            assert!(!member.is_learner, "{name}");
        }
    }
    for name in DUMPED {
        let dump = &json(name)["dump"];
        let members = open(name).members().unwrap();
        let expected = list(&dump["members"]);
        assert_eq!(members.len(), expected.len(), "{name}");
        for (member, expected) in members.iter().zip(expected) {
            assert_eq!(member.id, hexadecimal(&expected["id_hex"]), "{name}");
            assert_eq!(member.name, expected["name"], "{name}");
            assert_eq!(member.peer_urls, strings(&expected["peer_urls"]), "{name}");
            assert_eq!(
                member.client_urls,
                strings(&expected["client_urls"]),
                "{name}"
            );
            assert_eq!(member.is_learner, expected["learner"], "{name}");
        }
    }
}

#[test]
fn alarms_name_the_member_that_raised_them() {
    for name in DUMPED {
        let dump = &json(name)["dump"];
        let alarms = open(name).alarms().unwrap();
        let expected = list(&dump["alarms"]);
        assert_eq!(alarms.len(), expected.len(), "{name}");
        for (alarm, expected) in alarms.iter().zip(expected) {
            assert_eq!(
                alarm.member_id,
                hexadecimal(&expected["member_hex"]),
                "{name}"
            );
            assert_eq!(
                text(&expected["alarm"]),
                alarm.alarm().as_str_name(),
                "{name}"
            );
        }
    }
    assert_eq!(
        open("v3.7.3/alarm").alarms().unwrap()[0].alarm(),
        AlarmType::Nospace
    );
}

/// A byte string as the dump quotes it: only the zero byte needs an escape there.
fn quoted(bytes: &[u8]) -> String {
    format!(
        "\"{}\"",
        std::str::from_utf8(bytes).unwrap().replace('\0', "\\x00")
    )
}

#[test]
fn users_roles_and_permissions_are_those_of_etcdctl() {
    for name in DUMPED {
        let expected = &json(name)["dump"]["auth"];
        let auth = open(name).auth().unwrap();
        assert_eq!(auth.is_enabled, expected["enabled"], "{name}");
        assert_eq!(auth.revision, expected["auth_revision"], "{name}");
        let users = expected["users"].as_object().unwrap();
        assert_eq!(auth.users.len(), users.len(), "{name}");
        for user in &auth.users {
            let name = std::str::from_utf8(&user.name).unwrap();
            assert_eq!(user.roles, strings(&users[name]), "{name}");
        }
        let roles = expected["roles"].as_object().unwrap();
        assert_eq!(auth.roles.len(), roles.len(), "{name}");
        for role in &auth.roles {
            // The server adds the permission of this role when asked; it is not stored.
            if role.name == "root" {
                assert!(role.key_permission.is_empty());
                continue;
            }
            let name = std::str::from_utf8(&role.name).unwrap();
            let permissions: Vec<String> = role
                .key_permission
                .iter()
                .map(|permission| {
                    let kind = permission::Type::try_from(permission.perm_type).unwrap();
                    let (key, end) = (quoted(&permission.key), quoted(&permission.range_end));
                    format!("{} {key} {end}", kind.as_str_name())
                })
                .collect();
            assert_eq!(permissions, strings(&roles[name]), "{name}");
        }
    }
}

#[test]
fn versions_and_raft_records_are_those_of_the_release() {
    for name in ALL {
        let file = open(name);
        let release = name.split_once('/').unwrap().0.trim_start_matches('v');
        let minor = release.rsplit_once('.').unwrap().0;
        assert_eq!(
            file.cluster_version().unwrap().unwrap(),
            format!("{minor}.0"),
            "{name}"
        );
        let storage = (minor != "3.5").then(|| format!("{minor}.0"));
        assert_eq!(file.storage_version().unwrap(), storage, "{name}");
        assert_eq!(file.term().unwrap(), Some(2), "{name}");
        assert_eq!(file.downgrade().unwrap(), None, "{name}");
        let conf_state = file.conf_state().unwrap().unwrap();
        let ids: Vec<u64> = file
            .members()
            .unwrap()
            .iter()
            .map(|member| member.id)
            .collect();
        assert_eq!(conf_state.voters, ids, "{name}");
    }
    // The dumps were made a few entries after the snapshots.
    let applied = json("v3.7.3/small")["dump"]["status"]["raft_applied"]
        .as_u64()
        .unwrap();
    let index = open("v3.7.3/small").consistent_index().unwrap().unwrap();
    assert!(
        index < applied && index > applied - 20,
        "{index} before {applied}"
    );
}

#[test]
fn ids_follow_from_peer_urls_and_token() {
    let peer = ["http://127.0.0.1:23791".to_owned()];
    for name in BASIC {
        let golden = json(name);
        let restored = member_id(&peer, "restored");
        assert_eq!(
            restored.0, golden["restored"]["header"]["member_id"],
            "{name}"
        );
        let cluster = cluster_id(&[restored]).0;
        assert_eq!(
            cluster, golden["restored"]["header"]["cluster_id"],
            "{name}"
        );
    }
    for name in DUMPED {
        let golden = json(name);
        let first_token = if name == "v3.7.3/k8s" {
            "etcd-cluster"
        } else {
            "golden"
        };
        for (header, token) in [
            (&golden["dump"]["header"], first_token),
            (&golden["restore_plain"]["probe"]["header"], "golden"),
            (
                &golden["restore_bump_mark_compacted"]["probe"]["header"],
                "golden",
            ),
        ] {
            let member = member_id(&["http://127.0.0.1:23802".to_owned()], token);
            assert_eq!(member.0, hexadecimal(&header["member_id"]), "{name}");
            let cluster = cluster_id(&[member]).0;
            assert_eq!(cluster, hexadecimal(&header["cluster_id"]), "{name}");
        }
    }
}

#[test]
fn ids_do_not_depend_on_the_order_of_urls_or_members() {
    let urls = ["http://b:1".to_owned(), "http://a:1".to_owned()];
    let turned = ["http://a:1".to_owned(), "http://b:1".to_owned()];
    assert_eq!(member_id(&urls, "t"), member_id(&turned, "t"));
    assert_ne!(member_id(&urls, "t"), member_id(&urls, "u"));
    let (one, two) = (MemberId(1), MemberId(2));
    assert_eq!(cluster_id(&[one, two]), cluster_id(&[two, one]));
}
