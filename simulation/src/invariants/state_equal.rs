//! Members that have applied the same log hold the same state.

use std::collections::BTreeMap;

use holdfast_proto::etcd::kv;

use super::{Invariant, Place, Sight};

/// The state at a log position, and the changes of a revision, are the same on every member and
/// after every restart.
#[derive(Debug, Default)]
pub struct StatesAreEqual {
    states: BTreeMap<u64, (Place, String)>,
    revisions: BTreeMap<i64, (Place, Vec<kv::Event>)>,
}

impl Invariant for StatesAreEqual {
    fn name(&self) -> &'static str {
        "states are equal at equal log positions"
    }

    fn see(&mut self, sight: &Sight<'_>) -> Result<(), String> {
        match sight {
            Sight::State {
                member,
                applied,
                content,
            } => {
                let own = || (*member, (*content).to_owned());
                let (first, known) = self.states.entry(*applied).or_insert_with(own);
                if known == content {
                    return Ok(());
                }
                Err(format!(
                    "at log index {applied} member {member} holds {content}, member {first} held \
                     {known}"
                ))
            }
            Sight::Published {
                member,
                revision,
                events,
            } => {
                let (first, known) = self
                    .revisions
                    .entry(*revision)
                    .or_insert_with(|| (*member, events.to_vec()));
                if known.as_slice() == *events {
                    return Ok(());
                }
                Err(format!(
                    "revision {revision} is {events:?} on member {member}, was {known:?} on member \
                     {first}"
                ))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(member: Place, applied: u64, content: &str) -> Sight<'_> {
        Sight::State {
            member,
            applied,
            content,
        }
    }

    #[test]
    fn another_state_at_the_same_position_is_found() {
        let mut invariant = StatesAreEqual::default();
        invariant.see(&state(0, 5, "1")).unwrap();
        invariant.see(&state(1, 6, "2")).unwrap();
        invariant.see(&state(1, 5, "1")).unwrap();
        assert!(invariant.see(&state(2, 6, "1")).is_err());
    }

    #[test]
    fn another_change_at_the_same_revision_is_found() {
        let mut invariant = StatesAreEqual::default();
        let put = |value: &'static str| {
            let pair = kv::KeyValue {
                key: "a".into(),
                value: value.into(),
                ..kv::KeyValue::default()
            };
            [kv::Event {
                kv: Some(pair),
                ..kv::Event::default()
            }]
        };
        let published = |invariant: &mut StatesAreEqual, member, events: &[kv::Event]| {
            invariant.see(&Sight::Published {
                member,
                revision: 2,
                events,
            })
        };
        published(&mut invariant, 0, &put("1")).unwrap();
        published(&mut invariant, 1, &put("1")).unwrap();
        assert!(published(&mut invariant, 2, &put("2")).is_err());
    }
}
