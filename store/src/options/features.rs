//! `--feature-gates`: `Name=true,Other=false`, with etcd's names.

use super::{Features, UsageError, value};

/// etcd 3.7's gates.
const GATES: [&str; 11] = [
    "AllAlpha",
    "AllBeta",
    "CompactHashCheck",
    "FastLeaseKeepAlive",
    "InitialCorruptCheck",
    "LeaseCheckpoint",
    "LeaseCheckpointPersist",
    "PriorityRequest",
    "SetMemberLocalAddr",
    "StopGRPCServiceOnDefrag",
    "TxnModeWriteWithSharedBuffer",
];

/// What this store does whatever the gate says.
const ALWAYS_ON: [&str; 2] = ["LeaseCheckpoint", "LeaseCheckpointPersist"];

/// Reads the flag's value; a gate without a meaning here is a warning, an unknown one an error.
pub(super) fn read(text: &str, warnings: &mut Vec<String>) -> Result<Features, UsageError> {
    let mut features = Features::default();
    for part in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let Some((name, state)) = part.split_once('=') else {
            return Err(UsageError::new(format!(
                "missing bool value for feature gate {part}"
            )));
        };
        let is_on = value::boolean("feature-gates", state.trim())?;
        match name.trim() {
            "StopGRPCServiceOnDefrag" => features.stops_serving_on_defrag = is_on,
            "SetMemberLocalAddr" => features.binds_peer_address = is_on,
            "InitialCorruptCheck" => features.compares_at_start = is_on,
            "CompactHashCheck" => features.compares_compactions = is_on,
            "AllAlpha" => {
                features.stops_serving_on_defrag |= is_on;
                features.binds_peer_address |= is_on;
                features.compares_at_start |= is_on;
                features.compares_compactions |= is_on;
            }
            name if ALWAYS_ON.contains(&name) && is_on => {}
            name if GATES.contains(&name) => {
                warnings.push(format!("the feature gate {name} has no effect"));
            }
            name => {
                return Err(UsageError::new(format!(
                    "unrecognized feature gate: {name}"
                )));
            }
        }
    }
    Ok(features)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_read_by_etcds_names() {
        let mut warnings = Vec::new();
        let text = "StopGRPCServiceOnDefrag=true, InitialCorruptCheck=true,PriorityRequest=true";
        let features = read(text, &mut warnings).unwrap();
        assert!(features.stops_serving_on_defrag && features.compares_at_start);
        assert!(!features.compares_compactions);
        assert_eq!(warnings, ["the feature gate PriorityRequest has no effect"]);
        for wrong in [
            "NoSuchGate=true",
            "StopGRPCServiceOnDefrag",
            "AllBeta=maybe",
        ] {
            assert!(read(wrong, &mut warnings).is_err(), "{wrong}");
        }
        assert_eq!(read("", &mut warnings).unwrap(), Features::default());
    }
}
