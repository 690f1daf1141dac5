//! A compaction is for good, and the same everywhere.

use std::collections::BTreeMap;

use super::{Invariant, Place, Sight};

/// At a position of the log all members have compacted the same, and further on no less.
#[derive(Debug, Default)]
pub struct CompactionsNeverGoBack {
    known: BTreeMap<u64, (Place, i64)>,
}

impl Invariant for CompactionsNeverGoBack {
    fn name(&self) -> &'static str {
        "compactions never go back"
    }

    fn see(&mut self, sight: &Sight<'_>) -> Result<(), String> {
        let Sight::Compacted {
            member,
            applied,
            revision,
        } = *sight
        else {
            return Ok(());
        };
        let own = (member, revision);
        let before = self.known.range(..=applied).next_back();
        let after = self.known.range(applied..).next();
        let contradicts = |known: Option<(&u64, &(Place, i64))>, is_fine: fn(i64, i64) -> bool| {
            let (at, (other, there)) = known?;
            let is_wrong = !is_fine(*there, revision) || (*at == applied && *there != revision);
            is_wrong.then(|| {
                format!(
                    "member {member} has compacted {revision} at log index {applied}, member \
                     {other} {there} at {at}"
                )
            })
        };
        let wrong = contradicts(before, |before, own| before <= own)
            .or_else(|| contradicts(after, |after, own| after >= own));
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        self.known.insert(applied, own);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compacted(member: Place, applied: u64, revision: i64) -> Sight<'static> {
        Sight::Compacted {
            member,
            applied,
            revision,
        }
    }

    #[test]
    fn a_compaction_that_is_lost_or_differs_is_found() {
        let mut invariant = CompactionsNeverGoBack::default();
        invariant.see(&compacted(0, 5, 3)).unwrap();
        invariant.see(&compacted(0, 9, 7)).unwrap();
        invariant.see(&compacted(1, 5, 3)).unwrap();
        invariant.see(&compacted(1, 7, 3)).unwrap();
        assert!(invariant.see(&compacted(1, 9, 6)).is_err(), "it differs");
        assert!(invariant.see(&compacted(1, 10, 6)).is_err(), "it is lost");
        assert!(invariant.see(&compacted(1, 8, 8)).is_err(), "it came early");
    }
}
