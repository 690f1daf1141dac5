//! Too many connections, and clients that take nothing: the others go on.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::store_process::Running;
use crate::support::{PATIENCE, Place, eventually};

/// Descriptors of the starved process: half of them are for clients.
const DESCRIPTORS: usize = 64;
const FLOOD: usize = 100;

/// Processor time of a process so far, in clock ticks.
fn processor_ticks(id: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

async fn health(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let request = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.ok()?;
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    tokio::time::timeout(Duration::from_millis(500), read)
        .await
        .ok()?
        .ok()?;
    answer.contains("\"health\":\"true\"").then_some(answer)
}

#[tokio::test]
async fn more_connections_than_descriptors_wait_and_the_open_ones_go_on() {
    let place = Place::new();
    let running = Running::start_with_descriptors(&place, DESCRIPTORS).await;
    let mut early = running.client().await;
    let mut flood = Vec::new();
    for _ in 0..FLOOD {
        let mut stream = TcpStream::connect(("127.0.0.1", running.port))
            .await
            .unwrap();
        // Enough of a request to be taken for a client that is slow, not silent.
        stream.write_all(b"GET /health HTTP/1.1\r\n").await.unwrap();
        flood.push(stream);
    }
    eventually("a line about the limit", || async {
        running
            .log()
            .contains("rejected connection on client endpoint")
            .then_some(())
    })
    .await;
    let before = processor_ticks(running.id());
    let start = tokio::time::Instant::now();
    let mut puts = 0;
    while start.elapsed() < Duration::from_secs(2) {
        early.put("during", &puts.to_string()).await;
        puts += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // A loop that spins on a failing accept would take all of a processor: 100 ticks a second.
    let spent = processor_ticks(running.id()) - before;
    assert!(spent < 120, "{spent} ticks in two seconds with {puts} puts");

    drop(flood);
    eventually("a new connection is served", || health(running.port)).await;
    let mut late = running.client().await;
    assert_eq!(late.get("during").await.0.unwrap(), (puts - 1).to_string());
    let (code, log) = running.stop().await;
    assert_eq!(code, 0, "{log}");
    assert!(!log.contains("\"level\":\"error\""), "{log}");
}

/// Carries bytes to the store and takes back none after the first `back_max`, as one of `tasks`.
async fn tunnel_that_clogs(tasks: &mut JoinSet<()>, port: u16, back_max: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap().port();
    tasks.spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let store = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_store, mut to_store) = store.into_split();
        let forward = tokio::io::copy(&mut from_client, &mut to_store);
        let back = async {
            let mut limited = (&mut from_store).take(u64::try_from(back_max).unwrap());
            drop(tokio::io::copy(&mut limited, &mut to_client).await);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            result = forward => drop(result),
            () = back => {}
        }
    });
    own
}

#[tokio::test]
async fn a_client_that_takes_nothing_holds_up_nobody_else() {
    let place = Place::new();
    let running = Running::start(&place, &[]).await;
    let mut good = running.client().await;
    let large = "x".repeat(512 << 10);
    good.put("large", &large).await;
    let mut tunnels = JoinSet::new();
    let clogged = tunnel_that_clogs(&mut tunnels, running.port, 64 << 10).await;
    let stuck = crate::support::Client::connect(clogged).await;
    let mut waiting = JoinSet::new();
    for _ in 0..64 {
        let mut stuck = stuck.clone();
        waiting.spawn(async move { stuck.get("large").await });
    }
    // The stuck ones are under way as soon as the store has read for them.
    for number in 0..50 {
        let value = number.to_string();
        let put = good.put("small", &value);
        tokio::time::timeout(PATIENCE, put)
            .await
            .expect("a put is answered");
    }
    assert_eq!(good.get("large").await.0.unwrap().len(), large.len());
    assert!(
        waiting.try_join_next().is_none(),
        "they were meant to be stuck"
    );
    waiting.shutdown().await;
    let (code, log) = running.stop().await;
    assert_eq!(code, 0, "{log}");
}
