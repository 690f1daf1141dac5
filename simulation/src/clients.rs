//! Clients of one member: they ask it, and what they asked and were told is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use holdfast_proto::etcd::rpc;
use holdfast_store::Error;
use holdfast_store::apply::Response;
use holdfast_store::command::Request;
use holdfast_store::lease::LeaseId;
use holdfast_store::member::Member;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::history::calls::{self, KEYS, Seen, key_name, value_name};
use crate::history::{Call, Key, Lease, Nanos, Operation, Outcome};
use crate::invariants::{Place, Sight};
use crate::observer::Observer;

/// Pause after a failed call.
const FAILURE_PAUSE: Duration = Duration::from_millis(50);
/// Seconds to live of a lease.
const TTL_S: i64 = 2;

/// What all clients asked and were told.
#[derive(Debug)]
pub struct Book {
    observer: Arc<Observer>,
    /// Whether the clocks of hosts run at different rates.
    is_skewed: bool,
    operations: Mutex<Vec<Operation>>,
    leases: Mutex<Vec<Lease>>,
    next_value: AtomicU64,
    next_client: AtomicU64,
    answered: AtomicU64,
    waiting: AtomicU64,
    is_closed: AtomicBool,
}

impl Book {
    /// An empty one.
    pub fn new(observer: Arc<Observer>, is_skewed: bool) -> Self {
        Self {
            observer,
            is_skewed,
            operations: Mutex::default(),
            leases: Mutex::default(),
            next_value: AtomicU64::new(1),
            next_client: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Ends all clients once they have their answers.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Operations answered so far.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// What was asked and told; reads without an answer say nothing and are left out.
    pub fn entries(&self) -> (Vec<Operation>, Vec<Lease>) {
        let mut operations = self.operations.lock().clone();
        operations.retain(|operation| {
            !matches!(operation.call, Call::Get { .. })
                || matches!(operation.outcome, Outcome::Done { .. })
        });
        (operations, self.leases.lock().clone())
    }

    /// Whether a client waits for an answer.
    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Whether clients are to end.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    fn value(&self) -> u64 {
        self.next_value.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes that an operation begins; until it is answered its outcome is unknown.
    fn begin(&self, client: u32, call: Call) -> usize {
        let mut operations = self.operations.lock();
        operations.push(Operation {
            client,
            start: self.observer.now(),
            end: Nanos::MAX,
            call,
            outcome: Outcome::Unknown,
        });
        operations.len() - 1
    }

    fn end(&self, place: usize, member: Place, outcome: Outcome) {
        let mut operations = self.operations.lock();
        let Some(operation) = operations.get_mut(place) else {
            return;
        };
        operation.end = self.observer.now();
        operation.outcome = outcome;
        let call = operation.call;
        drop(operations);
        let Outcome::Done {
            revision,
            has_written,
            ..
        } = outcome
        else {
            return;
        };
        self.answered.fetch_add(1, Ordering::Relaxed);
        if has_written {
            self.observer.see(&Sight::Acknowledged {
                member,
                revision,
                changes: &changes(call),
            });
        }
    }
}

/// What a call that wrote has written.
fn changes(call: Call) -> Vec<(String, Option<String>)> {
    let put = |key: Key, value: u64| (key_name(key), Some(value_name(value)));
    match call {
        Call::Get { .. } => Vec::new(),
        Call::Put { key, value, .. } | Call::Swap { key, value, .. } => vec![put(key, value)],
        Call::PutBoth { keys, value } => keys.map(|key| put(key, value)).to_vec(),
        Call::Delete { key } => vec![(key_name(key), None)],
    }
}

/// Counts an operation that is under way; a crash of the host ends it.
struct Waiting<'book>(&'book Book);

impl<'book> Waiting<'book> {
    fn new(book: &'book Book) -> Self {
        book.waiting.fetch_add(1, Ordering::Relaxed);
        Self(book)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One client of one member.
struct Client {
    number: u32,
    place: Place,
    member: Member,
    book: Arc<Book>,
    random: StdRng,
}

/// Starts `count` clients of `member`, and one that keeps leases; they end with the host, or at
/// `stop`.
pub fn spawn(
    member: &Member,
    place: Place,
    (count, seed): (usize, u64),
    book: &Arc<Book>,
    stop: &CancellationToken,
) {
    let client = || {
        let number = book.next_client.fetch_add(1, Ordering::Relaxed);
        Client {
            number: u32::try_from(number).unwrap_or(u32::MAX),
            place,
            member: member.clone(),
            book: Arc::clone(book),
            random: StdRng::seed_from_u64(seed.wrapping_add(number)),
        }
    };
    for _ in 0..count {
        let stop = stop.clone();
        drop(tokio::spawn(
            stop.run_until_cancelled_owned(client().work()),
        ));
    }
    let stop = stop.clone();
    drop(tokio::spawn(
        stop.run_until_cancelled_owned(client().keep_leases()),
    ));
}

impl Client {
    async fn work(mut self) {
        let mut seen = Seen::default();
        while !self.book.is_closed() {
            let call = calls::draw(&mut self.random, &seen, || self.book.value());
            let outcome = self.run(call).await;
            seen.note(call, outcome);
            let pause = if matches!(outcome, Outcome::Done { .. }) {
                Duration::from_millis(self.random.random_range(0..40))
            } else {
                FAILURE_PAUSE
            };
            sleep(pause).await;
        }
    }

    /// Runs one operation and notes what came of it.
    async fn run(&self, call: Call) -> Outcome {
        let _waiting = Waiting::new(&self.book);
        let place = self.book.begin(self.number, call);
        let outcome = match self.send(call).await {
            Ok(outcome) => outcome,
            // NOSPACE may also be the answer to a write that took effect, as in etcd.
            Err(Error::TooManyRequests | Error::LeaseNotFound) => Outcome::Refused,
            Err(_) => Outcome::Unknown,
        };
        self.book.end(place, self.place, outcome);
        outcome
    }

    async fn send(&self, call: Call) -> Result<Outcome, Error> {
        let request = match call {
            Call::Get { key } => {
                self.member.linearizable().await?;
                let answer = self.member.state().range(&calls::get(key))?;
                let header = answer.header.as_ref();
                return Ok(told(calls::done(header, false, answer.kvs.first())));
            }
            Call::Put { key, value, lease } => Request::Put(calls::put(key, value, lease)),
            Call::Delete { key } => Request::DeleteRange(calls::delete(key)),
            Call::PutBoth { keys, value } => Request::Txn(calls::put_both(keys, value)),
            Call::Swap {
                key,
                expected,
                value,
            } => Request::Txn(calls::swap(key, expected, value)),
        };
        let applied = self.member.propose(request).await?;
        Ok(match applied.response {
            Response::Put(answer) => told(calls::done(answer.header.as_ref(), true, None)),
            Response::DeleteRange(answer) => {
                let has_written = answer.deleted > 0;
                told(calls::done(answer.header.as_ref(), has_written, None))
            }
            Response::Txn(answer) => told(calls::txn_done(&answer)),
            _ => Outcome::Unknown,
        })
    }

    /// Uses one lease after the other: granted, kept for a while, left to run out.
    async fn keep_leases(mut self) {
        let key = KEYS + Key::try_from(self.place).unwrap_or(0);
        while !self.book.is_closed() {
            let Some(mut lease) = self.grant().await else {
                sleep(FAILURE_PAUSE).await;
                continue;
            };
            let call = Call::Put {
                key,
                value: self.book.value(),
                lease: lease.id,
            };
            let at = self.book.leases.lock().len();
            self.book.leases.lock().push(lease.clone());
            self.run(call).await;
            for _ in 0..self.random.random_range(0..5) {
                sleep(Duration::from_millis(700)).await;
                let asked = self.book.observer.now();
                let renewed = self.member.renew_lease(LeaseId(lease.id)).await;
                match renewed {
                    Ok(ttl_s) => {
                        lease.renewed = asked;
                        lease.ttl = self.note_renewal(lease.id, asked, ttl_s);
                        if let Some(kept) = self.book.leases.lock().get_mut(at) {
                            kept.clone_from(&lease);
                        }
                    }
                    Err(Error::LeaseNotFound) => break,
                    Err(_) => sleep(FAILURE_PAUSE).await,
                }
            }
            // Left alone, it runs out; reads in between see whether that is too early.
            let end = self.book.observer.now() + 2 * lease.ttl;
            while self.book.observer.now() < end && !self.book.is_closed() {
                self.run(Call::Get { key }).await;
                sleep(Duration::from_millis(200)).await;
            }
        }
    }

    async fn grant(&self) -> Option<Lease> {
        let renewed = self.book.observer.now();
        let request = Request::LeaseGrant(rpc::LeaseGrantRequest { ttl: TTL_S, id: 0 });
        let applied = self.member.propose(request).await.ok()?;
        let Response::LeaseGrant(answer) = applied.response else {
            return None;
        };
        Some(Lease {
            id: answer.id,
            ttl: self.note_renewal(answer.id, renewed, answer.ttl),
            renewed,
            is_revoked: false,
        })
    }

    fn note_renewal(&self, lease: i64, asked: Nanos, ttl_s: i64) -> Nanos {
        let granted = u64::try_from(ttl_s).unwrap_or(0) * 1_000_000_000;
        // The leader's clock may be the fastest, and this is the time of the slowest.
        let ttl = if self.book.is_skewed {
            clock::least(granted)
        } else {
            granted
        };
        self.book
            .observer
            .see(&Sight::Renewed { lease, asked, ttl });
        ttl
    }
}

/// An answer that says nothing leaves the outcome open.
fn told(outcome: Result<Outcome, String>) -> Outcome {
    outcome.unwrap_or(Outcome::Unknown)
}
