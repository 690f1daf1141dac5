//! Which members agree on what their data is. Pure.
//!
//! Hashes are compared only when they were computed behind the same compaction: members compact
//! at slightly different times, and that is no fault.

use super::dial::ToldHash;
use crate::error::{Error, Result};
use crate::manifest::SourceHash;

/// One member's answer to HashKV at a revision all were asked for.
pub(super) struct Answer {
    pub(super) endpoint: String,
    pub(super) told: Result<ToldHash>,
}

/// The outcome: everybody but these may be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) divergent: Vec<String>,
}

/// Names the members whose hash differs from that of more members. With no majority either way
/// nobody can be trusted.
pub(super) fn choose(answers: &[Answer]) -> Result<Choice> {
    let mut divergent = Vec::new();
    for (compact_revision, members) in by_compaction(answers) {
        let groups = by_hash(&members);
        let largest = groups
            .iter()
            .map(|(_, names)| names.len())
            .max()
            .unwrap_or(0);
        let leading = groups
            .iter()
            .filter(|(_, names)| names.len() == largest)
            .count();
        if groups.len() > 1 && leading > 1 {
            let reasons = groups.iter().map(|(hash, names)| {
                format!(
                    "{} say HashKV {hash} behind compaction {compact_revision}",
                    names.join(", ")
                )
            });
            return Err(Error::NoUsableMember {
                reasons: reasons.collect(),
            });
        }
        divergent.extend(
            groups
                .into_iter()
                .filter(|(_, names)| names.len() < largest)
                .flat_map(|(_, names)| names),
        );
    }
    divergent.sort();
    Ok(Choice { divergent })
}

/// What the members together say about `revision`.
pub(super) fn told(answers: &[Answer], revision: i64) -> SourceHash {
    let divergent = match choose(answers) {
        Ok(choice) => choice.divergent,
        Err(error) => {
            return SourceHash::Unavailable {
                reason: error.to_string(),
            };
        }
    };
    let largest = by_compaction(answers)
        .into_iter()
        .max_by_key(|(compacted, members)| {
            let sound = members
                .iter()
                .filter(|(name, _)| !divergent.contains(name))
                .count();
            (sound, *compacted)
        });
    let Some((compact_revision, members)) = largest else {
        let reasons: Vec<String> = answers
            .iter()
            .filter_map(|answer| answer.told.as_ref().err())
            .map(ToString::to_string)
            .collect();
        return SourceHash::Unavailable {
            reason: reasons.join("; "),
        };
    };
    let sound: Vec<_> = members
        .into_iter()
        .filter(|(name, _)| !divergent.contains(name))
        .collect();
    let Some((_, first)) = sound.first() else {
        return SourceHash::Unavailable {
            reason: "no member could tell".to_owned(),
        };
    };
    // etcd 3.4 and 3.5 do not send the revision hashed.
    let revision = if first.hash_revision == 0 {
        revision
    } else {
        first.hash_revision
    };
    SourceHash::Told {
        hash: first.hash,
        revision,
        compact_revision,
        members: sound.into_iter().map(|(name, _)| name).collect(),
        divergent,
    }
}

type Named = (String, ToldHash);

fn by_compaction(answers: &[Answer]) -> Vec<(i64, Vec<Named>)> {
    let mut groups: Vec<(i64, Vec<Named>)> = Vec::new();
    for answer in answers {
        let Ok(told) = &answer.told else { continue };
        let named = (answer.endpoint.clone(), *told);
        match groups
            .iter_mut()
            .find(|(revision, _)| *revision == told.compact_revision)
        {
            Some((_, members)) => members.push(named),
            None => groups.push((told.compact_revision, vec![named])),
        }
    }
    groups
}

fn by_hash(members: &[Named]) -> Vec<(u32, Vec<String>)> {
    let mut groups: Vec<(u32, Vec<String>)> = Vec::new();
    for (name, told) in members {
        match groups.iter_mut().find(|(hash, _)| *hash == told.hash) {
            Some((_, names)) => names.push(name.clone()),
            None => groups.push((told.hash, vec![name.clone()])),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(endpoint: &str, hash: u32, compact_revision: i64) -> Answer {
        let told = ToldHash {
            hash,
            compact_revision,
            hash_revision: 9,
        };
        Answer {
            endpoint: endpoint.to_owned(),
            told: Ok(told),
        }
    }

    fn silent(endpoint: &str) -> Answer {
        let told = Err(Error::Source {
            endpoint: endpoint.to_owned(),
            reason: "x".to_owned(),
        });
        Answer {
            endpoint: endpoint.to_owned(),
            told,
        }
    }

    #[test]
    fn the_member_that_differs_from_the_majority_is_named() {
        let choice = choose(&[says("a", 1, 5), says("b", 2, 5), says("c", 1, 5)]).unwrap();
        assert_eq!(choice.divergent, ["b"]);
    }

    #[test]
    fn two_members_that_disagree_are_both_refused_and_named() {
        let refused = choose(&[says("a", 1, 5), says("b", 2, 5)])
            .unwrap_err()
            .to_string();
        assert!(refused.contains('a') && refused.contains('b'), "{refused}");
    }

    #[test]
    fn hashes_behind_different_compactions_are_not_compared() {
        let answers = [
            says("a", 1, 5),
            says("b", 2, 7),
            says("c", 2, 7),
            silent("d"),
        ];
        assert_eq!(choose(&answers).unwrap().divergent, [""; 0]);
        let SourceHash::Told { hash, members, .. } = told(&answers, 9) else {
            panic!()
        };
        assert_eq!((hash, members), (2, vec!["b".to_owned(), "c".to_owned()]));
    }

    #[test]
    fn nobody_who_can_tell_is_said_and_not_taken_for_agreement() {
        assert!(matches!(
            told(&[silent("a")], 9),
            SourceHash::Unavailable { .. }
        ));
        assert!(matches!(told(&[], 9), SourceHash::Unavailable { .. }));
        let split = [says("a", 1, 5), says("b", 2, 5)];
        assert!(matches!(told(&split, 9), SourceHash::Unavailable { .. }));
    }
}
