//! Whoever was removed is out for good.

use std::collections::BTreeMap;

use super::{Invariant, Sight};

/// A member that was removed is listed nowhere that is as far or further in the log, and leads no
/// later term: no vote of a later term counts it, or is asked for by it with success.
#[derive(Debug, Default)]
pub struct RemovedMembersStayOut {
    /// The first position, term and index, that was seen without each.
    removed: BTreeMap<u64, (u64, u64)>,
}

impl Invariant for RemovedMembersStayOut {
    fn name(&self) -> &'static str {
        "removed members stay out"
    }

    fn see(&mut self, sight: &Sight<'_>) -> Result<(), String> {
        match sight {
            Sight::Members {
                member,
                applied,
                listed,
                removed,
            } => {
                for id in *removed {
                    let first = self.removed.entry(*id).or_insert(*applied);
                    *first = (*first).min(*applied);
                }
                let back = listed.iter().find_map(|id| {
                    let at = self.removed.get(id)?;
                    (at <= applied).then_some((id, at))
                });
                match back {
                    Some((id, at)) => Err(format!(
                        "member {member} lists {id:x} at {applied:?}; it was removed by {at:?}"
                    )),
                    None => Ok(()),
                }
            }
            Sight::Status {
                member,
                term,
                leader: Some(leader),
                ..
            } => match self.removed.get(leader) {
                Some((removed, _)) if removed < term => Err(format!(
                    "member {member} follows {leader:x} in term {term}; it was removed in term \
                     {removed}"
                )),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn members<'a>(
        applied: (u64, u64),
        listed: &'a [u64],
        removed: &'a BTreeSet<u64>,
    ) -> Sight<'a> {
        Sight::Members {
            member: 0,
            applied,
            listed,
            removed,
        }
    }

    #[test]
    fn a_removed_member_that_comes_back_is_found() {
        let mut invariant = RemovedMembersStayOut::default();
        let (nobody, gone) = (BTreeSet::new(), BTreeSet::from([7]));
        invariant.see(&members((1, 4), &[7, 8], &nobody)).unwrap();
        invariant.see(&members((1, 5), &[8], &gone)).unwrap();
        invariant.see(&members((1, 3), &[7, 8], &nobody)).unwrap();
        assert!(invariant.see(&members((2, 6), &[7, 8], &nobody)).is_err());
    }

    #[test]
    fn a_removed_member_that_leads_a_later_term_is_found() {
        let mut invariant = RemovedMembersStayOut::default();
        let gone = BTreeSet::from([7]);
        let follows = |term| Sight::Status {
            member: 1,
            term,
            leader: Some(7),
            revision: 1,
        };
        invariant.see(&follows(2)).unwrap();
        invariant.see(&members((2, 5), &[8], &gone)).unwrap();
        invariant.see(&follows(2)).unwrap();
        assert!(invariant.see(&follows(3)).is_err());
    }
}
