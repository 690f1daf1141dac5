use std::collections::VecDeque;

use futures::TryStreamExt as _;

use super::*;

/// Sends what it was given, then ends, fails or hangs.
struct Script {
    messages: VecDeque<SnapshotResponse>,
    end: End,
}

enum End {
    Eof,
    Hang,
    EmptyForever,
}

impl Messages for Script {
    async fn next(&mut self) -> std::result::Result<Option<SnapshotResponse>, tonic::Status> {
        match (self.messages.pop_front(), &self.end) {
            (Some(message), _) => Ok(Some(message)),
            (None, End::Eof) => Ok(None),
            (None, End::Hang) => std::future::pending().await,
            (None, End::EmptyForever) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
                Ok(Some(message(0, 100)))
            }
        }
    }
}

fn message(size: usize, remaining_bytes: u64) -> SnapshotResponse {
    SnapshotResponse {
        remaining_bytes,
        blob: vec![1; size].into(),
        ..Default::default()
    }
}

fn pace(rate: Option<u64>) -> Pace {
    Pace {
        idle: Duration::from_millis(200),
        rate,
    }
}

async fn read(messages: Vec<SnapshotResponse>, end: End) -> Result<usize> {
    let script = Script {
        messages: messages.into(),
        end,
    };
    let read: Vec<Bytes> = chunks(script, "e".to_owned(), pace(None))
        .try_collect()
        .await?;
    Ok(read.iter().map(Bytes::len).sum())
}

#[tokio::test]
async fn a_whole_stream_passes() {
    let good = vec![message(60, 40), message(40, 0), message(32, 0)];
    assert_eq!(read(good, End::Eof).await.unwrap(), 132);
    let digest_in_two = vec![message(100, 0), message(16, 0), message(16, 0)];
    assert_eq!(read(digest_in_two, End::Eof).await.unwrap(), 132);
}

#[tokio::test]
async fn a_stream_whose_arithmetic_is_wrong_is_refused() {
    let cases: Vec<(&str, Vec<SnapshotResponse>)> = vec![
        ("nothing", vec![]),
        ("ends early", vec![message(60, 40)]),
        ("no digest", vec![message(100, 0)]),
        ("short digest", vec![message(100, 0), message(31, 0)]),
        ("long digest", vec![message(100, 0), message(33, 0)]),
        (
            "bytes after",
            vec![message(100, 0), message(32, 0), message(1, 0)],
        ),
        (
            "remaining grows",
            vec![message(60, 40), message(10, 50), message(40, 0)],
        ),
        (
            "zero too early",
            vec![message(60, 40), message(10, 0), message(32, 0)],
        ),
        (
            "lost message",
            vec![message(60, 40), message(20, 0), message(32, 0)],
        ),
        (
            "twice",
            vec![
                message(60, 40),
                message(60, 40),
                message(40, 0),
                message(32, 0),
            ],
        ),
        ("negative", vec![message(60, u64::MAX - 5)]),
        ("wraps", vec![message(60, 40), message(50, u64::MAX - 9)]),
    ];
    for (name, messages) in cases {
        assert!(read(messages, End::Eof).await.is_err(), "{name}");
    }
}

#[tokio::test]
async fn a_stream_without_bytes_is_given_up_after_the_idle_time() {
    for end in [End::Hang, End::EmptyForever] {
        let began = Instant::now();
        let failed = read(vec![message(10, 100)], end).await.unwrap_err();
        assert!(matches!(failed, Error::Stalled { .. }), "{failed}");
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{:?}",
            began.elapsed()
        );
    }
}

/// Longer than the idle time in all and between two messages: waiting for the rate is no stall.
#[tokio::test]
async fn a_stream_is_not_read_faster_than_its_rate() {
    let messages = vec![message(50_000, 50_000), message(50_000, 0), message(32, 0)];
    let script = Script {
        messages: messages.into(),
        end: End::Eof,
    };
    let began = Instant::now();
    let read: Vec<Bytes> = chunks(script, "e".to_owned(), pace(Some(100_000)))
        .try_collect()
        .await
        .unwrap();
    assert_eq!(read.iter().map(Bytes::len).sum::<usize>(), 100_032);
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(990), "{took:?}");
}
