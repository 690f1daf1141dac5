//! Which changes between backups are let go: those that no retained backup can be followed by.

use std::collections::BTreeMap;

use crate::Generation;

/// What the rule needs to know of a delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaFact {
    /// Its run.
    pub generation: Generation,
    /// Its place in it.
    pub number: u64,
    /// The newest revision in it.
    pub to: i64,
}

/// Through which number the deltas of each generation are let go. `retained`: generation and
/// revision of every backup that stays, damaged ones included. Pure.
///
/// Whatever can still be replayed onto a retained backup stays, and so does the newest delta of the
/// newest generation, which the next one will name.
pub fn released_deltas(
    retained: &[(Generation, i64)],
    deltas: &[DeltaFact],
) -> BTreeMap<Generation, u64> {
    let newest = deltas.iter().map(|one| (one.generation, one.number)).max();
    let oldest = |generation: Generation| {
        let own = retained.iter().filter(|(of, _)| *of == generation);
        own.map(|(_, revision)| *revision).min()
    };
    let mut in_order: Vec<&DeltaFact> = deltas.iter().collect();
    in_order.sort_by_key(|one| (one.generation, one.number));
    let mut through: BTreeMap<Generation, u64> = BTreeMap::new();
    let mut kept = None;
    for one in in_order {
        let is_needed = oldest(one.generation).is_some_and(|revision| one.to > revision);
        if is_needed || Some((one.generation, one.number)) == newest {
            kept = Some(one.generation);
        }
        // Nothing behind one that stays is let go: a run is cut at its beginning only.
        if kept != Some(one.generation) {
            through.insert(one.generation, one.number);
        }
    }
    through
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(generation: u64, tos: &[i64]) -> Vec<DeltaFact> {
        let fact = |(number, to): (u64, &i64)| DeltaFact {
            generation: Generation(generation),
            number,
            to: *to,
        };
        (1..).zip(tos).map(fact).collect()
    }

    fn released(retained: &[(u64, i64)], deltas: &[DeltaFact]) -> Vec<(u64, u64)> {
        let retained: Vec<(Generation, i64)> = retained
            .iter()
            .map(|(generation, revision)| (Generation(*generation), *revision))
            .collect();
        let found = released_deltas(&retained, deltas);
        found
            .into_iter()
            .map(|(of, number)| (of.0, number))
            .collect()
    }

    #[test]
    fn deltas_up_to_the_oldest_retained_backup_go_and_all_others_stay() {
        let deltas = run(1, &[10, 20, 20, 30, 40]);
        assert_eq!(released(&[(1, 5), (1, 20)], &deltas), []);
        assert_eq!(released(&[(1, 20), (1, 35)], &deltas), [(1, 3)]);
        assert_eq!(released(&[(1, 29)], &deltas), [(1, 3)]);
    }

    #[test]
    fn a_generation_without_a_backup_goes_whole_and_the_newest_delta_never() {
        let deltas = [run(1, &[10, 20]), run(2, &[30, 40])].concat();
        assert_eq!(released(&[(2, 25)], &deltas), [(1, 2)]);
        assert_eq!(released(&[], &deltas), [(1, 2), (2, 1)]);
        assert_eq!(released(&[(2, 40)], &deltas), [(1, 2), (2, 1)]);
        assert_eq!(released(&[(1, 1)], &[]), []);
    }

    #[test]
    fn backups_of_another_generation_hold_no_delta_back() {
        let deltas = [run(1, &[10, 20]), run(2, &[15, 25])].concat();
        assert_eq!(released(&[(1, 10), (2, 15)], &deltas), [(1, 1), (2, 1)]);
    }
}
