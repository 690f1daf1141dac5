//! Watches: each goes from member to member, as a client's does that loses its connection, and is
//! to see every change once.

use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::etcd::rpc;
use holdfast_store::member::Member;
use holdfast_store::watch::{SessionOptions, WatchHub, WatchSession};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::{Instant, sleep, timeout};

use crate::clients::Book;
use crate::history::calls::{self, KEYS, key_name};
use crate::history::{Key, Watch, WatchAnswer};
use crate::observer::Observer;

/// Bytes after which an answer is cut for watches that take pieces; these do not.
const FRAGMENT_BYTES: usize = 1 << 20;
/// Watches at a time on one member.
const PER_MEMBER: usize = 2;
/// How long one stays on a member, at most.
const STAY_MS_MAX: u64 = 5000;
/// How often one asks how far it is.
const ASK_INTERVAL: Duration = Duration::from_millis(700);
/// The key after the last one that is written.
const KEYS_END: Key = Key::MAX;

/// One watch.
#[derive(Debug, Clone)]
pub struct Seen {
    /// What it asked for and was given.
    pub watch: Watch,
    /// Whether it is on a member now.
    pub is_held: bool,
    /// Whether it can go on: what it lacks is not compacted.
    pub is_open: bool,
}

/// All watches.
#[derive(Debug, Default)]
pub struct Watches(Mutex<Vec<Seen>>);

/// A watch on a member; it can go on elsewhere when this one goes down.
struct Held {
    watches: Arc<Watches>,
    number: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.with(|seen| seen.is_held = false);
    }
}

impl Held {
    fn with<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> Option<T> {
        self.watches.0.lock().get_mut(self.number).map(look)
    }
}

impl Watches {
    /// What they have seen so far.
    pub fn all(&self) -> Vec<Seen> {
        self.0.lock().clone()
    }

    /// Takes up some watch that is on no member, or a new one.
    fn take(self: &Arc<Self>, random: &mut StdRng, revision: i64) -> Held {
        let mut all = self.0.lock();
        let idle = all.iter().position(|seen| seen.is_open && !seen.is_held);
        let number = idle.unwrap_or(all.len());
        if idle.is_none() {
            let keys = if random.random_bool(0.5) {
                (0, KEYS_END)
            } else {
                let key = random.random_range(0..KEYS);
                (key, key + 1)
            };
            // Some begin with the past, some with what is to come.
            let from = (revision + random.random_range(-30..3)).max(2);
            all.push(Seen {
                watch: Watch {
                    from,
                    keys,
                    answers: Vec::new(),
                },
                is_held: true,
                is_open: true,
            });
        } else if let Some(seen) = all.get_mut(number) {
            seen.is_held = true;
        }
        Held {
            watches: Arc::clone(self),
            number,
        }
    }
}

/// The revision at which a watch goes on.
fn next(watch: &Watch) -> i64 {
    let last = watch.answers.iter().map(|answer| {
        let event = answer.events.last();
        // An answer without events says that there is nothing up to its revision.
        event.map_or(answer.revision, |event| event.revision)
    });
    last.max()
        .map_or(watch.from, |last| watch.from.max(last + 1))
}

/// Starts the watches of one member; they end with the host.
pub fn spawn(
    member: &Member,
    hub: &WatchHub,
    seed: u64,
    (watches, book, observer): (&Arc<Watches>, &Arc<Book>, &Arc<Observer>),
) -> Vec<impl Future<Output = ()> + Send + 'static> {
    let one = |number: usize| {
        let (member, hub) = (member.clone(), hub.clone());
        let (watches, book) = (Arc::clone(watches), Arc::clone(book));
        let observer = Arc::clone(observer);
        let number = u64::try_from(number).unwrap_or(0);
        let mut random = StdRng::seed_from_u64(seed ^ (number << 20) ^ 0x3a7c_0001);
        async move {
            loop {
                let held = watches.take(&mut random, member.state().revision());
                let options = SessionOptions {
                    fragment_bytes: FRAGMENT_BYTES,
                };
                match hub.session(options) {
                    Ok(session) => {
                        let stay = Duration::from_millis(random.random_range(300..STAY_MS_MAX));
                        if let Err(what) = watch(&held, session, stay, &book).await {
                            observer.accuse(what);
                        }
                    }
                    Err(error) => observer.accuse(format!("no watch can begin: {error}")),
                }
                drop(held);
                sleep(Duration::from_millis(random.random_range(0..50))).await;
            }
        }
    };
    (0..PER_MEMBER).map(one).collect()
}

/// Watches for a while; once the clients have ended, for good: it has to see the end.
async fn watch(
    held: &Held,
    mut session: WatchSession,
    stay: Duration,
    book: &Book,
) -> Result<(), String> {
    let Some(request) = held.with(|seen| create(&seen.watch)) else {
        return Ok(());
    };
    session.create(request);
    let end = Instant::now() + stay;
    while Instant::now() < end || book.is_closed() {
        let Ok(answer) = timeout(ASK_INTERVAL, session.next()).await else {
            session.request_progress();
            continue;
        };
        if answer.canceled {
            if answer.compact_revision <= 0 {
                return Err(format!("a watch was ended: {}", answer.cancel_reason));
            }
            let next = held.with(|seen| {
                seen.is_open = false;
                next(&seen.watch)
            });
            if next.is_some_and(|next| next >= answer.compact_revision) {
                let at = answer.compact_revision;
                return Err(format!(
                    "a watch from {next:?} on was ended for the compaction of {at}"
                ));
            }
            return Ok(());
        }
        if answer.created {
            continue;
        }
        let events = answer.events.iter().map(calls::event);
        let answer = WatchAnswer {
            revision: answer.header.map_or(0, |header| header.revision),
            events: events.collect::<Result<_, _>>()?,
        };
        held.with(|seen| seen.watch.answers.push(answer));
    }
    Ok(())
}

fn create(watch: &Watch) -> rpc::WatchCreateRequest {
    let (first, end) = watch.keys;
    let (key, range_end) = if end == KEYS_END {
        ("k".to_owned(), "l".to_owned())
    } else {
        (key_name(first), String::new())
    };
    rpc::WatchCreateRequest {
        key: key.into(),
        range_end: range_end.into(),
        start_revision: next(watch),
        progress_notify: true,
        ..rpc::WatchCreateRequest::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_goes_on_after_what_it_was_given_or_told() {
        let answer = |revision| WatchAnswer {
            revision,
            events: Vec::new(),
        };
        let mut watch = Watch {
            from: 5,
            keys: (0, 1),
            answers: Vec::new(),
        };
        assert_eq!(next(&watch), 5);
        watch.answers = vec![answer(3)];
        assert_eq!(next(&watch), 5, "what was asked for is still to come");
        watch.answers = vec![answer(7)];
        assert_eq!(next(&watch), 8);
    }
}
