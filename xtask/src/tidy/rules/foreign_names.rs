//! No name of a machine in a tracked text: no path of somebody's home, no host but those that stand
//! for any host.

use crate::tidy::check::Finding;
use crate::tidy::tree::Tree;

/// Folders that only one machine has, between slashes.
const MACHINE_FOLDERS: [&str; 4] = ["root", "home", "Users", "work"];
/// Hosts that a reader may be sent to.
const HOSTS: [&str; 4] = [
    "github.com",
    "www.apache.org",
    "keepachangelog.com",
    "semver.org",
];
/// Ends of host names that are kept free for examples.
const EXAMPLES: [&str; 5] = [
    ".example",
    "example.com",
    "example.org",
    "example.net",
    ".invalid",
];

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let texts = tree.texts("").filter(|(path, _)| !path.ends_with("go.sum"));
    for (path, text) in texts {
        for (number, line) in (1..).zip(text.lines()) {
            for folder in MACHINE_FOLDERS {
                if has_folder(line, folder) {
                    let text = format!("/{folder}/ is a path of one machine");
                    findings.push(Finding::line(path, number, text));
                }
            }
            for host in hosts(line).filter(|host| !is_allowed(host)) {
                let text = format!("{host}: name no host; for examples there is example.org");
                findings.push(Finding::line(path, number, text));
            }
        }
    }
    findings
}

/// Whether an absolute path into `/folder/` stands in `line`.
fn has_folder(line: &str, folder: &str) -> bool {
    let start = format!("/{folder}/");
    line.match_indices(&start).any(|(at, found)| {
        let (before, rest) = line.split_at(at);
        let is_start = before
            .chars()
            .next_back()
            .is_none_or(|c| c.is_whitespace() || "\"'`(=:".contains(c));
        let after = rest.split_at(found.len()).1;
        is_start && after.starts_with(|c: char| c.is_ascii_alphanumeric())
    })
}

/// The host of each address in `line`.
fn hosts(line: &str) -> impl Iterator<Item = &str> {
    line.split("://").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '-');
        end.map_or(rest, |end| rest.split_at(end).0)
    })
}

fn is_allowed(host: &str) -> bool {
    let is_name = host.contains('.') && host.chars().any(|c| c.is_ascii_alphabetic());
    // Without a dot it is a name of this machine or of a test; numbers are loopback or private.
    if !is_name {
        return host.is_empty() || !host.contains('.') || is_private(host);
    }
    HOSTS.contains(&host) || EXAMPLES.iter().any(|end| host.ends_with(end))
}

/// Whether an address of numbers is loopback, private, unspecified or kept for documentation.
fn is_private(host: &str) -> bool {
    host.trim_end_matches('.')
        .parse::<std::net::Ipv4Addr>()
        .map_or(true, |address| {
            address.is_loopback()
                || address.is_private()
                || address.is_unspecified()
                || address.is_documentation()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        check(&Tree::of(&[("docs/a.md", text)])).len()
    }

    #[test]
    fn examples_loopback_and_placeholders_pass() {
        for text in [
            "http://127.0.0.1:2379 http://localhost:1 https://s3.example.com/x",
            "https://10.0.0.1:2379 http://{address}/ http://h{n}:2380 http://[::1]:1",
            "see https://github.com/rust-lang/rust and src/work/home/x",
        ] {
            assert_eq!(found(text), 0, "{text}");
        }
    }

    #[test]
    fn hosts_and_paths_of_a_machine_are_found() {
        for folder in MACHINE_FOLDERS {
            assert_eq!(found(&format!("run `/{folder}/x/y`\n")), 1, "{folder}");
        }
        let host = ["registry", "internal", "corp"].join(".");
        assert_eq!(found(&format!("from https://{host}:5000/x\n")), 1);
        assert_eq!(found(&format!("http://{}.{}:80\n", "8.8", "8.8")), 1);
    }
}
