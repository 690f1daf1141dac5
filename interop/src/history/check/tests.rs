//! A history that passes, and one planted lie for every promise.

use super::super::{Lease, Shown};
use super::*;

const UNKNOWN: Outcome = Outcome::Unknown;

fn shown(value: u64, created: i64, modified: i64, version: i64) -> Shown {
    Shown {
        value,
        created,
        modified,
        version,
        lease: 0,
    }
}

fn event(revision: i64, key: Key, shown: Option<Shown>) -> Event {
    Event {
        revision,
        key,
        shown,
    }
}

fn op(start: Nanos, end: Nanos, call: Call, outcome: Outcome) -> Operation {
    Operation {
        client: u32::try_from(start % 7).unwrap(),
        start,
        end,
        call,
        outcome,
    }
}

fn wrote(revision: i64) -> Outcome {
    Outcome::Done {
        revision,
        has_written: true,
        shown: None,
    }
}

fn read(revision: i64, shown: Option<Shown>) -> Outcome {
    Outcome::Done {
        revision,
        has_written: false,
        shown,
    }
}

fn put(key: Key, value: u64) -> Call {
    Call::Put {
        key,
        value,
        lease: 0,
    }
}

fn swap(key: Key, expected: i64, value: u64) -> Call {
    Call::Swap {
        key,
        expected,
        value,
    }
}

/// Every kind of call and outcome once.
fn good() -> History {
    let first = shown(1, 2, 2, 1);
    let second = shown(2, 2, 3, 2);
    History {
        base: 1,
        operations: vec![
            op(0, 10, put(1, 1), wrote(2)),
            op(5, 15, Call::Get { key: 1 }, read(2, Some(first))),
            op(20, 30, swap(1, 2, 2), wrote(3)),
            op(22, 32, swap(1, 2, 9), read(3, Some(second))),
            op(25, 28, put(2, 8), Outcome::Refused),
            op(40, 50, Call::Delete { key: 1 }, wrote(4)),
            op(55, 60, Call::Delete { key: 1 }, read(4, None)),
            op(60, 61, put(3, 3), UNKNOWN),
            op(61, 62, put(3, 4), UNKNOWN),
            op(63, 64, Call::Delete { key: 3 }, UNKNOWN),
            op(
                70,
                80,
                Call::PutBoth {
                    keys: [1, 2],
                    value: 5,
                },
                wrote(7),
            ),
            op(90, 95, Call::Get { key: 3 }, read(7, None)),
            op(
                96,
                99,
                Call::Get { key: 1 },
                read(7, Some(shown(5, 7, 7, 1))),
            ),
        ],
        leases: Vec::new(),
        events: vec![
            event(2, 1, Some(first)),
            event(3, 1, Some(second)),
            event(4, 1, None),
            event(5, 3, Some(shown(3, 5, 5, 1))),
            event(6, 3, None),
            event(7, 1, Some(shown(5, 7, 7, 1))),
            event(7, 2, Some(shown(5, 7, 7, 1))),
        ],
    }
}

#[test]
fn a_history_with_every_kind_of_answer_passes() {
    let summary = check(&good()).unwrap();
    let expected = Summary {
        answered: 9,
        late: 2,
        lost: 1,
        revisions: 6,
        expired: 0,
    };
    assert_eq!(summary, expected);
}

#[track_caller]
fn refused(text: &str, spoil: impl FnOnce(&mut History)) {
    let mut history = good();
    spoil(&mut history);
    let violation = check(&history).expect_err("the planted lie is found");
    assert!(violation.what.contains(text), "{violation}");
}

#[test]
fn an_acknowledged_write_that_is_not_there_is_found() {
    refused("was told", |history| {
        history.operations[0].outcome = wrote(3);
    });
    refused("was told", |history| {
        history.operations.push(op(100, 110, put(4, 77), wrote(8)));
    });
}

#[test]
fn a_stale_read_is_found_by_its_revision_and_by_its_time() {
    // It shows what was there, at a revision that a write before it had left behind.
    refused("before client", |history| {
        history.operations[11].outcome = read(4, None);
    });
    refused("was read as", |history| {
        history.operations[12].outcome = read(7, Some(shown(2, 2, 3, 2)));
    });
    refused("from nowhere", |history| {
        history.operations[12].outcome = read(9, None);
    });
}

#[test]
fn reads_that_go_back_in_time_are_found() {
    refused("before client", |history| {
        let fresh = read(7, None);
        let stale = read(6, None);
        history
            .operations
            .push(op(100, 101, Call::Get { key: 3 }, fresh));
        history
            .operations
            .push(op(102, 103, Call::Get { key: 3 }, stale));
    });
}

#[test]
fn an_entry_applied_twice_is_found() {
    refused("already", |history| {
        let again = shown(5, 7, 8, 2);
        history.events.push(event(8, 1, Some(again)));
    });
    refused("second write", |history| {
        history.operations.push(history.operations[0]);
    });
}

#[test]
fn a_write_that_was_refused_or_that_nobody_sent_is_found() {
    refused("was refused", |history| {
        history.operations[0].outcome = Outcome::Refused;
    });
    refused("by nobody", |history| {
        history.operations.remove(7);
    });
    refused("by nobody", |history| {
        history.operations.remove(9);
    });
}

#[test]
fn a_wrong_field_and_a_gap_in_the_list_of_changes_are_found() {
    refused("by the changes before", |history| {
        history.events[1].shown = Some(shown(2, 2, 3, 3));
    });
    refused("follows revision", |history| {
        history.events.remove(2);
    });
}

#[test]
fn a_swap_is_held_to_its_comparison() {
    refused("last modified", |history| {
        history.operations[2].call = swap(1, 0, 2);
    });
    refused("should have written", |history| {
        history.operations[3].call = swap(1, 3, 9);
    });
}

#[test]
fn a_delete_is_held_to_what_it_found() {
    refused("not found to delete", |history| {
        history.operations[6].outcome = read(7, None);
    });
}

#[test]
fn a_write_ordered_before_one_that_had_ended_is_found() {
    refused("before client", |history| {
        // Revision 3 ended before revision 2 began.
        history.operations[0].start = 35;
        history.operations[0].end = 38;
        history.operations[1].start = 36;
        history.operations[1].end = 37;
    });
}

/// A key under a lease of 50 that was last renewed at 10, removed by revision 3.
fn leased(seen_at: Nanos) -> History {
    let under = Shown {
        lease: 7,
        ..shown(1, 2, 2, 1)
    };
    let call = Call::Put {
        key: 1,
        value: 1,
        lease: 7,
    };
    History {
        base: 1,
        operations: vec![
            op(5, 8, call, wrote(2)),
            op(seen_at - 2, seen_at, Call::Get { key: 1 }, read(3, None)),
        ],
        leases: vec![Lease {
            id: 7,
            ttl: 50,
            renewed: 10,
            is_revoked: false,
        }],
        events: vec![event(2, 1, Some(under)), event(3, 1, None)],
    }
}

#[test]
fn a_lease_may_run_out_after_its_time_and_not_before() {
    assert_eq!(check(&leased(61)).unwrap().expired, 1);
    let violation = check(&leased(59)).unwrap_err();
    assert!(
        violation.what.contains("1 ns before its time"),
        "{violation}"
    );
    let mut revoked = leased(59);
    revoked.leases[0].is_revoked = true;
    assert!(check(&revoked).is_ok());
    let mut orphan = leased(61);
    orphan.leases.clear();
    assert!(check(&orphan).unwrap_err().what.contains("by nobody"));
}
