//! Command lines against a cluster, with what differs between two clusters masked.

use std::collections::BTreeMap;

use anyhow::Result;
use holdfast_interop::cluster::Cluster;
use holdfast_interop::run::Output;

/// What was asked and what came, line by line.
#[derive(Debug, Default)]
pub(crate) struct Script {
    lines: Vec<String>,
    /// Ids in hexadecimal, and the names that stand for them.
    ids: BTreeMap<String, String>,
}

impl Script {
    /// Runs an etcdctl command line against the member at `at`; words are parted by blanks, and a
    /// masked name in it stands for what is masked.
    pub(crate) fn step(&mut self, cluster: &Cluster, at: usize, line: &str) -> Result<Output> {
        let mut filled = line.to_owned();
        for place in 0..cluster.size() {
            let name = cluster.name(place);
            filled = filled.replace(&format!("PEER({name})"), &cluster.peer_url(place));
        }
        for (id, name) in &self.ids {
            filled = filled.replace(name, id);
        }
        let words: Vec<&str> = filled.split(' ').collect();
        let output = cluster.ctl(at).run(&words)?;
        self.learn(&output.stdout);
        self.lines.push(format!("$ {}: {line}", cluster.name(at)));
        self.lines.push(format!("exit code {}", output.code));
        self.add(cluster, &output.stdout);
        self.add(cluster, &output.stderr);
        Ok(output)
    }

    /// Adds an observation of another kind.
    pub(crate) fn note(&mut self, text: &str) {
        self.lines.push(text.to_owned());
    }

    /// Gives an id a name: from then on it is masked by it.
    pub(crate) fn name(&mut self, id: u64, name: &str) {
        self.ids.insert(format!("{id:x}"), format!("ID({name})"));
    }

    /// What was seen.
    pub(crate) fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Names the id of a member that was just added.
    fn learn(&mut self, output: &str) {
        let mut words = output.split_whitespace();
        if words.next() == Some("Member")
            && let Some(id) = words.next()
            && words.next() == Some("added")
            && !self.ids.contains_key(id)
        {
            let name = format!("ID(added{})", self.ids.len());
            self.ids.insert(id.to_owned(), name);
        }
    }

    /// Adds output, masked; lines in order of their text, because members come in order of ids.
    fn add(&mut self, cluster: &Cluster, text: &str) {
        let lines = text.lines().filter(|line| !line.starts_with("{\"level\""));
        let mut lines: Vec<String> = lines.map(|line| self.masked(cluster, line)).collect();
        lines.sort();
        self.lines.extend(lines);
    }

    fn masked(&self, cluster: &Cluster, line: &str) -> String {
        let mut line = line.to_owned();
        for place in 0..cluster.size() {
            let name = cluster.name(place);
            let hosts = [
                (cluster.peer_url(place), "PEER"),
                (cluster.endpoint(place), "CLIENT"),
            ];
            for (url, kind) in hosts {
                let host = url.trim_start_matches("http://").to_owned();
                line = line.replace(&url, &format!("{kind}({name})"));
                line = line.replace(&host, &format!("{kind}({name})"));
            }
        }
        for (id, name) in &self.ids {
            line = line.replace(id, name);
        }
        // Ids are padded to 16 digits.
        let mut words: Vec<String> = line.split_whitespace().map(masked_word).collect();
        if line.starts_with("CLIENT") && words.len() > 8 {
            // endpoint status: sizes, who leads, terms and positions in the log.
            for word in words.iter_mut().skip(4) {
                let is_free = ["true,", "B,", "kB,", "MB,", "GB,"].contains(&word.as_str());
                if is_free || word.trim_end_matches([',', '%']).parse::<f64>().is_ok() {
                    "FREE".clone_into(word);
                }
                if word == "false," {
                    "FREE".clone_into(word);
                }
            }
        }
        let line = words.join(" ");
        match line.strip_prefix("ETCD_INITIAL_CLUSTER=") {
            Some(members) => {
                let mut members: Vec<&str> = members.trim_matches('"').split(',').collect();
                members.sort_unstable();
                format!("ETCD_INITIAL_CLUSTER={}", members.join(","))
            }
            None => line,
        }
    }
}

/// A word without a cluster's id or a time.
fn masked_word(word: &str) -> String {
    let bare = word.trim_end_matches([',', ':', '.']);
    let is_id = bare.len() >= 14 && bare.chars().all(|c| c.is_ascii_hexdigit());
    let is_time = ["ms", "s", "us"].iter().any(|unit| {
        bare.strip_suffix(unit)
            .is_some_and(|number| number.parse::<f64>().is_ok())
    });
    match (is_id, is_time) {
        (true, _) => word.replace(bare, "ID"),
        (_, true) => word.replace(bare, "TIME"),
        _ => word.to_owned(),
    }
}

/// Fails with what is different between real etcd and ours.
pub(crate) fn assert_alike(real: &Script, ours: &Script) {
    let (real, ours) = (real.lines(), ours.lines());
    let differs = |(at, (real, ours)): (usize, (&String, &String))| (real != ours).then_some(at);
    let first = real.iter().zip(ours).enumerate().find_map(differs);
    let at = first.unwrap_or(real.len().min(ours.len()));
    let around = |lines: &[String]| {
        let from = at.saturating_sub(12);
        lines
            .iter()
            .skip(from)
            .take(24)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert!(
        real == ours,
        "line {at} differs\n--- etcd\n{}\n--- ours\n{}",
        around(real),
        around(ours)
    );
}
