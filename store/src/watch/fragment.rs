//! Splitting a response that is larger than a client wants to receive.

use std::collections::VecDeque;

use holdfast_proto::etcd::rpc::WatchResponse;
use prost::Message as _;

/// Adds `response` to `out`, in pieces below `bytes_max` where events allow; all but the last are
/// marked as fragments.
pub(super) fn push(
    out: &mut VecDeque<WatchResponse>,
    mut response: WatchResponse,
    bytes_max: usize,
) {
    if response.encoded_len() < bytes_max || response.events.len() < 2 {
        out.push_back(response);
        return;
    }
    let mut events = std::mem::take(&mut response.events).into_iter().peekable();
    let envelope = WatchResponse {
        fragment: true,
        ..response
    };
    let base = envelope.encoded_len();
    while events.peek().is_some() {
        let mut piece = envelope.clone();
        let mut bytes = base;
        while let Some(event) = events.peek() {
            let length = event.encoded_len();
            // The field's tag and the length in front of each event.
            let framed = 1 + prost::length_delimiter_len(length) + length;
            if !piece.events.is_empty() && bytes + framed >= bytes_max {
                break;
            }
            bytes += framed;
            piece.events.extend(events.next());
        }
        piece.fragment = events.peek().is_some();
        out.push_back(piece);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use holdfast_proto::etcd::{kv, rpc::WatchResponse};
    use prost::Message as _;

    fn response(sizes: &[usize]) -> WatchResponse {
        let event = |(at, size): (usize, &usize)| kv::Event {
            kv: Some(kv::KeyValue {
                key: format!("k{at}").into(),
                value: vec![b'v'; *size].into(),
                ..kv::KeyValue::default()
            }),
            ..kv::Event::default()
        };
        WatchResponse {
            watch_id: 3,
            events: sizes.iter().enumerate().map(event).collect(),
            ..WatchResponse::default()
        }
    }

    #[test]
    fn a_large_response_is_split_and_nothing_is_lost() {
        let whole = response(&[100, 300, 10, 900, 20, 20]);
        let mut out = VecDeque::new();
        super::push(&mut out, whole.clone(), 400);
        assert!(out.len() > 2);
        let (last, others) = out.make_contiguous().split_last().unwrap();
        assert!(!last.fragment && others.iter().all(|piece| piece.fragment));
        assert!(
            out.iter()
                .all(|piece| piece.events.len() == 1 || piece.encoded_len() < 400)
        );
        let joined: Vec<kv::Event> = out.iter().flat_map(|piece| piece.events.clone()).collect();
        assert_eq!(joined, whole.events);
    }

    #[test]
    fn a_small_response_or_a_single_event_stays_whole() {
        for (sizes, bytes_max) in [(&[10, 10][..], 4000), (&[5000], 400)] {
            let mut out = VecDeque::new();
            super::push(&mut out, response(sizes), bytes_max);
            assert_eq!(out.len(), 1);
            assert!(!out[0].fragment);
        }
    }
}
