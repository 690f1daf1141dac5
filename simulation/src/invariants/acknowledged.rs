//! A write that a client was told of is there in the end, on every member.

use std::collections::BTreeMap;

use holdfast_proto::etcd::kv;

use super::{Invariant, Sight};

/// What one revision wrote: keys, and values unless removed.
type Changes = Vec<(String, Option<String>)>;

/// Every acknowledged write stands at its revision in the history of every member, as far back as
/// that is kept; before that it was published there.
#[derive(Debug, Default)]
pub struct AcknowledgedWritesSurvive {
    acknowledged: BTreeMap<i64, Changes>,
    published: BTreeMap<i64, Changes>,
}

impl Invariant for AcknowledgedWritesSurvive {
    fn name(&self) -> &'static str {
        "acknowledged writes survive"
    }

    fn see(&mut self, sight: &Sight<'_>) -> Result<(), String> {
        match sight {
            Sight::Acknowledged {
                revision, changes, ..
            } => {
                let known = self.acknowledged.insert(*revision, changes.to_vec());
                match known {
                    Some(known) => Err(format!(
                        "revision {revision} was acknowledged as {changes:?} and as {known:?}"
                    )),
                    None => Ok(()),
                }
            }
            Sight::Published {
                revision, events, ..
            } => {
                let changes = events.iter();
                let changes = changes.filter_map(|event| Some(change(event, event.kv.as_ref()?)));
                self.published.insert(*revision, changes.collect());
                Ok(())
            }
            Sight::Finished {
                member,
                from,
                events,
            } => {
                let mut held: BTreeMap<i64, Changes> = self.published.clone();
                drop(held.split_off(from));
                for event in *events {
                    let Some(pair) = &event.kv else { continue };
                    held.entry(pair.mod_revision)
                        .or_default()
                        .push(change(event, pair));
                }
                for (revision, changes) in &self.acknowledged {
                    if held.get(revision) != Some(changes) {
                        return Err(format!(
                            "revision {revision} was acknowledged as {changes:?}; member {member} \
                             holds {:?}",
                            held.get(revision)
                        ));
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn change(event: &kv::Event, pair: &kv::KeyValue) -> (String, Option<String>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let is_put = event.r#type() == kv::event::EventType::Put;
    (text(&pair.key), is_put.then(|| text(&pair.value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &'static str, value: &'static str, revision: i64) -> kv::Event {
        let pair = kv::KeyValue {
            key: key.into(),
            value: value.into(),
            mod_revision: revision,
            ..kv::KeyValue::default()
        };
        kv::Event {
            kv: Some(pair),
            ..kv::Event::default()
        }
    }

    fn acknowledged(changes: &[(String, Option<String>)]) -> Sight<'_> {
        Sight::Acknowledged {
            member: 0,
            revision: 3,
            changes,
        }
    }

    #[test]
    fn a_lost_or_changed_write_is_found() {
        let changes = [("a".to_owned(), Some("1".to_owned()))];
        let mut invariant = AcknowledgedWritesSurvive::default();
        invariant.see(&acknowledged(&changes)).unwrap();
        let whole = [put("b", "0", 2), put("a", "1", 3), put("b", "2", 4)];
        let finished = |from, events| Sight::Finished {
            member: 1,
            from,
            events,
        };
        invariant.see(&finished(2, whole.as_slice())).unwrap();
        assert!(invariant.see(&finished(2, &whole[..1])).is_err());
        let other = [put("a", "2", 3)];
        assert!(invariant.see(&finished(2, other.as_slice())).is_err());
        assert!(
            invariant.see(&finished(4, &whole[2..])).is_err(),
            "nobody published it before it was compacted"
        );
        let published = Sight::Published {
            member: 0,
            revision: 3,
            events: &whole[1..2],
        };
        invariant.see(&published).unwrap();
        invariant.see(&finished(4, &whole[2..])).unwrap();
    }

    #[test]
    fn two_writes_at_one_revision_are_found() {
        let changes = [("a".to_owned(), Some("1".to_owned()))];
        let mut invariant = AcknowledgedWritesSurvive::default();
        invariant.see(&acknowledged(&changes)).unwrap();
        assert!(invariant.see(&acknowledged(&changes)).is_err());
    }
}
