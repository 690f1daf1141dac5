//! What a simulation must find, and what it must not.

use holdfast_simulation::run::run;
use holdfast_simulation::settings::{Control, Settings};

#[test]
fn a_loss_of_power_on_honest_disks_loses_nothing_and_on_disks_that_lie_it_is_found() {
    let outcome = run(Settings::of_control(1, Control::PowerLoss)).unwrap();
    assert_eq!(outcome.crashes, 3);
    assert!(outcome.history.answered > 100, "{outcome:?}");
    let mut lost_writes = 0;
    for seed in 1..=4 {
        // Once in a while the log itself notices that a part of it is not there.
        let violation = run(Settings::of_control(seed, Control::LyingDisks)).unwrap_err();
        lost_writes += u32::from(violation.what.contains("acknowledged"));
    }
    assert!(lost_writes > 1, "{lost_writes}");
}
