//! No lease expires before its time.

use std::collections::BTreeMap;

use super::{Invariant, Sight};
use crate::history::Nanos;

#[derive(Debug, Default)]
struct Known {
    /// When the last grant or renewal that was answered had been asked for, and for how long.
    renewed: Option<(Nanos, Nanos)>,
    revoked: Option<Nanos>,
}

/// A lease that nobody revoked lives as long as the client was told, from when the client asked.
#[derive(Debug, Default)]
pub struct NoLeaseExpiresEarly {
    leases: BTreeMap<i64, Known>,
}

impl Invariant for NoLeaseExpiresEarly {
    fn name(&self) -> &'static str {
        "no lease expires early"
    }

    fn see(&mut self, sight: &Sight<'_>) -> Result<(), String> {
        let (lease, known) = match *sight {
            Sight::Renewed { lease, asked, ttl } => {
                let known = self.leases.entry(lease).or_default();
                known.renewed = known.renewed.max(Some((asked, ttl)));
                (lease, known)
            }
            Sight::Revoked { lease, at, .. } => {
                let known = self.leases.entry(lease).or_default();
                // Other members, and this one after a restart, come to it later.
                known.revoked.get_or_insert(at);
                (lease, known)
            }
            _ => return Ok(()),
        };
        let (Some((asked, ttl)), Some(revoked)) = (known.renewed, known.revoked) else {
            return Ok(());
        };
        let due = asked.saturating_add(ttl);
        if revoked >= due {
            return Ok(());
        }
        Err(format!(
            "lease {lease:x} asked for at {asked} for {ttl} ns, was gone at {revoked}, {} ns early",
            due - revoked
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renewed(asked: Nanos) -> Sight<'static> {
        Sight::Renewed {
            lease: 1,
            asked,
            ttl: 10,
        }
    }

    fn revoked(at: Nanos) -> Sight<'static> {
        Sight::Revoked {
            member: 0,
            lease: 1,
            at,
        }
    }

    #[test]
    fn a_lease_that_runs_out_early_is_found() {
        let mut invariant = NoLeaseExpiresEarly::default();
        invariant.see(&renewed(5)).unwrap();
        assert!(invariant.see(&revoked(14)).is_err());
    }

    #[test]
    fn a_renewal_that_is_answered_counts_from_when_it_was_asked_for() {
        let mut invariant = NoLeaseExpiresEarly::default();
        invariant.see(&renewed(5)).unwrap();
        invariant.see(&revoked(15)).unwrap();
        assert!(
            invariant.see(&renewed(7)).is_err(),
            "answered, and yet gone"
        );
    }

    #[test]
    fn a_lease_that_nobody_holds_may_go() {
        let mut invariant = NoLeaseExpiresEarly::default();
        invariant.see(&revoked(1)).unwrap();
    }
}
