//! `--feature-gates`: `Name=true,Other=false`, with etcd's names.

use std::collections::BTreeMap;

use super::{Features, UsageError, value};

/// Those of etcd 3.7's gates that mean something here.
const WITH_EFFECT: [&str; 7] = [
    "AllAlpha",
    "CompactHashCheck",
    "InitialCorruptCheck",
    "LeaseCheckpoint",
    "LeaseCheckpointPersist",
    "SetMemberLocalAddr",
    "StopGRPCServiceOnDefrag",
];

/// The others.
const WITHOUT_EFFECT: [&str; 4] = [
    "AllBeta",
    "FastLeaseKeepAlive",
    "PriorityRequest",
    "TxnModeWriteWithSharedBuffer",
];

/// Reads the flag's value; a gate without a meaning here is a warning, an unknown one an error.
pub(super) fn read(text: &str, warnings: &mut Vec<String>) -> Result<Features, UsageError> {
    let given = given(text)?;
    // A gate that is named is what is said of it, whatever `AllAlpha` says and wherever it stands.
    let alpha = given.get("AllAlpha").copied().unwrap_or(false);
    let is_on = |name| given.get(name).copied().unwrap_or(alpha);
    let features = Features {
        stops_serving_on_defrag: is_on("StopGRPCServiceOnDefrag"),
        binds_peer_address: is_on("SetMemberLocalAddr"),
        compares_at_start: is_on("InitialCorruptCheck"),
        compares_compactions: is_on("CompactHashCheck"),
        makes_lease_checkpoints: is_on("LeaseCheckpoint"),
    };
    // Checkpoints are in the state, as etcd's are since its 3.6: the gate has nothing to say but
    // that there are some.
    if is_on("LeaseCheckpointPersist") && !features.makes_lease_checkpoints {
        return Err(UsageError::new(
            "enabling feature gate LeaseCheckpointPersist requires enabling feature gate \
             LeaseCheckpoint",
        ));
    }
    let without_effect = given.keys().filter(|name| WITHOUT_EFFECT.contains(name));
    warnings.extend(without_effect.map(|name| format!("the feature gate {name} has no effect")));
    Ok(features)
}

/// The gates that are named, and what is said of each; the last word counts.
fn given(text: &str) -> Result<BTreeMap<&str, bool>, UsageError> {
    let mut given = BTreeMap::new();
    let parts = text.split(',').map(str::trim);
    for part in parts.filter(|part| !part.is_empty()) {
        let Some((name, state)) = part.split_once('=') else {
            return Err(UsageError::new(format!(
                "missing bool value for feature gate {part}"
            )));
        };
        let is_on = value::boolean("feature-gates", state.trim())?;
        let name = name.trim();
        if !WITH_EFFECT.contains(&name) && !WITHOUT_EFFECT.contains(&name) {
            return Err(UsageError::new(format!(
                "unrecognized feature gate: {name}"
            )));
        }
        given.insert(name, is_on);
    }
    Ok(given)
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

    #[test]
    fn checkpoints_of_leases_are_off_until_their_gate_is_on() {
        let features = |text| read(text, &mut Vec::new());
        assert!(!features("").unwrap().makes_lease_checkpoints);
        for on in [
            "LeaseCheckpoint=true",
            "LeaseCheckpoint=true,LeaseCheckpointPersist=true",
            "AllAlpha=true",
        ] {
            assert!(features(on).unwrap().makes_lease_checkpoints, "{on}");
        }
        for wrong in [
            "LeaseCheckpointPersist=true",
            "LeaseCheckpointPersist=true,LeaseCheckpoint=false",
            "LeaseCheckpoint=false,AllAlpha=true",
        ] {
            let refused = features(wrong).unwrap_err().to_string();
            assert!(
                refused.contains("requires enabling feature gate"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_gate_that_is_named_is_not_one_of_all() {
        let text = "InitialCorruptCheck=false,AllAlpha=true,CompactHashCheck=false";
        let features = read(text, &mut Vec::new()).unwrap();
        assert!(!features.compares_at_start && !features.compares_compactions);
        assert!(features.stops_serving_on_defrag && features.binds_peer_address);
    }
}
