use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use super::*;
use crate::dns::tests::serve;

fn founder(name: &str, url: &str) -> NewCluster {
    NewCluster {
        name: name.to_owned(),
        initial_cluster: vec![(name.to_owned(), vec![url.to_owned()])],
        token: "t".to_owned(),
    }
}

fn named(name: &str, url: &str) -> (String, Vec<String>) {
    (name.to_owned(), vec![url.to_owned()])
}

#[tokio::test]
async fn founders_are_found_in_dns_and_one_of_them_is_this_member() {
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    let mut names = JoinSet::new();
    names.spawn(serve(server, 6, |name| {
        if name.starts_with("_etcd-server-ssl") {
            vec![("localhost", 7001)]
        } else {
            vec![("localhost", 7002), ("localhost", 7003)]
        }
    }));
    let srv = SrvDiscovery {
        domain: "example.org".to_owned(),
        service: "blue".to_owned(),
    };
    let own = founder("m2", "http://127.0.0.1:7002");
    let found = discover_at(&own, &srv, &[address]).await.unwrap();
    assert_eq!(
        found.initial_cluster,
        [
            named("0", "https://localhost:7001"),
            named("m2", "http://localhost:7002"),
            named("2", "http://localhost:7003")
        ]
    );
    for (own, text) in [
        (
            founder("m9", "http://127.0.0.1:7009"),
            "cannot find local etcd member \"m9\" in SRV records",
        ),
        (
            founder("m1", "http://127.0.0.1:7001"),
            "bootstrap at https://localhost:7001 from DNS for \
             _etcd-server-ssl-blue._tcp.example.org has scheme mismatch with expected peer \
             http://127.0.0.1:7001",
        ),
    ] {
        let refused = discover_at(&own, &srv, &[address]).await.unwrap_err();
        assert!(refused.to_string().contains(text), "{refused}");
    }
    let asked = names.join_next().await.unwrap().unwrap();
    assert_eq!(asked[1], "_etcd-server-blue._tcp.example.org");
}

#[tokio::test]
async fn founders_that_are_reached_by_https_have_records_of_their_own() {
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    let mut names = JoinSet::new();
    names.spawn(serve(server, 4, |name| match name {
        "_etcd-server-ssl._tcp.example.org" => vec![("localhost", 7001)],
        _ => Vec::new(),
    }));
    let mut srv = SrvDiscovery {
        domain: "example.org".to_owned(),
        service: String::new(),
    };
    let own = founder("m1", "https://127.0.0.1:7001");
    let found = discover_at(&own, &srv, &[address]).await.unwrap();
    assert_eq!(
        found.initial_cluster,
        [named("m1", "https://localhost:7001")]
    );
    srv.domain = "example.net".to_owned();
    let refused = discover_at(&own, &srv, &[address]).await.unwrap_err();
    let text = "error querying DNS SRV records for _etcd-server-ssl._tcp.example.net";
    assert!(refused.to_string().contains(text), "{refused}");
    drop(names.join_next().await);
}
