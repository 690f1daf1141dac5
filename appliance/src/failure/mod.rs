//! What a person is told when something did not work: which object, why, and what to do next.

mod convert;
mod name;
mod report;

pub(crate) use convert::OrFail;
pub(crate) use name::ErrorName;
pub(crate) use report::Failure;
