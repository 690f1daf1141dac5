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
    "discovery-keepalive-time",
    "discovery-keepalive-timeout",
    "discovery-request-timeout",
    "grpc-keepalive-interval",
    "grpc-keepalive-timeout",
    "warning-unary-request-duration",
    "watch-progress-notify-interval",
];

/// Keys of `peer-transport-security`, and the flags that they stand for.
const PEER_SECURITY: [(&str, &str); 10] = [
    ("cert-file", "peer-cert-file"),
    ("key-file", "peer-key-file"),
    ("client-cert-file", "peer-client-cert-file"),
    ("client-key-file", "peer-client-key-file"),
    ("client-cert-auth", "peer-client-cert-auth"),
    ("trusted-ca-file", "peer-trusted-ca-file"),
    ("auto-tls", "peer-auto-tls"),
    ("allowed-cn", "peer-cert-allowed-cn"),
    ("allowed-hostname", "peer-cert-allowed-hostname"),
    (
        "skip-client-san-verification",
        "peer-skip-client-san-verification",
    ),
];

/// Keys of `discovery-config`, and the flags that they stand for.
const DISCOVERY: [(&str, &str); 13] = [
    ("token", "discovery-token"),
    ("client.endpoints", "discovery-endpoints"),
    ("client.dial-timeout", "discovery-dial-timeout"),
    ("client.request-timeout", "discovery-request-timeout"),
    ("client.keepalive-time", "discovery-keepalive-time"),
    ("client.keepalive-timeout", "discovery-keepalive-timeout"),
    (
        "client.secure.insecure-transport",
        "discovery-insecure-transport",
    ),
    (
        "client.secure.insecure-skip-tls-verify",
        "discovery-insecure-skip-tls-verify",
    ),
    ("client.secure.cert", "discovery-cert"),
    ("client.secure.key", "discovery-key"),
    ("client.secure.cacert", "discovery-cacert"),
    ("client.auth.username", "discovery-user"),
    ("client.auth.password", "discovery-password"),
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
        match key.as_str() {
            "client-transport-security" => {
                refuse_transport_security(key, value)?;
                continue;
            }
            "peer-transport-security" => {
                section(key, "", value, &PEER_SECURITY, &mut values, warnings)?;
                continue;
            }
            "discovery-config" => {
                section(key, "", value, &DISCOVERY, &mut values, warnings)?;
                continue;
            }
            _ => {}
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

/// Reads a section of the file, whose keys stand for flags; those of a section inside it follow its
/// own with a dot.
fn section(
    name: &str,
    within: &str,
    value: &Value,
    keys: &[(&str, &'static str)],
    values: &mut Values,
    warnings: &mut Vec<String>,
) -> Result<(), UsageError> {
    let invalid = |key: &str| UsageError::new(format!("invalid value for {name}{key}"));
    let entries = match value {
        Value::Null => return Ok(()),
        Value::Object(entries) => entries,
        _ => return Err(invalid(within)),
    };
    for (key, value) in entries {
        let path = format!("{within}{key}");
        let inside = format!("{path}.");
        if keys.iter().any(|(known, _)| known.starts_with(&inside)) {
            section(name, &inside, value, keys, values, warnings)?;
            continue;
        }
        let Some((_, flag)) = keys.iter().find(|(known, _)| *known == path) else {
            warnings.push(format!(
                "unknown setting in the configuration file: {name}.{path}"
            ));
            continue;
        };
        let value = raw(flag, value).ok_or_else(|| invalid(&format!(".{path}")))?;
        values.insert(flag, value);
    }
    Ok(())
}

fn raw(key: &str, value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(on) => Some(on.to_string()),
        Value::Number(number) if DURATIONS.contains(&key) => Some(format!("{number}ns")),
        Value::Number(number) => Some(number.to_string()),
        Value::Null => Some(String::new()),
        Value::Array(parts) => {
            let parts = parts.iter().map(|part| part.as_str());
            Some(parts.collect::<Option<Vec<_>>>()?.join(","))
        }
        Value::Object(_) => None,
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
            "this version does not serve TLS to clients: {key}"
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
    fn a_section_for_tls_between_members_stands_for_flags() {
        let text = "peer-transport-security:\n  cert-file: /c\n  key-file: /k\n  \
                    client-cert-auth: true\n  allowed-cn: [a, b]\n  x: 1\n\
                    cipher-suites: [S1, S2]\n";
        let mut warnings = Vec::new();
        let values = parse(text, &mut warnings).unwrap();
        assert_eq!(values["peer-cert-file"], "/c");
        assert_eq!(values["peer-client-cert-auth"], "true");
        assert_eq!(values["peer-cert-allowed-cn"], "a,b");
        assert_eq!(values["cipher-suites"], "S1,S2");
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(parse("peer-transport-security: 7\n", &mut Vec::new()).is_err());
    }

    #[test]
    fn a_section_for_discovery_stands_for_flags() {
        let text = "discovery-config:\n  token: t\n  client:\n    endpoints: [a:1, b:2]\n    \
                    dial-timeout: 2000000000\n    secure:\n      cacert: /ca\n      \
                    server-name: x\n    auth:\n      username: root\n      password: secret\n";
        let mut warnings = Vec::new();
        let values = parse(text, &mut warnings).unwrap();
        for (flag, value) in [
            ("discovery-token", "t"),
            ("discovery-endpoints", "a:1,b:2"),
            ("discovery-dial-timeout", "2000000000ns"),
            ("discovery-cacert", "/ca"),
            ("discovery-user", "root"),
            ("discovery-password", "secret"),
        ] {
            assert_eq!(values[flag], value);
        }
        let unknown = "discovery-config.client.secure.server-name";
        assert!(
            warnings.len() == 1 && warnings[0].contains(unknown),
            "{warnings:?}"
        );
    }

    #[test]
    fn a_file_that_asks_for_tls_to_clients_is_refused() {
        let text = "client-transport-security:\n  cert-file: /some/cert.pem\n";
        assert!(parse(text, &mut Vec::new()).is_err());
    }
}
