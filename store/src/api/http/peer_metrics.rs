//! The metrics of what goes on between this member and the others.

use std::sync::Arc;

use super::super::context::Context;
use crate::consensus::peer::{Traffic, Transfers};
use crate::metrics::{Exposition, Histogram};

/// The other members by their ids, with the traffic.
struct Page<'a> {
    own: String,
    all: Vec<(String, Arc<Traffic>)>,
    out: &'a mut Exposition,
}

/// Writes them; nothing when there are no others.
pub(super) fn write(context: &Context, out: &mut Exposition) {
    let all = context.member().peer_calls().traffics().all();
    if all.is_empty() {
        return;
    }
    let named = all.into_iter();
    let mut page = Page {
        own: context.member().id().to_string(),
        all: named
            .map(|(peer, traffic)| (format!("{peer:x}"), traffic))
            .collect(),
        out,
    };
    page.pairs("etcd_network_active_peers", |with| {
        u64::from(with.is_active())
    });
    page.pairs("etcd_network_disconnected_peers_total", |with| {
        with.losses.get()
    });
    page.counts("etcd_network_peer_received_bytes_total", "From", |with| {
        with.received_bytes.get()
    });
    page.counts("etcd_network_peer_sent_bytes_total", "To", |with| {
        with.sent_bytes.get()
    });
    page.counts("etcd_network_peer_sent_failures_total", "To", |with| {
        with.failures.get()
    });
    let name = "etcd_network_peer_round_trip_time_seconds";
    page.times(name, "To", |with| &with.round_trips);
    page.transfers(
        [
            "etcd_network_snapshot_receive_success",
            "etcd_network_snapshot_receive_failures",
            "etcd_network_snapshot_receive_total_duration_seconds",
        ],
        "From",
        |with| &with.snapshots_received,
    );
    page.transfers(
        [
            "etcd_network_snapshot_send_success",
            "etcd_network_snapshot_send_failures",
            "etcd_network_snapshot_send_total_duration_seconds",
        ],
        "To",
        |with| &with.snapshots_sent,
    );
}

impl Page<'_> {
    fn pairs(&mut self, name: &'static str, value: impl Fn(&Traffic) -> u64) {
        self.out.family(name);
        for (peer, with) in &self.all {
            let labels = [("Local", self.own.as_str()), ("Remote", peer)];
            self.out.sample(name, &labels, value(with));
        }
    }

    fn counts(&mut self, name: &'static str, label: &str, value: impl Fn(&Traffic) -> u64) {
        self.out.family(name);
        for (peer, with) in &self.all {
            self.out.sample(name, &[(label, peer)], value(with));
        }
    }

    fn times(&mut self, name: &'static str, label: &str, value: impl Fn(&Traffic) -> &Histogram) {
        self.out.family(name);
        for (peer, with) in &self.all {
            self.out.observations(name, &[(label, peer)], value(with));
        }
    }

    /// What became of snapshots, under the names for success, failure and time.
    fn transfers(
        &mut self,
        [succeeded, failed, seconds]: [&'static str; 3],
        label: &str,
        value: impl Fn(&Traffic) -> &Transfers,
    ) {
        self.counts(succeeded, label, |with| value(with).succeeded.get());
        self.counts(failed, label, |with| value(with).failed.get());
        self.times(seconds, label, |with| &value(with).seconds);
    }
}
