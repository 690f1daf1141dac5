//! One macro that makes a configuration section and its reference page from one text.

/// One key of a section, for the reference page.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    /// The key as written in the file.
    pub(crate) key: &'static str,
    /// What it is for: default, range, when to change.
    pub(crate) doc: String,
}

/// A section whose keys can be listed.
pub(crate) trait Section {
    /// What the section is about.
    fn about() -> String;
    /// Its keys in the order of the type.
    fn settings() -> Vec<Setting>;
}

/// Joins the lines of a doc comment.
pub(crate) fn join_doc(lines: &[&str]) -> String {
    let trimmed: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
    trimmed.join(" ")
}

/// Declares a section: its struct, its defaults and its reference.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $name:ident {
            $( $(#[doc = $doc:literal])+ $key:ident : $type:ty = $default:expr ),* $(,)?
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct $name {
            $( $(#[doc = $doc])+ pub(crate) $key: $type ),*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $key: $default ),* }
            }
        }

        impl $crate::config::section::Section for $name {
            fn about() -> String {
                $crate::config::section::join_doc(&[$($about),+])
            }

            fn settings() -> Vec<$crate::config::section::Setting> {
                vec![$(
                    $crate::config::section::Setting {
                        key: stringify!($key),
                        doc: $crate::config::section::join_doc(&[$($doc),+]),
                    }
                ),*]
            }
        }
    };
}
