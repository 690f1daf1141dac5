//! Random histories against a naive oracle: no plan leads where nothing leads, and none is refused
//! that somebody with patience would find.

use std::collections::{BTreeMap, BTreeSet};

use chrono::TimeDelta;
use holdfast_policies::Generation;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::tests::{at, backup, catalog, options};
use super::*;
use crate::delta::run::{Runs, chain};
use crate::delta::{Delta, Head, Predecessor};
use crate::flaw::FlawKind;
use crate::manifest::SourceHash;
use crate::part::PartRecord;
use crate::seal::Encryption;

const HISTORIES: u64 = 600;

/// A vault's history as it is, whole and broken.
struct Story {
    catalog: Catalog,
    /// Deltas that are there and can be read.
    places: BTreeMap<(Generation, u64), Head>,
    released: BTreeMap<Generation, u64>,
    /// Deltas whose predecessor is not the one that is there.
    unlinked: BTreeSet<(Generation, u64)>,
    highest: i64,
    last: DateTime<Utc>,
}

fn head(generation: Generation, number: u64, (from, to): (i64, i64), begun: DateTime<Utc>) -> Head {
    let like = backup(1, 1, Level::L2).manifest;
    let predecessor = match number {
        1 => Predecessor::Snapshot(like.link(Digest::of(b"base"))),
        _ => Predecessor::Delta(digest(generation, number - 1)),
    };
    let nothing = Digest::of(b"");
    let record = Delta {
        cluster: like.cluster,
        generation,
        number,
        predecessor,
        from,
        to,
        events: u64::try_from(to - from).unwrap(),
        started: begun,
        finished: begun + TimeDelta::seconds(10),
        source: like.source,
        source_hash: SourceHash::Unavailable {
            reason: "not asked".to_owned(),
        },
        encryption: Encryption::None,
        part: PartRecord {
            plain_bytes: 10,
            plain_digest: nothing,
            stored_bytes: 10,
            stored_digest: nothing,
        },
        writer: "test".to_owned(),
    };
    Head {
        record,
        digest: digest(generation, number),
        bytes: 1,
    }
}

fn digest(generation: Generation, number: u64) -> Digest {
    Digest::of(format!("{generation}/{number}").as_bytes())
}

impl Story {
    /// Generations of backups and deltas, in which things were let go, lost and damaged.
    fn random(random: &mut StdRng) -> Self {
        let (mut backups, mut places, mut released) =
            (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let (mut unlinked, mut sequence, mut revision) = (BTreeSet::new(), 0, 10);
        let mut clock = at(0);
        for generation in 1..=random.random_range(1..4_u64) {
            let generation = Generation(generation);
            // Another history counts anew.
            if random.random_bool(0.2) {
                revision = 5;
            }
            let mut take = |revision, clock: DateTime<Utc>| {
                sequence += 1;
                let mut one = backup(sequence, revision, Level::L2);
                (one.manifest.generation, one.manifest.started) = (generation, clock);
                backups.push(one);
            };
            take(revision, clock);
            for number in 1..=random.random_range(0..12_u64) {
                let to = revision + random.random_range(0..4_i64);
                if random.random_bool(0.2) {
                    take(random.random_range(revision..=to), clock);
                }
                let head = head(generation, number, (revision, to), clock);
                places.insert((generation, number), head);
                clock += TimeDelta::seconds(10);
                revision = to;
            }
            revision += random.random_range(0..3_i64);
            clock += TimeDelta::seconds(random.random_range(0..60));
            if random.random_bool(0.3) {
                released.insert(generation, random.random_range(1..5_u64));
            }
        }
        for (place, head) in &mut places {
            if place.1 > 1 && random.random_bool(0.05) {
                head.record.predecessor = Predecessor::Delta(Digest::of(b"another"));
                unlinked.insert(*place);
            }
        }
        let highest = places.values().map(|head| head.record.to).max();
        places.retain(|_, _| random.random_bool(0.9));
        backups.retain(|_| random.random_bool(0.8));
        for one in &mut backups {
            if random.random_bool(0.1) {
                let flaw = Flaw::new(FlawKind::PartMissing, "part", "gone");
                one.flaws.push(flaw);
            }
        }
        Self {
            catalog: catalog(backups, 0),
            places,
            released,
            unlinked,
            highest: highest.unwrap_or(revision).max(revision) + 2,
            last: clock,
        }
    }

    fn runs(&self) -> Runs {
        let mut places = self.places.clone();
        places.retain(|(of, number), _| *number > self.gone(*of));
        chain(&self.catalog, places, &self.released, Vec::new())
    }

    fn gone(&self, generation: Generation) -> u64 {
        self.released.get(&generation).copied().unwrap_or(0)
    }

    fn delta(&self, generation: Generation, number: u64) -> Option<&Delta> {
        let head = self.places.get(&(generation, number));
        let head = head.filter(|_| number > self.gone(generation));
        head.map(|head| &head.record)
    }

    /// Every revision that leads on from a backup, one delta at a time.
    fn reachable(&self, backup: &Backup) -> BTreeSet<i64> {
        let manifest = &backup.manifest;
        let (generation, own) = (manifest.generation, manifest.content.revision);
        let mut reached = BTreeSet::from([own]);
        let begins = |number: &u64| {
            let delta = self.delta(generation, *number);
            delta.is_some_and(|delta| delta.from <= own && own < delta.to)
        };
        let Some(mut number) = (1..20).find(begins) else {
            return reached;
        };
        while let Some(delta) = self.delta(generation, number) {
            reached.extend(delta.from.max(own)..=delta.to);
            number += 1;
            if self.unlinked.contains(&(generation, number)) {
                break;
            }
        }
        reached
    }

    fn all_reachable(&self) -> BTreeSet<i64> {
        let sound = self.catalog.backups.iter().filter(|one| is_sound(one));
        sound.flat_map(|one| self.reachable(one)).collect()
    }

    /// Walks a plan: every delta is there, follows the one before, and the last one holds the end.
    fn check(&self, plan: &RestorePlan) {
        let base = self.catalog.get(plan.id).unwrap();
        assert!(is_sound(base));
        let own = base.manifest.content.revision;
        let Some(replay) = &plan.replay else {
            assert_eq!(plan.revision, own);
            return;
        };
        assert_eq!(replay.generation, base.manifest.generation);
        let mut reached = own;
        for number in replay.first..=replay.through() {
            let delta = self.delta(replay.generation, number).unwrap();
            assert!(delta.from <= reached && delta.to >= reached);
            let is_linked = !self.unlinked.contains(&(replay.generation, number));
            assert!(number == replay.first || is_linked);
            reached = delta.to;
        }
        assert!(reached >= plan.revision && plan.revision == replay.upto);
    }
}

impl std::fmt::Display for Story {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for one in &self.catalog.backups {
            let (of, at) = (one.manifest.generation, one.manifest.content.revision);
            write!(f, "backup {of} at {at} sound {}; ", is_sound(one))?;
        }
        for ((of, number), head) in &self.places {
            write!(
                f,
                "{of}/{number} {}..{}; ",
                head.record.from, head.record.to
            )?;
        }
        write!(
            f,
            "unlinked {:?}; released {:?}",
            self.unlinked, self.released
        )
    }
}

fn each(mut visit: impl FnMut(&Story, &Runs, &mut StdRng)) {
    for seed in 0..HISTORIES {
        let mut random = StdRng::seed_from_u64(seed);
        let story = Story::random(&mut random);
        let runs = story.runs();
        let caught = std::panic::AssertUnwindSafe(|| visit(&story, &runs, &mut random));
        if let Err(panic) = std::panic::catch_unwind(caught) {
            println!("seed {seed}: {story}\n{:?}", runs.flaws);
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn a_revision_is_planned_exactly_when_something_leads_to_it() {
    let (mut planned, mut refused) = (0, 0);
    each(|story, runs, _| {
        let reachable = story.all_reachable();
        for revision in 1..=story.highest {
            let upto = Upto::Revision(revision);
            match plan_replay(&story.catalog, runs, upto, &options()) {
                Ok(plan) => {
                    assert!(reachable.contains(&revision), "{revision} is not there");
                    assert_eq!(plan.revision, revision);
                    story.check(&plan);
                    planned += 1;
                }
                Err(Error::Unreachable { nearest, .. }) => {
                    assert!(!reachable.contains(&revision), "{revision} is there");
                    let before = reachable.range(..revision).next_back();
                    assert_eq!(nearest.as_ref(), before, "before {revision}");
                    refused += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
    });
    assert!(planned > 1000 && refused > 1000, "{planned} {refused}");
}

#[test]
fn the_newest_state_of_each_backup_is_as_far_as_anything_leads() {
    each(|story, runs, _| {
        for one in story.catalog.backups.iter().filter(|one| is_sound(one)) {
            let upto = Upto::Newest(Pick::Id(one.id()));
            let plan = plan_replay(&story.catalog, runs, upto, &options()).unwrap();
            let furthest = story.reachable(one).last().copied();
            assert_eq!(Some(plan.revision), furthest);
            story.check(&plan);
            let end = plan.revision;
            let ending = (1..20).filter_map(|n| story.delta(one.manifest.generation, n));
            let told = ending
                .filter(|delta| delta.to >= end)
                .map(|delta| delta.finished);
            let latest = told.chain([one.manifest.started]).max().unwrap();
            assert!(plan.until <= latest);
        }
    });
}

#[test]
fn a_time_is_answered_by_the_newest_state_known_by_then() {
    let mut found = [0; 4];
    each(|story, runs, random| {
        for _ in 0..20 {
            let span = (story.last - at(0)).num_seconds() + 30;
            let time = at(0) + TimeDelta::seconds(random.random_range(-10..span));
            let backups = || story.catalog.backups.iter().filter(|one| is_sound(one));
            let begun = |one: &&Backup| one.manifest.started <= time;
            let places = story.places.keys();
            let deltas = places.filter_map(|(of, number)| story.delta(*of, *number));
            let known: Vec<&Delta> = deltas.filter(|one| one.started <= time).collect();
            let last = known.iter().map(|one| (one.generation, one.number)).max();
            let covering = known.iter().find(|one| one.finished > time);
            match state_at(&story.catalog, runs, time) {
                Ok(Moment::Within(head)) => {
                    assert_eq!(covering.map(|one| one.number), Some(head.record.number));
                    found[0] += 1;
                }
                Ok(Moment::Point(generation, revision)) => {
                    assert!(covering.is_none());
                    let (of, number) = last.unwrap();
                    let delta = story.delta(of, number).unwrap();
                    assert_eq!((of, delta.to), (generation, revision));
                    found[1] += 1;
                }
                Ok(Moment::Backup(one)) => {
                    assert!(covering.is_none() && one.manifest.started <= time);
                    let newest = backups().rev().find(begun).unwrap();
                    assert_eq!(newest.id(), one.id());
                    found[2] += 1;
                }
                Err(Error::Unreachable { flaw: None, .. }) => {
                    assert!(known.is_empty() && backups().find(begun).is_none());
                }
                Err(Error::Unreachable { flaw: Some(_), .. }) => {
                    assert!(covering.is_none(), "a delta tells it");
                    found[3] += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
    });
    assert!(found.iter().all(|count| *count > 50), "{found:?}");
}
