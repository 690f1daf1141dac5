//! `--config-file`: etcd's YAML, where durations are integers of nanoseconds.

use std::path::Path;

use serde_json::Value;

use super::UsageError;
use super::flags::{self, Use, Values};

/// Largest file read, in bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Flags whose file form is a number of nanoseconds.
const DURATIONS: &[&str] = &[
    "compact-hash-check-time",
    "corrupt-check-time",
    "discovery-dial-timeout",
    "discovery-request-timeout",
    "grpc-keepalive-interval",
    "grpc-keepalive-timeout",
    "warning-unary-request-duration",
    "watch-progress-notify-interval",
];

/// Reads the file into raw values; what it names and this store does not know is a warning.
pub(super) fn read(path: &Path, warnings: &mut Vec<String>) -> Result<Values, UsageError> {
    let failed = |what: &dyn std::fmt::Display| {
        UsageError::new(format!(
            "cannot read the configuration file {}: {what}",
            path.display()
        ))
    };
    let size = std::fs::metadata(path)
        .map_err(|error| failed(&error))?
        .len();
    if size > FILE_BYTES_MAX {
        return Err(failed(&format!("larger than {FILE_BYTES_MAX} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    parse(&text, warnings).map_err(|error| failed(&error))
}

/// Reads the text of a file.
fn parse(text: &str, warnings: &mut Vec<String>) -> Result<Values, UsageError> {
    let document: Value =
        serde_saphyr::from_str(text).map_err(|error| UsageError::new(error.to_string()))?;
    let entries = match document {
        Value::Null => return Ok(Values::new()),
        Value::Object(entries) => entries,
        _ => return Err(UsageError::new("not a mapping of settings")),
    };
    let mut values = Values::new();
    for (key, value) in &entries {
        if matches!(
            key.as_str(),
            "client-transport-security" | "peer-transport-security"
        ) {
            refuse_transport_security(key, value)?;
            continue;
        }
        let Some(flag) = flags::find(key) else {
            warnings.push(format!("unknown setting in the configuration file: {key}"));
            continue;
        };
        match raw(key, value) {
            Some(value) => {
                values.insert(flag.name, value);
            }
            None if flag.used == Use::Ignored => {
                values.insert(flag.name, String::new());
            }
            None => return Err(UsageError::new(format!("invalid value for {key}"))),
        }
    }
    Ok(values)
}

fn raw(key: &str, value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(on) => Some(on.to_string()),
        Value::Number(number) if DURATIONS.contains(&key) => Some(format!("{number}ns")),
        Value::Number(number) => Some(number.to_string()),
        Value::Null => Some(String::new()),
        Value::Array(_) | Value::Object(_) => None,
    }
}

/// TLS asked for in the file must not be dropped silently.
fn refuse_transport_security(key: &str, value: &Value) -> Result<(), UsageError> {
    let is_off = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    let off = match value {
        Value::Null => true,
        Value::Object(entries) => entries.values().all(is_off),
        _ => false,
    };
    if off {
        Ok(())
    } else {
        Err(UsageError::new(format!(
            "this version does not serve TLS: {key}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_file_is_read_with_durations_in_nanoseconds() {
        let text = "name: alpha\nquota-backend-bytes: 1024\n\
                    watch-progress-notify-interval: 5000000000\nstrict-reconfig-check: true\n\
                    log-outputs: [stderr]\nno-such-thing: 1\n\
                    client-transport-security:\n  cert-file: ''\n";
        let mut warnings = Vec::new();
        let values = parse(text, &mut warnings).unwrap();
        assert_eq!(values["name"], "alpha");
        assert_eq!(values["quota-backend-bytes"], "1024");
        assert_eq!(values["watch-progress-notify-interval"], "5000000000ns");
        assert_eq!(
            warnings,
            ["unknown setting in the configuration file: no-such-thing"]
        );
    }

    #[test]
    fn a_file_that_asks_for_tls_is_refused() {
        let text = "client-transport-security:\n  cert-file: /some/cert.pem\n";
        assert!(parse(text, &mut Vec::new()).is_err());
    }
}
