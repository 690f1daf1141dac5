//! gRPC's health service, the peer port, the counters of calls, and connections that say nothing.

use std::time::Duration;

use holdfast_proto::etcd::rpc;
use holdfast_proto::grpc::health::health_check_response::ServingStatus;
use holdfast_proto::grpc::health::health_client::HealthClient;
use holdfast_proto::grpc::health::{HealthCheckRequest, HealthListRequest};
use holdfast_store::options::{ListenUrl, MetricsDetail, StoreOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tonic::Code;
use tonic::transport::Channel;

use crate::api_support::{PATIENCE, Store, http};

fn health(store: &Store) -> HealthClient<Channel> {
    HealthClient::new(store.channel.clone())
}

fn of(service: &str) -> HealthCheckRequest {
    HealthCheckRequest {
        service: service.to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_as_a_whole_serves_and_other_names_are_unknown() {
    let store = Store::start().await;
    let whole = health(&store).check(of("")).await.unwrap().into_inner();
    assert_eq!(whole.status(), ServingStatus::Serving);
    let other = health(&store)
        .check(of("etcdserverpb.KV"))
        .await
        .unwrap_err();
    assert_eq!(
        (other.code(), other.message()),
        (Code::NotFound, "unknown service")
    );
    let list = health(&store)
        .list(HealthListRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(list.statuses.len(), 1);
    assert_eq!(list.statuses[""].status(), ServingStatus::Serving);
    let mut unknown = health(&store)
        .watch(of("nobody"))
        .await
        .unwrap()
        .into_inner();
    let first = unknown.message().await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::ServiceUnknown);
    drop(unknown);
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_says_no_during_a_defragmentation_when_its_gate_is_on() {
    for (gate, expected) in [
        (false, vec![]),
        (
            true,
            vec![ServingStatus::NotServing, ServingStatus::Serving],
        ),
    ] {
        let store = Store::start_with(|options| {
            options.features.stops_serving_on_defrag = gate;
        })
        .await;
        for number in 0..50 {
            store
                .put_bytes(&format!("k{number}"), vec![b'x'; 32 << 10])
                .await;
        }
        let mut changes = health(&store).watch(of("")).await.unwrap().into_inner();
        let first = changes.message().await.unwrap().unwrap();
        assert_eq!(first.status(), ServingStatus::Serving);
        let mut watcher = JoinSet::new();
        watcher.spawn(async move {
            let mut seen = Vec::new();
            while let Ok(Some(change)) = changes.message().await {
                seen.push(change.status());
                if change.status() == ServingStatus::Serving {
                    break;
                }
            }
            seen
        });
        let request = rpc::DefragmentRequest {};
        store.maintenance().defragment(request).await.unwrap();
        if gate {
            let seen = tokio::time::timeout(PATIENCE, watcher.join_next()).await;
            assert_eq!(seen.unwrap().unwrap().unwrap(), expected);
        } else {
            // The stop ends the stream, and nothing was told before.
            store.server.stop().await.unwrap();
            let seen = tokio::time::timeout(PATIENCE, watcher.join_next()).await;
            assert_eq!(seen.unwrap().unwrap().unwrap(), expected);
            continue;
        }
        store.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_peer_port_serves_the_version_and_the_members() {
    let store = Store::start_with(|options| {
        options.listen.peer_urls = vec![ListenUrl::loopback(0)];
    })
    .await;
    let peer = store.server.peer_addresses()[0];
    let (code, version) = http(peer, "GET", "/version").await;
    assert_eq!(
        (code, version.as_str()),
        (
            200,
            r#"{"etcdserver":"3.7.3","etcdcluster":"3.7.0","storage":"3.7.0"}"#
        )
    );
    let (code, members) = http(peer, "GET", "/members").await;
    let id = store.server.member().id().0;
    let client = store.server.client_addresses()[0];
    assert_eq!(code, 200);
    assert_eq!(
        members,
        format!(
            "[{{\"id\":{id},\"peerURLs\":[\"http://localhost:2380\"],\"name\":\"one\",\
             \"clientURLs\":[\"http://{client}\"]}}]\n"
        )
    );
    assert_eq!(http(peer, "POST", "/members").await.0, 405);
    for path in ["/health", "/metrics", "/", "/members/", "/raft"] {
        assert_eq!(http(peer, "GET", path).await.0, 404, "{path}");
    }
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_peer_port_refuses_the_start_by_its_name() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let directory = tempfile::tempdir().unwrap();
    let any_port = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let mut options = StoreOptions::single("one", directory.path(), any_port);
    options.listen.peer_urls = vec![ListenUrl::loopback(port)];
    let error = holdfast_store::api::StoreServer::start(options)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), holdfast_store::ErrorKind::Conflict);
    assert!(error.to_string().contains(&port.to_string()), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted_by_client_version_and_messages_by_their_bytes() {
    let store = Store::start().await;
    let put = rpc::PutRequest {
        key: "k".into(),
        value: vec![b'x'; 1000].into(),
        ..rpc::PutRequest::default()
    };
    let mut request = tonic::Request::new(put);
    request
        .metadata_mut()
        .insert("client-api-version", "3.7".parse().unwrap());
    store.kv().put(request).await.unwrap();
    let watching = store
        .watch()
        .watch(futures::stream::iter([rpc::WatchRequest::default()]))
        .await;
    drop(watching.unwrap());
    let (_, page) = store.http("GET", "/metrics").await;
    let value = |line: &str| {
        let found = page.lines().find_map(|found| found.strip_prefix(line));
        found
            .unwrap_or_else(|| panic!("{line} in\n{page}"))
            .trim()
            .parse::<u64>()
            .unwrap()
    };
    let requests = "etcd_server_client_requests_total";
    assert_eq!(
        value(&format!(
            "{requests}{{client_api_version=\"3.7\",type=\"unary\"}}"
        )),
        1
    );
    assert_eq!(
        value(&format!(
            "{requests}{{client_api_version=\"unknown\",type=\"stream\"}}"
        )),
        1
    );
    let received = value("etcd_network_client_grpc_received_bytes_total");
    assert!((1000..1100).contains(&received), "{received}");
    assert!(value("etcd_network_client_grpc_sent_bytes_total") > 0);
    let put = "{grpc_method=\"Put\",grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"}";
    assert_eq!(value(&format!("grpc_server_msg_received_total{put}")), 1);
    assert_eq!(value(&format!("grpc_server_msg_sent_total{put}")), 1);
    let seconds = "etcd_server_request_duration_seconds_count{success=\"true\",type=\"Put\"}";
    assert_eq!(value(seconds), 1);

    let mut request = tonic::Request::new(rpc::RangeRequest {
        key: "k".into(),
        ..rpc::RangeRequest::default()
    });
    let not_text = tonic::metadata::MetadataValue::try_from(&b"\xff\xfe"[..]).unwrap();
    request
        .metadata_mut()
        .insert("client-api-version", not_text);
    let refused = store.kv().range(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert_eq!(refused.message(), "etcdserver: invalid client api version");
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_calls_is_told_with_extensive_metrics_only() {
    for detail in [MetricsDetail::Basic, MetricsDetail::Extensive] {
        let store = Store::start_with(|options| options.metrics_detail = detail).await;
        store.put("k", "v").await;
        let (_, page) = store.http("GET", "/metrics").await;
        let line = |method: &str, sample: &str, last: &str| {
            format!(
                "grpc_server_handling_seconds_{sample}{{grpc_method=\"{method}\",\
                 grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"{last}"
            )
        };
        for line in [
            line("Put", "count", "} 1"),
            line("Put", "bucket", ",le=\"10\"} 1"),
            // A method that was not called is told as well, as etcd does.
            line("Txn", "count", "} 0"),
        ] {
            let is_told = page.lines().any(|told| told == line);
            assert_eq!(is_told, detail == MetricsDetail::Extensive, "{line}");
        }
        store.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_of_the_list_is_on_the_page_and_no_other() {
    let extensive = |options: &mut StoreOptions| options.metrics_detail = MetricsDetail::Extensive;
    let store = Store::start_with(extensive).await;
    store.put("k", "v").await;
    store.get("k").await;
    let (_, page) = store.http("GET", "/metrics").await;
    let mut found: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .collect();
    found.sort_unstable();
    // Those of other members: `the_traffic_with_each_other_member_is_counted_under_etcds_names`.
    let listed: Vec<String> = holdfast_store::metrics::METRICS
        .iter()
        .filter(|metric| !metric.is_of_other_members())
        .map(|metric| format!("{} {}", metric.name, metric.kind.name()))
        .collect();
    assert_eq!(found, listed);
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_never_say_what_they_want_are_ended() {
    let store = Store::start().await;
    let address = store.server.client_addresses()[0];
    let beginnings: [&[u8]; 4] = [
        b"",
        b"PRI * HT",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: st",
    ];
    let mut silent = JoinSet::new();
    for beginning in beginnings {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(beginning).await.unwrap();
        silent.spawn(async move {
            let mut rest = Vec::new();
            // A reset is an end as well.
            let read = stream.read_to_end(&mut rest);
            let ended = tokio::time::timeout(Duration::from_mins(1), read).await;
            (ended.is_ok(), beginning)
        });
    }
    store.put("k", "meanwhile").await;
    for (ended, beginning) in silent.join_all().await {
        assert!(
            ended,
            "{:?} is still open",
            beginning.escape_ascii().to_string()
        );
    }
    store.put("k", "after").await;
    store.stop().await;
}
