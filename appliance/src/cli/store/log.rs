//! Log lines as etcd writes them: one JSON object a line with `level`, `ts`, `caller`, `msg` and
//! the fields, on standard error.

use std::fmt;

use holdfast_store::options::LogLevel;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::clock::Clock;
use crate::failure::Failure;

/// Starts logging; call it once.
pub(super) fn start(level: LogLevel) -> Result<(), Failure> {
    let filter = match level {
        LogLevel::Debug => "debug",
        // Consensus tells its inner life at this level, and warns of each call that a peer does not
        // answer; our own lines say once what changed.
        LogLevel::Info => "info,openraft=error",
        LogLevel::Warn => "warn,openraft=error",
        LogLevel::Error => "error",
    };
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(std::io::stderr)
        .event_format(EtcdFormat {
            clock: Clock::system(),
        })
        .try_init()
        .map_err(|error| Failure::unexpected("logging could not be started", error.as_ref()))
}

/// The format.
struct EtcdFormat {
    clock: Clock,
}

impl<S, N> FormatEvent<S, N> for EtcdFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        let time = self
            .clock
            .now()
            .to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
        let mut fields = Fields::default();
        event.record(&mut fields);
        let level = match *metadata.level() {
            Level::ERROR => "error",
            Level::WARN => "warn",
            Level::INFO => "info",
            _ => "debug",
        };
        let caller = format!(
            "{}:{}",
            short(metadata.file()),
            metadata.line().unwrap_or(0)
        );
        write!(
            writer,
            "{{\"level\":\"{level}\",\"ts\":\"{time}\",\"caller\":{},\"msg\":{}",
            Value::from(caller),
            Value::from(fields.message)
        )?;
        for (name, value) in fields.others {
            write!(writer, ",{}:{value}", Value::from(name))?;
        }
        writeln!(writer, "}}")
    }
}

/// The last folder and the file, as etcd's `caller`.
fn short(path: Option<&str>) -> &str {
    let path = path.unwrap_or("unknown");
    let last_two = path.rmatch_indices('/').nth(1).map(|(at, _)| at + 1);
    last_two.and_then(|at| path.get(at..)).unwrap_or(path)
}

/// The message and the other fields of an event.
#[derive(Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        if field.name() == "message" {
            self.message = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
        } else {
            // etcd writes fields with hyphens.
            self.others.insert(field.name().replace('_', "-"), value);
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn callers_are_a_folder_and_a_file() {
        assert_eq!(
            super::short(Some("/a/b/store/src/api/server.rs")),
            "api/server.rs"
        );
        assert_eq!(super::short(Some("server.rs")), "server.rs");
        assert_eq!(super::short(None), "unknown");
    }
}
