//! What was measured, and the table of it.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use holdfast_interop::server::Kind;

/// A quantity, in the order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Figure {
    PutOneRate,
    PutOneP50,
    PutOneP99,
    PutManyRate,
    PutManyP99,
    PutManyCpu,
    RangeOneP50,
    RangeManyRate,
    RangeManyP99,
    RangeManyCpu,
    SerializableRate,
    SerializableCpu,
    FillRate,
    Memory,
    MemoryPeak,
    Disk,
    Restart,
    SnapshotSave,
    SnapshotStatus,
    HashKv,
    Restore,
    SealedBackup,
    Drill,
    ClusterPutRate,
    ClusterPutP99,
    ClusterPutCpu,
    ClusterRangeRate,
    ClusterRangeP99,
    ClusterRangeCpu,
    Failover,
    CatchUp,
}

use Figure::{
    CatchUp, ClusterPutCpu, ClusterPutP99, ClusterPutRate, ClusterRangeCpu, ClusterRangeP99,
    ClusterRangeRate, Disk, Drill, Failover, FillRate, HashKv, Memory, MemoryPeak, PutManyCpu,
    PutManyP99, PutManyRate, PutOneP50, PutOneP99, PutOneRate, RangeManyCpu, RangeManyP99,
    RangeManyRate, RangeOneP50, Restart, Restore, SealedBackup, SerializableCpu, SerializableRate,
    SnapshotSave, SnapshotStatus,
};

impl Figure {
    /// Those of several members.
    const OF_A_CLUSTER: [Self; 8] = [
        ClusterPutRate,
        ClusterPutP99,
        ClusterPutCpu,
        ClusterRangeRate,
        ClusterRangeP99,
        ClusterRangeCpu,
        Failover,
        CatchUp,
    ];

    /// The text of the row, and its unit.
    const fn label(self) -> &'static str {
        match self {
            PutOneRate => "put, 1 client, per second",
            PutOneP50 => "put, 1 client, median (ms)",
            PutOneP99 => "put, 1 client, p99 (ms)",
            PutManyRate | ClusterPutRate => "put, 1,000 clients, per second",
            PutManyP99 | ClusterPutP99 => "put, 1,000 clients, p99 (ms)",
            PutManyCpu => "put, server CPU per operation (us)",
            RangeOneP50 => "linearizable range, 1 client, median (ms)",
            RangeManyRate | ClusterRangeRate => "linearizable range, 1,000 clients, per second",
            RangeManyP99 | ClusterRangeP99 => "linearizable range, 1,000 clients, p99 (ms)",
            RangeManyCpu => "linearizable range, server CPU per operation (us)",
            SerializableRate => "serializable range, 1,000 clients, per second",
            SerializableCpu => "serializable range, server CPU per operation (us)",
            FillRate => "filling the data set, keys per second",
            Memory => "resident memory with the data set (MiB)",
            MemoryPeak => "peak of it (MiB)",
            Disk => "data directory (MiB)",
            Restart => "restart to serving (s)",
            SnapshotSave => "snapshot save through etcdctl (s)",
            SnapshotStatus => "snapshot status (s)",
            HashKv => "HashKV offline (s)",
            Restore => "restore (s)",
            SealedBackup => "sealed backup (s)",
            Drill => "drill (s)",
            ClusterPutCpu => "put, CPU of all members per operation (us)",
            ClusterRangeCpu => "linearizable range, CPU of all members per operation (us)",
            Failover => "kill -9 of the leader to the next write, median of 5 (s)",
            CatchUp => {
                "a follower that was away, its old directory kept, to the newest revision (s)"
            }
        }
    }

    /// The first target for ours/etcd: at least, or at most.
    const fn target(self) -> Option<Target> {
        match self {
            PutManyRate | RangeManyRate | ClusterPutRate | ClusterRangeRate => {
                Some(Target::AtLeast(1.2))
            }
            ClusterPutCpu | ClusterRangeCpu | CatchUp => Some(Target::AtMost(0.7)),
            Failover => Some(Target::AtMost(1.0)),
            PutManyCpu | RangeManyCpu | SnapshotSave | SnapshotStatus | HashKv | Restore => {
                Some(Target::AtMost(0.6))
            }
            PutOneP50 => Some(Target::AtMost(0.8)),
            Memory | Restart => Some(Target::AtMost(0.5)),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    fn text(self, ratio: f64) -> String {
        let (is_met, text) = match self {
            Self::AtLeast(limit) => (ratio >= limit, format!(">= {limit}")),
            Self::AtMost(limit) => (ratio <= limit, format!("<= {limit}")),
        };
        format!("{text} | {}", if is_met { "met" } else { "**missed**" })
    }
}

/// Both sides' figures.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// What was written while the follower was away, in MiB of keys and values.
    missed_mib: u64,
    etcd: BTreeMap<Figure, f64>,
    ours: BTreeMap<Figure, f64>,
}

impl Figures {
    /// Of a run in which a follower misses so much.
    pub(crate) fn new(missed_mib: u64) -> Self {
        Self {
            missed_mib,
            ..Self::default()
        }
    }

    pub(crate) fn set(&mut self, kind: Kind, figure: Figure, value: f64) {
        let side = match kind {
            Kind::Etcd => &mut self.etcd,
            Kind::Holdfast => &mut self.ours,
        };
        side.insert(figure, value);
    }

    /// Sees that a run of a cluster has measured everything on both sides. It says nothing of
    /// targets: a small run on a busy machine shows only that all of it works.
    ///
    /// # Errors
    /// Names the first figure that is missing or no figure.
    pub(crate) fn ensure_complete(&self) -> Result<()> {
        for figure in Figure::OF_A_CLUSTER {
            for side in [&self.etcd, &self.ours] {
                let value = side.get(&figure).copied().unwrap_or(f64::NAN);
                ensure!(
                    value.is_finite() && value > 0.0,
                    "no figure: {}, {value}",
                    figure.label()
                );
            }
        }
        Ok(())
    }

    fn label(&self, figure: Figure) -> String {
        let label = figure.label();
        if figure == CatchUp {
            label.replace("was away", &format!("missed {} MiB", self.missed_mib))
        } else {
            label.to_owned()
        }
    }

    /// A Markdown table with a row for each figure of either side.
    pub(crate) fn table(&self) -> String {
        let mut lines = vec![
            "| what | etcd | ours | ours/etcd | target | |".to_owned(),
            "|---|---:|---:|---:|---|---|".to_owned(),
        ];
        let mut rows: Vec<Figure> = self.etcd.keys().chain(self.ours.keys()).copied().collect();
        rows.sort();
        rows.dedup();
        for figure in rows {
            let [etcd, ours] = [&self.etcd, &self.ours].map(|side| side.get(&figure).copied());
            let ratio = etcd.zip(ours).map(|(etcd, ours)| ours / etcd);
            let target = match (figure.target(), ratio) {
                (Some(target), Some(ratio)) => target.text(ratio),
                _ => " | ".to_owned(),
            };
            let ratio = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
            let [etcd, ours] = [etcd, ours].map(number);
            let label = self.label(figure);
            lines.push(format!(
                "| {label} | {etcd} | {ours} | {ratio} | {target} |"
            ));
        }
        lines.join("\n")
    }
}

fn number(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) if value >= 1.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_the_ratio_and_whether_the_target_is_met() {
        let mut figures = Figures::default();
        figures.set(Kind::Etcd, PutManyRate, 10_000.0);
        figures.set(Kind::Holdfast, PutManyRate, 15_000.0);
        figures.set(Kind::Etcd, Restart, 2.0);
        figures.set(Kind::Holdfast, Restart, 1.5);
        figures.set(Kind::Holdfast, Drill, 3.25);
        let table = figures.table();
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| put, 1,000 clients, per second | 10000 | 15000 | 1.50 | >= 1.2 | met |",
                "| restart to serving (s) | 2.00 | 1.50 | 0.75 | <= 0.5 | **missed** |",
                "| drill (s) | - | 3.25 | - |  |  |",
            ]
        );
    }

    #[test]
    fn a_run_that_measured_nothing_of_one_kind_is_not_complete() {
        let mut figures = Figures::new(1024);
        for kind in [Kind::Etcd, Kind::Holdfast] {
            for figure in Figure::OF_A_CLUSTER {
                figures.set(kind, figure, 1.5);
            }
        }
        figures.ensure_complete().unwrap();
        let table = figures.table();
        assert!(
            table.contains("| a follower that missed 1024 MiB, its"),
            "{table}"
        );
        figures.set(Kind::Holdfast, CatchUp, 0.0);
        let missing = figures.ensure_complete().unwrap_err();
        assert!(missing.to_string().contains("a follower"), "{missing}");
    }
}
