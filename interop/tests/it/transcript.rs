//! The same etcdctl command lines against two servers, compared line by line.

use std::collections::BTreeMap;

use anyhow::Result;
use holdfast_interop::etcdctl::Etcdctl;
use holdfast_interop::peers::Peers;
use holdfast_interop::run::Output;
use holdfast_interop::server::Server;
use serde_json::Value;

use crate::pair::Pair;

/// JSON fields that differ between two clusters by nature: identities, raft positions, sizes of
/// files on disk, and what the storage engine reports of itself.
const FREE_FIELDS: [&str; 15] = [
    "ID",
    "peerURLs",
    "cluster_id",
    "member_id",
    "raft_term",
    "raftTerm",
    "raftIndex",
    "raftAppliedIndex",
    "leader",
    "dbSize",
    "dbSizeInUse",
    "took",
    "memberID",
    "downgradeInfo",
    "Took",
];

/// Runs command lines against both servers and collects what differs.
pub(crate) struct Transcript {
    sides: [Side; 2],
    differences: Vec<String>,
    steps: usize,
}

struct Side {
    ctl: Etcdctl,
    endpoint: String,
    /// Placeholders and what they stand for on this server, for example `$LEASE`.
    names: BTreeMap<String, String>,
}

impl Transcript {
    pub(crate) fn new(peers: &Peers, pair: &Pair) -> Self {
        let side = |server: &Server| Side {
            ctl: Etcdctl::new(peers, &server.endpoint()),
            endpoint: server.endpoint(),
            names: BTreeMap::new(),
        };
        Self {
            sides: [side(&pair.real), side(&pair.ours)],
            differences: Vec::new(),
            steps: 0,
        }
    }

    /// Runs a command line, given as one string with words parted by blanks.
    pub(crate) fn step(&mut self, line: &str) -> Result<()> {
        self.step_with_input(line, "")
    }

    /// Runs a command line that reads `input`.
    pub(crate) fn step_with_input(&mut self, line: &str, input: &str) -> Result<()> {
        let mut seen = Vec::new();
        for side in &self.sides {
            let words: Vec<String> = line.split(' ').map(|word| side.fill(word)).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            seen.push(side.normal(&side.ctl.run_with_input(&words, &side.fill(input))?));
        }
        self.compare(line, &seen);
        Ok(())
    }

    /// Runs several command lines.
    pub(crate) fn steps(&mut self, lines: &[&str]) -> Result<()> {
        lines.iter().try_for_each(|line| self.step(line))
    }

    /// Runs a command line on both and remembers what `pick` finds in its output as `name`.
    pub(crate) fn remember(
        &mut self,
        name: &str,
        line: &str,
        pick: impl Fn(&str) -> Option<String>,
    ) -> Result<()> {
        for side in &mut self.sides {
            let words: Vec<&str> = line.split(' ').collect();
            let output = side.ctl.run(&words)?.success()?;
            let value = pick(&output.stdout)
                .ok_or_else(|| anyhow::anyhow!("{line}: no {name} in {}", output.stdout))?;
            side.names.insert(name.to_owned(), value);
        }
        Ok(())
    }

    /// Records a difference between two observations of `what`.
    pub(crate) fn compare(&mut self, what: &str, seen: &[String]) {
        self.steps += 1;
        if let [real, ours] = seen
            && real != ours
        {
            self.differences
                .push(format!("$ {what}\n--- etcd\n{real}\n--- ours\n{ours}\n"));
        }
    }

    /// Both etcdctl, real first.
    pub(crate) fn tools(&self) -> [Etcdctl; 2] {
        self.sides.each_ref().map(|side| side.ctl.clone())
    }

    /// Fails with every difference.
    pub(crate) fn finish(self) {
        let Self {
            differences, steps, ..
        } = self;
        assert!(
            differences.is_empty(),
            "{} of {steps} steps differ:\n{}",
            differences.len(),
            differences.join("\n")
        );
    }
}

impl Side {
    /// `text` with placeholders replaced by this server's values.
    fn fill(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, value) in &self.names {
            text = text.replace(name, value);
        }
        text
    }

    /// What a client saw, without what must differ.
    fn normal(&self, output: &Output) -> String {
        let mut out = match serde_json::from_str::<Value>(&output.stdout) {
            Ok(mut value) if value.is_object() || value.is_array() => {
                free(&mut value);
                value.to_string()
            }
            _ => output
                .stdout
                .lines()
                .map(free_line)
                .collect::<Vec<_>>()
                .join("\n"),
        };
        // Log lines of etcdctl itself hold addresses of its memory.
        let errors = output
            .stderr
            .lines()
            .filter(|line| !line.starts_with("{\"level\""));
        let errors: Vec<String> = errors.map(free_line).collect();
        let mut errors = errors.join("\n");
        let host = self.endpoint.trim_start_matches("http://");
        for text in [&mut out, &mut errors] {
            *text = text
                .replace(&self.endpoint, "ENDPOINT")
                .replace(host, "ENDPOINT");
            for (name, value) in &self.names {
                *text = text.replace(value, name);
                // JSON has ids as decimal numbers, text as hexadecimal ones.
                if let Ok(id) = i64::from_str_radix(value, 16) {
                    *text = text.replace(&id.to_string(), &format!("\"{name}\""));
                }
            }
        }
        format!("exit code {}\n{out}\n{errors}", output.code)
    }
}

/// Blanks out the fields that may differ, at any depth.
fn free(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                if FREE_FIELDS.contains(&name.as_str()) {
                    *value = Value::String("FREE".to_owned());
                } else {
                    free(value);
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(free),
        _ => {}
    }
}

/// Blanks out identities, sizes and times in a line of text output.
fn free_line(line: &str) -> String {
    let fields = [
        "\"ClusterID\"",
        "\"MemberID\"",
        "\"RaftTerm\"",
        "\"Revision\" : 0",
    ];
    if let Some(field) = fields.iter().find(|field| line.starts_with(**field)) {
        return format!("{field} FREE");
    }
    let words = line.split_inclusive([' ', ',', '\t']);
    words
        .map(|word| if is_free(word) { "FREE " } else { word })
        .collect()
}

/// Whether a word is a duration, a size or a 64-bit id.
fn is_free(word: &str) -> bool {
    let word = word.trim_end_matches([' ', ',', '\t', ':']);
    let is_hex = word.len() >= 15 && word.chars().all(|c| c.is_ascii_hexdigit());
    let number = word.trim_end_matches(|c: char| c.is_alphabetic());
    let unit = word.get(number.len()..).unwrap_or_default();
    let is_number = number.parse::<f64>().is_ok();
    is_hex || (is_number && ["ms", "s", "us", "ns", "kB", "MB", "B"].contains(&unit))
}
