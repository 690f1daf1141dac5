//! Failpoints of a build for tests.

use std::io::{self, Write as _};
use std::sync::LazyLock;

use futures::{Stream, StreamExt as _};
use parking_lot::Mutex;

use super::Point;
use super::http;
use super::table::{Table, parse_many};
use super::term::{Action, Value};
use crate::error::Error;

/// Points and terms of the start.
const POINTS_VARIABLE: &str = "GOFAIL_FAILPOINTS";
/// Where the points are driven.
const ADDRESS_VARIABLE: &str = "GOFAIL_HTTP";

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let table = Table::new();
    let text = std::env::var(POINTS_VARIABLE).unwrap_or_default();
    for (name, terms) in parse_many(&text).unwrap_or_default() {
        if let Err(refusal) = table.set(name, terms) {
            say(&format!("failed to enable {name}={terms}: {refusal}"));
        }
    }
    table
});

/// Held while a request is answered: no crash comes before the answer to who asked for it.
static ANSWERING: Mutex<()> = Mutex::new(());

/// Serves the protocol when the environment says where.
///
/// # Errors
/// When the environment's points are no list, or the address cannot be bound.
pub fn start() -> Result<(), Error> {
    let text = std::env::var(POINTS_VARIABLE).unwrap_or_default();
    let wrong = |reason| Error::Option {
        option: POINTS_VARIABLE,
        reason,
    };
    parse_many(&text).map_err(wrong)?;
    let Ok(address) = std::env::var(ADDRESS_VARIABLE) else {
        return Ok(());
    };
    http::serve(&address, &TABLE, &ANSWERING).map_err(|source| Error::Io {
        doing: "serve failpoints",
        source,
    })
}

/// Whether any point is told anything: what would be done on the way is left to threads then,
/// which a point may stop.
pub(crate) fn is_armed() -> bool {
    TABLE.is_armed()
}

/// Does what the point is told, on a thread that may wait.
pub(crate) fn hit(point: Point) {
    is_on(point);
}

/// The same; whether it is told to `return`.
pub(crate) fn is_on(point: Point) -> bool {
    returned(point).is_some()
}

/// The same in a task: it awaits, so that others go on.
pub(crate) async fn pause(point: Point) -> bool {
    match TABLE.take(point) {
        None => false,
        Some(Action::Sleep(time)) => {
            tokio::time::sleep(time).await;
            false
        }
        Some(other) => act(point, other).is_some(),
    }
}

/// [`pause`] before each item is given on.
pub(crate) fn before_each<S: Stream>(
    point: Point,
    stream: S,
) -> impl Stream<Item = S::Item> + use<S> {
    stream.then(move |item| async move {
        pause(point).await;
        item
    })
}

/// [`hit`]; an error of `kind` when it is told to `return`, with the text given.
pub(crate) fn failure(point: Point, kind: io::ErrorKind) -> io::Result<()> {
    match returned(point) {
        None => Ok(()),
        Some(Value::Text(text)) => Err(io::Error::new(kind, text)),
        Some(_) => Err(io::Error::new(kind, format!("failpoint {}", point.name()))),
    }
}

fn returned(point: Point) -> Option<Value> {
    act(point, TABLE.take(point)?)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a point that sleeps is there to hold up the thread"
)]
fn act(point: Point, action: Action) -> Option<Value> {
    match action {
        Action::Off => {}
        Action::Return(value) => return Some(value),
        Action::Sleep(time) => std::thread::sleep(time),
        Action::Print => say(&format!("failpoint print: {}", point.name())),
        Action::Panic => crash(point),
    }
    None
}

/// Ends the process as a crash does: nothing is unwound, flushed or told.
fn crash(point: Point) -> ! {
    let _answered = ANSWERING.lock();
    say(&format!("failpoint panic: {}", point.name()));
    std::process::abort()
}

fn say(text: &str) {
    // Without an ear the point still does what it is for.
    drop(writeln!(io::stderr(), "{text}"));
}
