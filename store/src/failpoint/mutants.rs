//! Bugs that other stores had, brought back one at a time: a unit test must fail then.
//!
//! The stories are in `docs/internals/track-record.md`; `store/tests/it/mutants.rs` has those that
//! tests of the whole crate catch, and `interop/tests/it/cluster/planted.rs` those that take
//! several members.

use std::process::Command;

/// What is planted, and the test that catches it.
const CAUGHT: [(&str, &str); 14] = [
    (
        "bugWatchDropsEvent=1*return",
        "watch::session::tests::a_watch_sees_every_change_of_its_keys_from_now_on",
    ),
    (
        "bugWatchRepeatsEvent=return",
        "watch::session::tests::a_watch_sees_every_change_of_its_keys_from_now_on",
    ),
    (
        "bugWatchBeforeStart=return",
        "watch::session::tests::a_watch_of_the_future_is_given_nothing_earlier",
    ),
    (
        "bugWatchSkipsCompacted=return",
        "watch::session::tests::a_watch_from_before_a_compaction_is_told_where_history_begins",
    ),
    (
        "bugWatchSkipsCompacted=return",
        "watch::session::tests::a_reader_that_stalls_past_a_compaction_is_told_and_never_skips",
    ),
    (
        "bugWatchProgressAhead=return",
        "watch::session::tests::progress_of_a_watch_of_the_past_is_told_after_the_past",
    ),
    (
        "bugWatchBackAfterSnapshot=return",
        "watch::session::tests::a_state_that_was_replaced_is_read_again_from_where_each_watch_was",
    ),
    (
        "bugAckBeforeSync=return",
        "consensus::log::power_tests::a_loss_of_power_at_any_step_keeps_what_was_acknowledged",
    ),
    (
        "bugVoteBeforeSync=return",
        "consensus::log::power_tests::a_loss_of_power_at_any_step_keeps_what_was_acknowledged",
    ),
    (
        "bugTornTailFatal=return",
        "consensus::log::tests::a_torn_end_of_the_newest_batch_is_cut_at_every_length",
    ),
    (
        "bugLeaseCheckpointLost=return",
        "lease::clock::tests::a_new_leader_goes_on_from_the_checkpoint",
    ),
    (
        "bugLeaseRenewedAfterExpiry=return",
        "lease::clock::tests::a_renewal_starts_the_time_anew_but_a_due_lease_is_gone",
    ),
    (
        "bugSnapshotKeepsIndex=return",
        "consensus::suite_tests::the_log_and_the_state_machine_pass_the_suite_of_openraft",
    ),
    (
        "bugSnapshotKeepsMembership=return",
        "consensus::suite_tests::the_log_and_the_state_machine_pass_the_suite_of_openraft",
    ),
];

/// Whether a test of this program passes in a process of its own, with `points` planted; that it
/// does without is seen wherever it runs by itself.
fn passes(points: &str, test: &str) -> bool {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program)
        .args(["--exact", test])
        .env("GOFAIL_FAILPOINTS", points)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("running 1 test"), "no test {test}: {said}");
    output.status.success()
}

#[test]
fn each_bug_brought_back_fails_the_test_that_is_there_for_it() {
    let is_missed = |(points, test): &(&str, &str)| passes(points, test);
    let missed: Vec<_> = CAUGHT.into_iter().filter(is_missed).collect();
    assert!(missed.is_empty(), "not caught: {missed:?}");
}

/// The harness itself: a bug that has nothing to do with a test leaves it alone, and one that has
/// does not when it is switched off. Else everything would count as caught.
#[test]
fn a_bug_that_a_test_has_nothing_to_do_with_does_not_fail_it() {
    for points in ["bugLeaseCheckpointLost=return", "bugWatchRepeatsEvent=off"] {
        let test = "watch::session::tests::a_watch_sees_every_change_of_its_keys_from_now_on";
        assert!(passes(points, test), "{points}");
    }
}
