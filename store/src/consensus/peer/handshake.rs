//! Who calls whom: the metadata of every call between members, and its check.

use parking_lot::Mutex;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Request, Status};

use crate::datadir::identity::{ClusterId, MemberId};

/// The version of the peer protocol.
pub const PEER_PROTOCOL: u32 = 1;

/// Names the protocol, on calls and on `/members`.
pub(crate) const PROTOCOL: &str = "holdfast-peer-protocol";
const FROM: &str = "holdfast-from";
const TO: &str = "holdfast-to";
const CLUSTER: &str = "holdfast-cluster";
/// On a refusal: the caller is no member any more and never will be.
const REMOVED: &str = "holdfast-removed";
/// A refused caller calls again and again; it is logged this often.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// Who calls, as the caller says; nothing is checked.
pub(crate) fn caller(headers: &http::HeaderMap) -> Option<u64> {
    u64::from_str_radix(headers.get(FROM)?.to_str().ok()?, 16).ok()
}

/// This member's end of every call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    pub(crate) member: MemberId,
    pub(crate) cluster: ClusterId,
}

impl Identity {
    /// Says on `request` who calls `to`.
    pub(super) fn sign<T>(&self, to: u64, request: &mut Request<T>) {
        let metadata = request.metadata_mut();
        metadata.insert(PROTOCOL, MetadataValue::from(PEER_PROTOCOL));
        for (name, id) in [(FROM, self.member.0), (TO, to), (CLUSTER, self.cluster.0)] {
            // Hexadecimal digits are valid metadata.
            if let Ok(value) = MetadataValue::try_from(format!("{id:x}")) {
                metadata.insert(name, value);
            }
        }
    }

    /// Who calls, when the call is for this member.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION`, naming both sides, when it is not.
    pub(super) fn check(
        &self,
        metadata: &MetadataMap,
        is_removed: impl FnOnce(u64) -> bool,
    ) -> Result<u64, Status> {
        let text = |name| metadata.get(name).and_then(|value| value.to_str().ok());
        let id = |name| text(name).and_then(|text| u64::from_str_radix(text, 16).ok());
        let protocol = text(PROTOCOL).and_then(|text| text.parse::<u32>().ok());
        let (Some(protocol), Some(from), Some(to), Some(cluster)) =
            (protocol, id(FROM), id(TO), id(CLUSTER))
        else {
            return Err(Status::failed_precondition(
                "this is a peer URL: the caller does not say which member it is",
            ));
        };
        let own = self.member;
        if protocol != PEER_PROTOCOL {
            return Err(Status::failed_precondition(format!(
                "member {from:x} speaks version {protocol} of the peer protocol, member {own} \
                 version {PEER_PROTOCOL}"
            )));
        }
        if cluster != self.cluster.0 {
            return Err(Status::failed_precondition(format!(
                "member {from:x} is of cluster {cluster:x}, member {own} of cluster {}",
                self.cluster
            )));
        }
        if to != own.0 {
            return Err(Status::failed_precondition(format!(
                "member {from:x} calls member {to:x}, and this is member {own}"
            )));
        }
        if is_removed(from) {
            let mut refused = Status::failed_precondition(format!(
                "member {from:x} has been removed from cluster {}",
                self.cluster
            ));
            let removed = MetadataValue::from(from);
            refused.metadata_mut().insert(REMOVED, removed);
            return Err(refused);
        }
        Ok(from)
    }
}

/// Whether a peer has said that this member has been removed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Removed(watch::Sender<bool>);

impl Removed {
    /// Looks at the answer to a call.
    pub(super) fn note(&self, status: &Status) {
        if status.code() == Code::FailedPrecondition && status.metadata().contains_key(REMOVED) {
            self.0.send_replace(true);
        }
    }

    /// Returns once one has.
    pub(super) async fn told(&self) {
        let mut told = self.0.subscribe();
        // The sender lives as long as `self`.
        drop(told.wait_for(|told| *told).await);
    }
}

/// Says of refused callers, but not each time.
#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    last: Mutex<Option<Instant>>,
}

impl RefusalLog {
    pub(super) fn note(&self, status: &Status, now: Instant) {
        let mut last = self.last.lock();
        let is_due = last.is_none_or(|last| now.duration_since(last) >= LOG_INTERVAL);
        if is_due {
            *last = Some(now);
            tracing::warn!(reason = status.message(), "a peer call was refused");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Identity = Identity {
        member: MemberId(0xb),
        cluster: ClusterId(0xc1),
    };

    fn call(from: u64, cluster: u64, to: u64) -> MetadataMap {
        let caller = Identity {
            member: MemberId(from),
            cluster: ClusterId(cluster),
        };
        let mut request = Request::new(());
        caller.sign(to, &mut request);
        request.metadata().clone()
    }

    #[test]
    fn a_member_of_the_cluster_is_known_by_its_id() {
        let found = OWN.check(&call(0xa, 0xc1, 0xb), |_| false);
        assert_eq!(found.unwrap(), 0xa);
    }

    #[test]
    fn a_call_of_another_cluster_member_or_protocol_is_refused_naming_both() {
        let mut spoken = call(0xa, 0xc1, 0xb);
        spoken.insert(PROTOCOL, MetadataValue::from(PEER_PROTOCOL + 1));
        let cases = [
            (
                call(0xa, 0xc2, 0xb),
                "member a is of cluster c2, member b of cluster c1",
            ),
            (
                call(0xa, 0xc1, 0xd),
                "member a calls member d, and this is member b",
            ),
            (
                call(0xe, 0xc1, 0xb),
                "member e has been removed from cluster c1",
            ),
            (
                spoken,
                "member a speaks version 2 of the peer protocol, member b version 1",
            ),
            (MetadataMap::new(), "does not say which member it is"),
        ];
        for (metadata, text) in cases {
            let refused = OWN.check(&metadata, |from| from == 0xe).unwrap_err();
            assert_eq!(refused.code(), Code::FailedPrecondition);
            assert!(refused.message().contains(text), "{}", refused.message());
            let removed = Removed::default();
            removed.note(&refused);
            assert_eq!(*removed.0.borrow(), text.contains("removed"), "{text}");
        }
    }

    /// Keeps the reasons of the warnings.
    #[derive(Clone, Default)]
    struct Warnings(std::sync::Arc<Mutex<Vec<String>>>);

    impl tracing::Subscriber for Warnings {
        fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
            *metadata.level() == tracing::Level::WARN
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            event.record(
                &mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
                    if field.name() == "reason" {
                        self.0.lock().push(format!("{value:?}"));
                    }
                },
            );
        }
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[test]
    fn a_refused_caller_is_logged_at_once_and_then_once_in_a_while() {
        let (warnings, log, now) = (Warnings::default(), RefusalLog::default(), Instant::now());
        let note = |text: &str, after: Duration| {
            log.note(&Status::failed_precondition(text), now + after);
        };
        tracing::subscriber::with_default(warnings.clone(), || {
            note("one", Duration::ZERO);
            note("two", LOG_INTERVAL / 2);
            note("three", LOG_INTERVAL);
            note("four", LOG_INTERVAL + Duration::from_secs(1));
        });
        assert_eq!(*warnings.0.lock(), ["\"one\"", "\"three\""]);
    }
}
