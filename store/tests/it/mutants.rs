//! Bugs that other stores had, brought back one at a time: a test of the whole crate must fail
//! then. The stories are in `docs/internals/track-record.md`.

use std::process::Command;

/// What is planted, and the test that catches it.
const CAUGHT: [(&str, &str); 12] = [
    (
        "bugTxnUnchecked=return",
        "model::a_request_that_fails_leaves_no_trace",
    ),
    (
        "bugCompactTombstone=return",
        "model::a_delete_at_the_very_revision_of_a_compaction_is_still_told",
    ),
    (
        // Alone it does no harm here: the last delete's row stays.
        "bugRevisionFromRows=return;bugCompactTombstone=return",
        "model::a_compaction_at_a_delete_that_is_the_newest_change_takes_no_revision_back",
    ),
    (
        "bugHashOfNewest=return",
        "model::the_state_machine_answers_as_a_simple_model_of_history",
    ),
    (
        "bugApplyTwice=return",
        "model::the_state_machine_answers_as_a_simple_model_of_history",
    ),
    (
        "bugIndexBeforeData=return",
        "crash::a_loss_of_power_at_any_write_leaves_what_was_durable",
    ),
    (
        "bugIndexBeforeData=return",
        "images::a_member_back_from_any_image_of_its_disk_has_what_it_acknowledged_and_joins",
    ),
    (
        "bugAckBeforeSync=return",
        "images::a_member_back_from_any_image_of_its_disk_has_what_it_acknowledged_and_joins",
    ),
    (
        "bugDefragLosesIndex=return",
        "install::a_defragmentation_keeps_what_is_applied_through_a_restart",
    ),
    (
        "bugSnapshotKeepsIndex=return",
        "install::an_installed_state_is_there_after_a_restart_and_goes_on",
    ),
    (
        "bugLeaseCheckpointLost=return",
        "lease_restart::the_time_left_of_a_lease_survives_restarts",
    ),
    (
        "bugReadUnconfirmed=return",
        "cluster_basics::a_leader_cut_off_from_the_others_says_so_and_serves_nothing_it_cannot_vouch_for",
    ),
];

/// Whether a test of this program passes in a process of its own, with `points` planted.
fn passes(points: &str, test: &str) -> bool {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program)
        .args(["--exact", test])
        .env("GOFAIL_FAILPOINTS", points)
        // What a bug fails with is no case for other days.
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true")
        .env("PROPTEST_MAX_SHRINK_ITERS", "0")
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
    for points in ["bugLeaseCheckpointLost=return", "bugApplyTwice=off"] {
        let test = "model::a_delete_at_the_very_revision_of_a_compaction_is_still_told";
        assert!(passes(points, test), "{points}");
    }
}
