//! Prometheus' text format, version 0.0.4.

use std::fmt::{Display, Write as _};

use super::{Histogram, catalog};

/// The content type of the format.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page of metrics.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    text: String,
}

impl Exposition {
    /// The page's text.
    pub(crate) fn into_text(self) -> String {
        self.text
    }

    pub(crate) fn counter(&mut self, name: &'static str, value: u64) {
        self.family(name);
        self.sample(name, &[], value);
    }

    pub(crate) fn gauge(&mut self, name: &'static str, value: impl Display) {
        self.family(name);
        self.sample(name, &[], value);
    }

    /// A gauge of 1 whose label says something.
    pub(crate) fn info(&mut self, name: &'static str, label: &str, value: &str) {
        self.family(name);
        self.sample(name, &[(label, value)], 1);
    }

    pub(crate) fn histogram(&mut self, name: &'static str, histogram: &Histogram) {
        self.family(name);
        self.observations(name, &[], histogram);
    }

    /// The samples of one histogram of the metric started last.
    pub(crate) fn observations(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        histogram: &Histogram,
    ) {
        let mut total = 0;
        let count = histogram.count.get();
        let bucket = format!("{name}_bucket");
        for (bound, counter) in histogram.bounds.iter().zip(&histogram.buckets) {
            total += counter.get();
            self.sample(&bucket, &with_bound(labels, &bound.to_string()), total);
        }
        self.sample(&bucket, &with_bound(labels, "+Inf"), count.max(total));
        let seconds = std::time::Duration::from_nanos(histogram.nanos.get()).as_secs_f64();
        self.sample(&format!("{name}_sum"), labels, seconds);
        self.sample(&format!("{name}_count"), labels, count.max(total));
    }

    /// Starts a metric of the list, whose samples follow.
    pub(crate) fn family(&mut self, name: &'static str) {
        let metric = catalog::find(name);
        debug_assert!(metric.is_some(), "{name} is not in the list of metrics");
        if let Some(metric) = metric {
            self.line(format_args!("# HELP {name} {}", metric.help));
            self.line(format_args!("# TYPE {name} {}", metric.kind.name()));
        }
    }

    /// One sample of the metric started last.
    pub(crate) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(name);
        if !labels.is_empty() {
            let labels: Vec<String> = labels
                .iter()
                .map(|(label, value)| format!("{label}=\"{}\"", escape(value)))
                .collect();
            self.text.push('{');
            self.text.push_str(&labels.join(","));
            self.text.push('}');
        }
        self.line(format_args!(" {value}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        self.text.write_fmt(line).unwrap_or_default();
        self.text.push('\n');
    }
}

fn with_bound<'text>(
    labels: &[(&'text str, &'text str)],
    bound: &'text str,
) -> Vec<(&'text str, &'text str)> {
    let mut labels = labels.to_vec();
    labels.push(("le", bound));
    labels
}

fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Exposition;
    use crate::metrics::Histogram;

    #[test]
    fn metrics_are_written_in_the_text_format() {
        let mut page = Exposition::default();
        page.counter("etcd_mvcc_put_total", 3);
        page.family("grpc_server_started_total");
        let labels = [("grpc_method", "Put"), ("note", "a\"b")];
        page.sample("grpc_server_started_total", &labels, 7);
        let histogram = Histogram::new(&[0.5, 1.0]);
        for millis in [100, 700, 5000] {
            histogram.observe(Duration::from_millis(millis));
        }
        page.family("etcd_server_range_duration_seconds");
        page.observations(
            "etcd_server_range_duration_seconds",
            &[("success", "true")],
            &histogram,
        );
        let text = page.into_text();
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.starts_with("# HELP"))
            .collect();
        assert_eq!(
            lines,
            [
                "# TYPE etcd_mvcc_put_total counter",
                "etcd_mvcc_put_total 3",
                "# TYPE grpc_server_started_total counter",
                "grpc_server_started_total{grpc_method=\"Put\",note=\"a\\\"b\"} 7",
                "# TYPE etcd_server_range_duration_seconds histogram",
                "etcd_server_range_duration_seconds_bucket{success=\"true\",le=\"0.5\"} 1",
                "etcd_server_range_duration_seconds_bucket{success=\"true\",le=\"1\"} 2",
                "etcd_server_range_duration_seconds_bucket{success=\"true\",le=\"+Inf\"} 3",
                "etcd_server_range_duration_seconds_sum{success=\"true\"} 5.8",
                "etcd_server_range_duration_seconds_count{success=\"true\"} 3",
            ]
        );
    }
}
