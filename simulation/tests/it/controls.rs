//! What a simulation must find, and what it must not.

use holdfast_simulation::run::run;
use holdfast_simulation::settings::{Control, Settings};

#[test]
fn a_loss_of_power_on_honest_disks_loses_nothing_and_on_disks_that_lie_it_is_found() {
    let outcome = run(Settings::of_control(1, Control::PowerLoss)).unwrap();
    assert_eq!(outcome.crashes, 3);
    assert!(outcome.history.answered > 100, "{outcome:?}");
    // A lie is always found; often the log itself notices first that a part of it is not there.
    let is_lost = |seed| {
        let violation = run(Settings::of_control(seed, Control::LyingDisks)).unwrap_err();
        violation.what.contains("acknowledged")
    };
    assert!((1..=16).any(is_lost), "no lost write was found as one");
}
