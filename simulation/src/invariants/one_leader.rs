//! A term has one leader.

use std::collections::BTreeMap;

use super::{Invariant, Place, Sight};

/// All members that know a leader of a term know the same one.
#[derive(Debug, Default)]
pub struct OneLeaderATerm {
    leaders: BTreeMap<u64, (u64, Place)>,
}

impl Invariant for OneLeaderATerm {
    fn name(&self) -> &'static str {
        "one leader a term"
    }

    fn see(&mut self, sight: &Sight<'_>) -> Result<(), String> {
        let Sight::Status {
            member,
            term,
            leader: Some(leader),
            ..
        } = sight
        else {
            return Ok(());
        };
        let (known, first) = *self.leaders.entry(*term).or_insert((*leader, *member));
        if known == *leader {
            return Ok(());
        }
        Err(format!(
            "in term {term} member {member} follows {leader:x}, member {first} followed {known:x}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(member: Place, term: u64, leader: Option<u64>) -> Sight<'static> {
        Sight::Status {
            member,
            term,
            leader,
            revision: 1,
        }
    }

    #[test]
    fn two_leaders_of_one_term_are_found() {
        let mut invariant = OneLeaderATerm::default();
        invariant.see(&status(0, 1, Some(7))).unwrap();
        invariant.see(&status(1, 1, Some(7))).unwrap();
        invariant.see(&status(1, 2, None)).unwrap();
        invariant.see(&status(1, 2, Some(8))).unwrap();
        assert!(invariant.see(&status(2, 1, Some(8))).is_err());
    }
}
