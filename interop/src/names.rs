//! A name server for tests, which knows service records, and that their hosts are this one.

use std::net::UdpSocket;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};

/// Where name servers are asked.
const ADDRESS: &str = "127.0.0.1:53";
/// The longest question.
const QUESTION_MAX: usize = 512;
const HEADER_BYTES: usize = 12;
const TYPE_A: [u8; 2] = [0, 1];
const TYPE_SRV: [u8; 2] = [0, 33];
/// The name of the question, once more.
const SAME_NAME: [u8; 2] = [0xc0, 12];
/// Of the internet, for a minute.
const CLASS_AND_TIME: [u8; 6] = [0, 1, 0, 0, 0, 60];

/// One service record: where it points to.
#[derive(Debug, Clone)]
pub struct Service {
    /// The name that is asked for, without a dot in the end.
    pub name: String,
    /// A host.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// A name server on a thread of its own, until the process ends: it belongs into a network
/// namespace of a test.
#[derive(Debug)]
pub struct NameServer {
    services: Arc<Mutex<Vec<Service>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl NameServer {
    /// Starts it.
    ///
    /// # Errors
    /// When the port is taken, or only root may have it.
    pub fn start() -> Result<Self> {
        let socket = UdpSocket::bind(ADDRESS).context(ADDRESS)?;
        let server = Self {
            services: Arc::default(),
            asked: Arc::default(),
        };
        let (services, asked) = (Arc::clone(&server.services), Arc::clone(&server.asked));
        std::thread::spawn(move || {
            let mut question = [0; QUESTION_MAX];
            while let Ok((length, client)) = socket.recv_from(&mut question) {
                let services = services.lock().unwrap_or_else(PoisonError::into_inner);
                let answered = answer(question.get(..length).unwrap_or_default(), &services);
                let Some((name, answer)) = answered else {
                    continue;
                };
                asked
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(name);
                // Whoever has gone asks no more.
                drop(socket.send_to(&answer, client));
            }
        });
        Ok(server)
    }

    /// What it knows from now on.
    pub fn know(&self, services: Vec<Service>) {
        *self.services.lock().unwrap_or_else(PoisonError::into_inner) = services;
    }

    /// The names it was asked for so far.
    pub fn asked(&self) -> Vec<String> {
        self.asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// The name asked for, and the answer to it.
fn answer(question: &[u8], services: &[Service]) -> Option<(String, Vec<u8>)> {
    let mut at = HEADER_BYTES;
    let mut labels = Vec::new();
    loop {
        let length = usize::from(*question.get(at)?);
        let label = question.get(at + 1..at + 1 + length)?;
        at += 1 + length;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(label).into_owned());
    }
    let name = labels.join(".");
    let asked = question.get(HEADER_BYTES..at + 4)?;
    let kind = question.get(at..at + 2)?;
    let mut records = Vec::new();
    for service in services
        .iter()
        .filter(|one| kind == TYPE_SRV && one.name == name)
    {
        records.push(to_host(service)?);
    }
    let is_host = services.iter().any(|service| service.host == name);
    if is_host && kind == TYPE_A {
        records.push(vec![127, 0, 0, 1]);
    }
    let mut text = question.get(..2)?.to_vec();
    // An answer, recursion available; of a name that is known, or of none.
    let is_known = is_host || !records.is_empty();
    text.extend([0x81, if is_known { 0x80 } else { 0x83 }]);
    for count in [1, u16::try_from(records.len()).ok()?, 0, 0] {
        text.extend(count.to_be_bytes());
    }
    text.extend(asked);
    for record in records {
        text.extend(SAME_NAME);
        text.extend(kind);
        text.extend(CLASS_AND_TIME);
        text.extend(u16::try_from(record.len()).ok()?.to_be_bytes());
        text.extend(record);
    }
    Some((name, text))
}

/// What a service record holds; no priority and no weight.
fn to_host(service: &Service) -> Option<Vec<u8>> {
    let mut record = vec![0; 4];
    record.extend(service.port.to_be_bytes());
    for label in service.host.split('.') {
        record.push(u8::try_from(label.len()).ok()?);
        record.extend(label.as_bytes());
    }
    record.push(0);
    Some(record)
}
