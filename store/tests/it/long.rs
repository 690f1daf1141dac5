//! How much a bounded test does: the short form always, the long form when it is asked for. Part
//! of the tests of every crate; the table of both forms is in `docs/internals/testing.md`.

/// The switch: set to anything but nothing or 0.
const LONG: &str = "HOLDFAST_LONG_TESTS";

/// `short`, or `long` when long tests are asked for.
pub(crate) fn rounds<N>(short: N, long: N) -> N {
    let is_long = std::env::var_os(LONG).is_some_and(|value| !value.is_empty() && value != "0");
    if is_long { long } else { short }
}
