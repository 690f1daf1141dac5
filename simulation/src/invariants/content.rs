//! What a member holds in the end follows from all that changed.

use std::collections::BTreeMap;

use holdfast_proto::etcd::kv;

use super::{Invariant, Sight};

/// The keys of a member at rest are those that the changes leave, whatever was compacted, copied
/// to it, or rewritten meanwhile.
#[derive(Debug, Default)]
pub struct ContentFollowsFromChanges {
    changes: BTreeMap<i64, Vec<kv::Event>>,
}

impl ContentFollowsFromChanges {
    fn left(&self) -> BTreeMap<&[u8], &kv::KeyValue> {
        let mut left: BTreeMap<&[u8], &kv::KeyValue> = BTreeMap::new();
        for event in self.changes.values().flatten() {
            let Some(pair) = &event.kv else { continue };
            if event.r#type() == kv::event::EventType::Put {
                left.insert(&pair.key, pair);
            } else {
                left.remove(&*pair.key);
            }
        }
        left
    }
}

impl Invariant for ContentFollowsFromChanges {
    fn name(&self) -> &'static str {
        "content follows from changes"
    }

    fn see(&mut self, sight: &Sight<'_>) -> Result<(), String> {
        match sight {
            Sight::Published {
                revision, events, ..
            } => {
                let changes = self.changes.entry(*revision);
                changes.or_insert_with(|| events.to_vec());
                Ok(())
            }
            Sight::Content { member, pairs } => {
                let left = self.left();
                if pairs.iter().eq(left.values().copied()) {
                    return Ok(());
                }
                let wrong = pairs.iter().find(|pair| left.get(&*pair.key) != Some(pair));
                Err(format!(
                    "member {member} holds {} keys, the changes leave {}; the first difference: \
                     {wrong:?}",
                    pairs.len(),
                    left.len()
                ))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(key: &'static str, revision: i64) -> kv::KeyValue {
        kv::KeyValue {
            key: key.into(),
            mod_revision: revision,
            ..kv::KeyValue::default()
        }
    }

    fn event(kind: kv::event::EventType, pair: kv::KeyValue) -> kv::Event {
        kv::Event {
            r#type: kind.into(),
            kv: Some(pair),
            ..kv::Event::default()
        }
    }

    #[test]
    fn a_key_that_is_lost_kept_or_changed_is_found() {
        use kv::event::EventType::{Delete, Put};
        let mut invariant = ContentFollowsFromChanges::default();
        let happened = [
            event(Put, pair("a", 2)),
            event(Put, pair("b", 3)),
            event(Delete, pair("a", 4)),
            event(Put, pair("c", 5)),
        ];
        for (revision, event) in (2..).zip(&happened) {
            let events = std::slice::from_ref(event);
            let published = Sight::Published {
                member: 0,
                revision,
                events,
            };
            invariant.see(&published).unwrap();
        }
        let mut holds =
            |pairs: &[kv::KeyValue]| invariant.see(&Sight::Content { member: 1, pairs });
        holds(&[pair("b", 3), pair("c", 5)]).unwrap();
        assert!(holds(&[pair("b", 3)]).is_err());
        assert!(holds(&[pair("a", 2), pair("b", 3), pair("c", 5)]).is_err());
        assert!(holds(&[pair("b", 3), pair("c", 4)]).is_err());
    }
}
