//! Prometheus' text format, version 0.0.4.

use std::fmt::{Display, Write as _};

use super::Histogram;

/// The content type of the format.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a metric is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Counter,
    Gauge,
}

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

    pub(crate) fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, help, Kind::Counter);
        self.sample(name, &[], value);
    }

    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, help, Kind::Gauge);
        self.sample(name, &[], value);
    }

    /// A gauge of 1 whose label says something.
    pub(crate) fn info(&mut self, name: &str, help: &str, label: &str, value: &str) {
        self.family(name, help, Kind::Gauge);
        self.sample(name, &[(label, value)], 1);
    }

    pub(crate) fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, help, "histogram");
        let mut total = 0;
        let count = histogram.count.get();
        for (bound, bucket) in histogram.bounds.iter().zip(&histogram.buckets) {
            total += bucket.get();
            self.sample(
                &format!("{name}_bucket"),
                &[("le", &bound.to_string())],
                total,
            );
        }
        self.sample(
            &format!("{name}_bucket"),
            &[("le", "+Inf")],
            count.max(total),
        );
        let seconds = std::time::Duration::from_nanos(histogram.nanos.get()).as_secs_f64();
        self.sample(&format!("{name}_sum"), &[], seconds);
        self.sample(&format!("{name}_count"), &[], count.max(total));
    }

    /// Starts a metric whose samples follow.
    pub(crate) fn family(&mut self, name: &str, help: &str, kind: Kind) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        self.head(name, help, kind);
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

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        self.text.write_fmt(line).unwrap_or_default();
        self.text.push('\n');
    }
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

    use super::{Exposition, Kind};
    use crate::metrics::Histogram;

    #[test]
    fn metrics_are_written_in_the_text_format() {
        let mut page = Exposition::default();
        page.counter("puts_total", "Puts.", 3);
        page.family("calls_total", "Calls.", Kind::Counter);
        page.sample("calls_total", &[("method", "Put"), ("note", "a\"b")], 7);
        let histogram = Histogram::new(&[0.5, 1.0]);
        for millis in [100, 700, 5000] {
            histogram.observe(Duration::from_millis(millis));
        }
        page.histogram("wait_seconds", "Waits.", &histogram);
        assert_eq!(
            page.into_text(),
            "# HELP puts_total Puts.\n# TYPE puts_total counter\nputs_total 3\n\
             # HELP calls_total Calls.\n# TYPE calls_total counter\n\
             calls_total{method=\"Put\",note=\"a\\\"b\"} 7\n\
             # HELP wait_seconds Waits.\n# TYPE wait_seconds histogram\n\
             wait_seconds_bucket{le=\"0.5\"} 1\nwait_seconds_bucket{le=\"1\"} 2\n\
             wait_seconds_bucket{le=\"+Inf\"} 3\nwait_seconds_sum 5.8\nwait_seconds_count 3\n"
        );
    }
}
