//! The architecture as a test: rules over the text of the tracked files and over cargo's metadata.
//!
//! A rule is a function from the [`tree::Tree`] to findings. It says what is wrong and what to do
//! instead; clippy and rustfmt own what they can express (function size, parameters, names).

mod check;
mod rules;
mod source;
mod tree;

pub(crate) use check::run;
