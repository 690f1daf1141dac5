//! The HTTP paths, on the client port and on the metrics port.

use std::time::Duration;

use holdfast_store::options::ListenUrl;
use tokio::io::AsyncWriteExt as _;

use crate::api_support::{Store, http};

#[tokio::test(flavor = "multi_thread")]
async fn health_and_version_answer_in_etcds_words() {
    let store = Store::start().await;
    for (path, body) in [
        ("/health", r#"{"health":"true","reason":""}"#),
        (
            "/health?serializable=true",
            r#"{"health":"true","reason":""}"#,
        ),
        ("/livez", "ok\n"),
        ("/livez?verbose", "[+]serializable_read ok\nok\n"),
        ("/livez/serializable_read", "ok\n"),
        (
            "/readyz?verbose",
            "[+]data_corruption ok\n[+]serializable_read ok\n[+]linearizable_read ok\n\
             [+]non_learner ok\nok\n",
        ),
        (
            "/readyz?verbose&exclude=linearizable_read&exclude=non_learner",
            "[+]data_corruption ok\n[+]serializable_read ok\nok\n",
        ),
        (
            "/readyz/linearizable_read?verbose",
            "[+]linearizable_read ok\nok\n",
        ),
        (
            "/version",
            r#"{"etcdserver":"3.7.3","etcdcluster":"3.7.0","storage":"3.7.0"}"#,
        ),
    ] {
        assert_eq!(
            store.http("GET", path).await,
            (200, body.to_owned()),
            "{path}"
        );
    }
    assert_eq!(store.http("GET", "/readyz/nothing").await.0, 404);
    assert_eq!(store.http("GET", "/nothing").await.0, 404);
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_version_are_read_with_get_alone_as_in_etcd() {
    let store = Store::start().await;
    for path in [
        "/health",
        "/livez",
        "/livez/serializable_read",
        "/readyz",
        "/version",
    ] {
        for method in ["HEAD", "POST", "PUT", "DELETE"] {
            assert_eq!(store.http(method, path).await.0, 405, "{method} {path}");
        }
        let silent = (200, String::new());
        assert_eq!(store.http("OPTIONS", path).await, silent, "OPTIONS {path}");
    }
    for (method, path, code) in [
        ("HEAD", "/metrics", 200),
        ("POST", "/metrics", 200),
        ("OPTIONS", "/metrics", 200),
        ("HEAD", "/nothing", 404),
        ("POST", "/nothing", 404),
        ("OPTIONS", "/nothing", 200),
    ] {
        assert_eq!(store.http(method, path).await.0, code, "{method} {path}");
    }
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_carry_etcds_names_on_both_ports() {
    let store = Store::start_with(|options| {
        options.listen.metrics_urls = vec![ListenUrl::loopback(0)];
    })
    .await;
    store.put("k", "v").await;
    store.get("k").await;
    let (code, page) = store.http("GET", "/metrics").await;
    assert_eq!(code, 200);
    for line in [
        "etcd_mvcc_put_total 1",
        "etcd_debugging_mvcc_keys_total 1",
        "etcd_debugging_mvcc_current_revision 2",
        "etcd_server_has_leader 1",
        "etcd_server_is_leader 1",
        "etcd_server_version{server_version=\"3.7.3\"} 1",
        "etcd_cluster_version{cluster_version=\"3.7\"} 1",
        "# TYPE etcd_disk_wal_fsync_duration_seconds histogram",
        "# TYPE etcd_disk_wal_write_duration_seconds histogram",
        "etcd_server_apply_duration_seconds_count{success=\"true\",op=\"Put\",version=\"v3\"} 1",
        "etcd_server_slow_apply_total 0",
        "grpc_server_started_total{grpc_method=\"Put\",grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"} 1",
        "grpc_server_handled_total{grpc_code=\"OK\",grpc_method=\"Put\",grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"} 1",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
    }
    let address = store.server.metrics_addresses()[0];
    assert!(
        http(address, "GET", "/metrics")
            .await
            .1
            .contains("etcd_mvcc_put_total 1\n")
    );
    assert_eq!(http(address, "GET", "/health").await.0, 200);
    assert_eq!(http(address, "GET", "/version").await.0, 404);
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_is_quick_even_with_open_streams_and_idle_connections() {
    let store = Store::start().await;
    store.put("k", "v").await;
    let address = store.server.client_addresses()[0];
    let mut half_open = tokio::net::TcpStream::connect(address).await.unwrap();
    half_open.write_all(b"PRI * HT").await.unwrap();
    let request = holdfast_proto::etcd::rpc::WatchRequest::default();
    let endless =
        futures::StreamExt::chain(futures::stream::iter([request]), futures::stream::pending());
    let mut watch = store.watch().watch(endless).await.unwrap().into_inner();
    let start = tokio::time::Instant::now();
    let (stopped, ended) = tokio::join!(store.server.stop(), watch.message());
    stopped.unwrap();
    assert_eq!(ended.unwrap_err().message(), "etcdserver: server stopped");
    assert!(
        start.elapsed() < Duration::from_millis(1500),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_starts_again_where_it_stopped() {
    let store = Store::start().await;
    let revision = store.put("k", "v").await;
    let status = store.server.member().status();
    let directory = store.stop().await;
    let data = directory.path().join("data");
    let again = Store::start_with(|options| options.data_dir = data).await;
    let kv = again.get("k").await.unwrap();
    assert_eq!(
        (kv.mod_revision, kv.value.as_ref()),
        (revision, b"v".as_slice())
    );
    assert_eq!(again.server.member().status().member_id, status.member_id);
    assert_eq!(again.server.member().status().cluster_id, status.cluster_id);
    again.stop().await;
}
