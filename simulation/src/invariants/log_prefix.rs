//! The logs agree.

use std::collections::BTreeMap;

use holdfast_store::consensus::log::Fingerprint;

use super::{Invariant, Place, Sight};

/// What is applied somewhere stands at its index in every log that reaches so far for good; and an
/// index and a term together name one entry, applied or not.
#[derive(Debug, Default)]
pub struct LogsAgree {
    committed: BTreeMap<u64, (Fingerprint, Place)>,
    proposed: BTreeMap<(u64, u64), (Fingerprint, Place)>,
}

impl Invariant for LogsAgree {
    fn name(&self) -> &'static str {
        "logs agree"
    }

    fn see(&mut self, sight: &Sight<'_>) -> Result<(), String> {
        let Sight::Logged {
            member,
            index,
            entry,
            is_committed,
        } = sight
        else {
            return Ok(());
        };
        let own = (*entry, *member);
        let known = *self.proposed.entry((*index, entry.term)).or_insert(own);
        check(*index, own, known)?;
        if *is_committed {
            let known = *self.committed.entry(*index).or_insert(own);
            check(*index, own, known)?;
        }
        Ok(())
    }
}

fn check(
    index: u64,
    (entry, member): (Fingerprint, Place),
    (known, first): (Fingerprint, Place),
) -> Result<(), String> {
    if entry == known {
        return Ok(());
    }
    Err(format!(
        "log entry {index} is {entry:?} on member {member}, was {known:?} on member {first}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(member: Place, term: u64, crc: u32, is_committed: bool) -> Sight<'static> {
        Sight::Logged {
            member,
            index: 4,
            entry: Fingerprint { term, crc },
            is_committed,
        }
    }

    #[test]
    fn two_committed_entries_at_one_index_are_found() {
        let mut invariant = LogsAgree::default();
        invariant.see(&logged(0, 1, 7, true)).unwrap();
        invariant.see(&logged(1, 1, 7, true)).unwrap();
        invariant.see(&logged(2, 2, 8, false)).unwrap();
        assert!(invariant.see(&logged(2, 2, 8, true)).is_err());
    }

    #[test]
    fn two_entries_of_one_term_at_one_index_are_found() {
        let mut invariant = LogsAgree::default();
        invariant.see(&logged(0, 3, 7, false)).unwrap();
        assert!(invariant.see(&logged(1, 3, 8, false)).is_err());
    }
}
