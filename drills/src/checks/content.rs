//! The decoded backup is the content its manifest speaks of, and what the source had.
//!
//! Looked at before the bump: HashKV at the newest revision changes with it.

use super::{Doubt, Facts, Finding, failed, keys_text};
use crate::expected::Expected;

pub(super) fn check(facts: &Facts, expected: &Expected) -> Finding {
    if !expected.is_trailer_valid {
        return failed("the backup's bytes do not have the digest they end in");
    }
    if expected.revision != facts.revision {
        return failed(format!(
            "the backup ends at revision {}, its manifest says {}",
            expected.revision, facts.revision
        ));
    }
    if expected.hash_kv != facts.recorded_hash {
        return failed(format!(
            "HashKV at revision {} is {}, the manifest says {}",
            facts.revision, expected.hash_kv, facts.recorded_hash
        ));
    }
    let count = expected.count();
    if count != facts.recorded_keys {
        return failed(format!(
            "the backup holds {}, its manifest says {}",
            keys_text(count),
            facts.recorded_keys
        ));
    }
    match facts.wanted_keys {
        Some(wanted) if wanted != count => {
            return failed(format!(
                "the backup holds {}, {wanted} are expected",
                keys_text(count)
            ));
        }
        None if count == 0 && !facts.may_be_empty() => {
            return failed("the backup holds no key, and keys were written to the source");
        }
        _ => {}
    }
    match &facts.told_hash {
        Ok(told) if *told != expected.hash_kv => failed(format!(
            "HashKV at revision {} is {}, the source had {told}",
            facts.revision, expected.hash_kv
        )),
        Ok(_) => Ok(format!(
            "HashKV {} at revision {} as the source had it, {}",
            expected.hash_kv,
            facts.revision,
            keys_text(count)
        )),
        Err(reason) => Err(Doubt::Inconclusive(format!(
            "HashKV is as recorded, but the source never told its own: {reason}"
        ))),
    }
}
