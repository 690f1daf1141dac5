//! One failure, made for a person: what, why, what next.

use std::error::Error;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::name::ErrorName;
use crate::exit_code::ExitCode;

/// A command that could not do what it was asked.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    name: ErrorName,
    what: String,
    causes: Vec<String>,
    next: String,
}

/// How a failure looks to a program (`-w json`, and between the daemon and a command).
#[derive(Serialize, Deserialize)]
struct Shape {
    error: String,
    exit_code: u8,
    what: String,
    why: Vec<String>,
    next: String,
    page: String,
}

impl Serialize for Failure {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let shape = Shape {
            error: self.name.slug().to_owned(),
            exit_code: self.exit_code().number(),
            what: self.what.clone(),
            why: self.causes.clone(),
            next: self.next.clone(),
            page: self.page(),
        };
        shape.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Failure {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let shape = Shape::deserialize(from)?;
        let name = ErrorName::ALL
            .into_iter()
            .find(|name| name.slug() == shape.error)
            .ok_or_else(|| de::Error::custom("unknown error name"))?;
        Ok(Self {
            name,
            what: shape.what,
            causes: shape.why,
            next: shape.next,
        })
    }
}

impl Failure {
    /// A failure by name; `what` says what failed and names the object.
    pub(crate) fn new(name: ErrorName, what: impl Into<String>) -> Self {
        Self {
            name,
            what: what.into(),
            causes: Vec::new(),
            next: name.next().to_owned(),
        }
    }

    /// The command line does not make sense; `next` says what would.
    pub(crate) fn usage(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self::new(ErrorName::Usage, what).next(next)
    }

    /// Something nobody foresaw.
    pub(crate) fn unexpected(what: impl Into<String>, cause: &dyn Error) -> Self {
        Self::new(ErrorName::Unexpected, what).because(cause)
    }

    /// An input or output error on a file, with the name that fits its kind.
    pub(crate) fn io(what: impl Into<String>, error: &std::io::Error) -> Self {
        use std::io::ErrorKind as Kind;
        let name = match error.kind() {
            Kind::NotFound => ErrorName::NotFound,
            Kind::PermissionDenied => ErrorName::Denied,
            Kind::AlreadyExists | Kind::DirectoryNotEmpty => ErrorName::TargetExists,
            Kind::AddrInUse => ErrorName::InUse,
            Kind::StorageFull | Kind::QuotaExceeded => ErrorName::Exhausted,
            Kind::ConnectionRefused | Kind::ConnectionReset | Kind::TimedOut => {
                ErrorName::Unavailable
            }
            _ => ErrorName::Unexpected,
        };
        let failure = Self::new(name, what).because(error);
        match error.kind() {
            Kind::NotFound => failure.next("see that the path is right and that its folder exists"),
            Kind::AddrInUse => {
                failure.next("stop the process that listens there, or use another port")
            }
            _ => failure,
        }
    }

    /// Adds the chain of causes of `error`, outermost first.
    pub(crate) fn because(mut self, error: &dyn Error) -> Self {
        let mut cause: Option<&dyn Error> = Some(error);
        while let Some(current) = cause {
            let text = without_markup(current.to_string());
            // Some errors repeat in their own text what lies behind them.
            if !self.causes.last().is_some_and(|last| last.ends_with(&text)) {
                self.causes.push(text);
            }
            cause = current.source();
        }
        self
    }

    /// Adds one cause in words.
    pub(crate) fn because_of(mut self, cause: impl Into<String>) -> Self {
        self.causes.push(cause.into());
        self
    }

    /// Replaces the general advice by one that fits this place.
    pub(crate) fn next(mut self, next: impl Into<String>) -> Self {
        self.next = next.into();
        self
    }

    /// The exit code of its name.
    pub(crate) fn exit_code(&self) -> ExitCode {
        self.name.exit_code()
    }

    /// The stable name.
    pub(crate) fn name(&self) -> ErrorName {
        self.name
    }

    /// What failed and the innermost reason, on one line.
    pub(crate) fn line(&self) -> String {
        match self.causes.last() {
            Some(cause) => format!("{}: {cause}", self.what),
            None => self.what.clone(),
        }
    }

    /// One line of JSON for programs.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| self.to_string())
    }

    fn page(&self) -> String {
        format!("docs/reference/errors/{}.md", self.name.slug())
    }
}

/// S3 servers explain themselves in XML: its code says it all.
fn without_markup(text: String) -> String {
    let Some((head, markup)) = text.split_once("<?xml") else {
        return text;
    };
    let code = markup
        .split_once("<Code>")
        .and_then(|(_, rest)| rest.split_once("</Code>"))
        .map_or("", |(code, _)| code);
    format!("{head}{code}")
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.what)?;
        for cause in &self.causes {
            writeln!(f, "  why:  {cause}")?;
        }
        writeln!(f, "  next: {}", self.next)?;
        let slug = self.name.slug();
        write!(
            f,
            "  code: {} {slug} (`holdfast explain {slug}`)",
            self.exit_code().number(),
        )
    }
}

impl Error for Failure {}
