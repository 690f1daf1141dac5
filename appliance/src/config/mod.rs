//! The one configuration file, `holdfast.yaml`: its sections, where values come from, its
//! reference.
//!
//! Sections are named after the crates they set up. A value comes from a flag, else from the
//! environment, else from the file, else from the default; unknown keys are refused.

#[macro_use]
mod section;
mod copies;
mod example;
mod load;
mod reference;
mod sections;
mod settings;

pub(crate) use copies::{CopyVault, FIRST};
pub(crate) use example::{Example, render as render_example};
pub(crate) use load::{Laid, Loaded, Origin, differing, load};
pub(crate) use reference::render as render_reference;
pub(crate) use sections::{DrillMembers, DrillTarget, Source, Store};
pub(crate) use settings::Settings;
