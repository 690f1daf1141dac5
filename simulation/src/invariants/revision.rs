//! A member's revision never goes back.

use std::collections::BTreeMap;

use super::{Invariant, Place, Sight};

#[derive(Debug, Default)]
struct Known {
    /// The last revision seen since its start.
    running: i64,
    /// The revision in its durable state.
    durable: i64,
    /// The newest revision it told a client.
    acknowledged: i64,
    /// The same, when it started.
    acknowledged_before: i64,
}

/// While a member runs its revision grows. After a crash it begins at what was durable, at least,
/// and is not ready before it has everything it ever acknowledged.
#[derive(Debug, Default)]
pub struct RevisionsNeverGoBack {
    members: BTreeMap<Place, Known>,
}

impl Invariant for RevisionsNeverGoBack {
    fn name(&self) -> &'static str {
        "revisions never go back"
    }

    fn see(&mut self, sight: &Sight<'_>) -> Result<(), String> {
        match *sight {
            Sight::Emptied { member } => {
                self.members.remove(&member);
                Ok(())
            }
            Sight::Started { member, revision } => {
                let known = self.members.entry(member).or_default();
                known.running = revision;
                known.acknowledged_before = known.acknowledged;
                at_least(member, "starts", revision, known.durable, "made durable")
            }
            Sight::Ready { member, revision } => {
                let known = self.members.entry(member).or_default();
                let before = known.acknowledged_before;
                at_least(member, "is ready", revision, before, "acknowledged")
            }
            Sight::Checkpointed { member, revision } => {
                let known = self.members.entry(member).or_default();
                let before = std::mem::replace(&mut known.durable, revision);
                at_least(member, "is durable", revision, before, "made durable")
            }
            Sight::Status {
                member, revision, ..
            } => {
                let known = self.members.entry(member).or_default();
                let before = std::mem::replace(&mut known.running, revision);
                at_least(member, "is", revision, before, "at")
            }
            Sight::Acknowledged {
                member, revision, ..
            } => {
                let known = self.members.entry(member).or_default();
                known.acknowledged = known.acknowledged.max(revision);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn at_least(
    member: Place,
    what: &str,
    revision: i64,
    before: i64,
    was: &str,
) -> Result<(), String> {
    if revision >= before {
        return Ok(());
    }
    Err(format!(
        "member {member} {what} at revision {revision} after it was {was} {before}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(revision: i64) -> Sight<'static> {
        Sight::Status {
            member: 1,
            term: 1,
            leader: None,
            revision,
        }
    }

    fn started(revision: i64) -> Sight<'static> {
        Sight::Started {
            member: 1,
            revision,
        }
    }

    #[test]
    fn a_running_member_that_goes_back_is_found() {
        let mut invariant = RevisionsNeverGoBack::default();
        invariant.see(&status(5)).unwrap();
        invariant.see(&status(5)).unwrap();
        assert!(invariant.see(&status(4)).is_err());
    }

    #[test]
    fn a_crash_may_lose_what_was_not_durable_and_no_more() {
        let mut invariant = RevisionsNeverGoBack::default();
        let durable = Sight::Checkpointed {
            member: 1,
            revision: 3,
        };
        invariant.see(&durable).unwrap();
        invariant.see(&status(5)).unwrap();
        invariant.see(&started(3)).unwrap();
        assert!(invariant.see(&started(2)).is_err());
    }

    #[test]
    fn another_member_on_the_host_of_a_removed_one_begins_at_nothing() {
        let mut invariant = RevisionsNeverGoBack::default();
        invariant.see(&status(5)).unwrap();
        invariant.see(&Sight::Emptied { member: 1 }).unwrap();
        invariant.see(&started(1)).unwrap();
        invariant.see(&status(1)).unwrap();
    }

    #[test]
    fn a_member_is_not_ready_without_what_it_acknowledged() {
        let mut invariant = RevisionsNeverGoBack::default();
        let acknowledged = Sight::Acknowledged {
            member: 1,
            revision: 5,
            changes: &[],
        };
        let ready = |revision| Sight::Ready {
            member: 1,
            revision,
        };
        invariant.see(&acknowledged).unwrap();
        invariant.see(&started(3)).unwrap();
        invariant.see(&ready(5)).unwrap();
        assert!(invariant.see(&ready(4)).is_err());
    }
}
