//! What every point is told.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::Point;
use super::term::{Action, Terms};

/// Why a point cannot be set, cleared or asked about; the texts are gofail's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("failpoint: failpoint does not exist")]
    Unknown,
    #[error("failpoint: failpoint is disabled")]
    Disabled,
    #[error("failpoint: could not parse terms")]
    BadTerms,
}

/// The terms of all points.
#[derive(Debug)]
pub(super) struct Table {
    /// How many points have any: looked at first, and without the lock.
    armed: AtomicUsize,
    slots: Mutex<BTreeMap<&'static str, Option<Terms>>>,
}

impl Table {
    pub(super) fn new() -> Self {
        let slots = Point::NAMES.iter().map(|name| (*name, None));
        Self {
            armed: AtomicUsize::new(0),
            slots: Mutex::new(slots.collect()),
        }
    }

    /// Whether any point is told anything.
    pub(super) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed) > 0
    }

    pub(super) fn set(&self, name: &str, terms: &str) -> Result<(), Refusal> {
        let mut slots = self.slots.lock();
        let slot = slots.get_mut(name).ok_or(Refusal::Unknown)?;
        *slot = Some(Terms::parse(terms).or(Err(Refusal::BadTerms))?);
        self.count(&slots);
        Ok(())
    }

    pub(super) fn clear(&self, name: &str) -> Result<(), Refusal> {
        let mut slots = self.slots.lock();
        let slot = slots.get_mut(name).ok_or(Refusal::Unknown)?;
        slot.take().ok_or(Refusal::Disabled)?;
        self.count(&slots);
        Ok(())
    }

    fn count(&self, slots: &BTreeMap<&'static str, Option<Terms>>) {
        let armed = slots.values().flatten().count();
        self.armed.store(armed, Ordering::Relaxed);
    }

    /// The terms of a point as they were given, and how often they did something.
    pub(super) fn status(&self, name: &str) -> Result<(String, u64), Refusal> {
        let slots = self.slots.lock();
        let terms = slots.get(name).ok_or(Refusal::Unknown)?;
        let terms = terms.as_ref().ok_or(Refusal::Disabled)?;
        Ok((terms.text().to_owned(), terms.taken()))
    }

    /// All points in order of their names, with their terms.
    pub(super) fn list(&self) -> Vec<(&'static str, String)> {
        let slots = self.slots.lock();
        let text = |terms: &Option<Terms>| terms.as_ref().map_or("", Terms::text).to_owned();
        slots
            .iter()
            .map(|(name, terms)| (*name, text(terms)))
            .collect()
    }

    /// What happens at a point now. The lock is not held while it happens.
    pub(super) fn take(&self, point: Point) -> Option<Action> {
        if !self.is_armed() {
            return None;
        }
        let mut slots = self.slots.lock();
        let terms = slots.get_mut(point.name())?.as_mut()?;
        terms.take(rand::random::<f64>)
    }
}

/// Several points as `GOFAIL_FAILPOINTS` has them: `a=panic;b=sleep(100)`.
pub(super) fn parse_many(text: &str) -> Result<Vec<(&str, &str)>, String> {
    let parts = text.split(';').filter(|part| !part.is_empty());
    parts
        .map(|part| match part.split_once('=') {
            Some((name, terms)) if !terms.contains('=') => Ok((name, terms)),
            _ => Err(format!("bad failpoint {part:?}")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_does_what_it_is_told_until_it_is_told_nothing() {
        let table = Table::new();
        assert_eq!(table.take(Point::BeforeCommit), None);
        table.set("beforeCommit", "1*print->off").unwrap();
        assert_eq!(table.take(Point::BeforeCommit), Some(Action::Print));
        assert_eq!(table.take(Point::AfterCommit), None);
        assert_eq!(table.take(Point::BeforeCommit), Some(Action::Off));
        assert_eq!(
            table.status("beforeCommit"),
            Ok(("1*print->off".to_owned(), 2))
        );
        table.clear("beforeCommit").unwrap();
        assert!(!table.is_armed());
        assert_eq!(table.clear("beforeCommit"), Err(Refusal::Disabled));
        assert_eq!(table.status("beforeCommit"), Err(Refusal::Disabled));
    }

    #[test]
    fn an_unknown_point_and_bad_terms_are_refused_and_change_nothing() {
        let table = Table::new();
        table.set("afterCommit", "off").unwrap();
        assert_eq!(table.set("nowhere", "panic"), Err(Refusal::Unknown));
        assert_eq!(table.set("afterCommit", "jump"), Err(Refusal::BadTerms));
        assert_eq!(table.status("afterCommit"), Ok(("off".to_owned(), 0)));
    }

    #[test]
    fn names_are_unique_and_several_points_come_in_one_text() {
        assert_eq!(Table::new().list().len(), Point::NAMES.len());
        let many = parse_many("a=panic;;b=sleep(100)").unwrap();
        assert_eq!(many, [("a", "panic"), ("b", "sleep(100)")]);
        assert!(parse_many("a").is_err());
        assert!(parse_many("a=b=c").is_err());
    }
}
