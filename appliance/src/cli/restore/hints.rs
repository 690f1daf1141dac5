//! What to do after a restore, as commands to copy: how each member is started, and how the other
//! members of the same cluster are restored.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use holdfast_restore::plan::{NewMember, PlannedMember};
use holdfast_restore::{RestorePlan, Target};

use super::{DEFAULT_PEER_URL, RestoreArgs};
use crate::cli::args::Global;

/// The flags by which this command found its configuration: another one needs them too.
pub(super) fn shared(global: &Global) -> Vec<String> {
    let mut words = Vec::new();
    if let Some(config) = &global.config {
        words.extend(["--config".to_owned(), config.display().to_string()]);
    }
    for set in &global.set {
        words.extend(["--set".to_owned(), set.clone()]);
    }
    words
}

/// How the daemon is started with the same configuration.
pub(super) fn run(global: &Global) -> String {
    let mut words = vec!["holdfast".to_owned(), "run".to_owned()];
    words.extend(shared(global));
    line(&words)
}

/// The commands that restore `members` into one cluster with what `plan` writes: the same backup,
/// token and revision, said in so many words.
pub(super) fn restores<'a>(
    (args, global): (&RestoreArgs, &Global),
    plan: &RestorePlan,
    members: impl Iterator<Item = &'a NewMember>,
) -> Vec<String> {
    let pairs = plan.members.iter().flat_map(|member| {
        let urls = member.peer_urls.iter();
        urls.map(move |url| format!("{}={url}", member.name))
    });
    let cluster = pairs.collect::<Vec<_>>().join(",");
    let words = |member: &NewMember| {
        let dir = beside(&plan.data_dir, &args.name, &member.name);
        let mut words = vec![
            "holdfast".to_owned(),
            "restore".to_owned(),
            plan.id.to_string(),
            "--source".to_owned(),
            plan.cluster.to_string(),
            "--target".to_owned(),
            plan.target.to_string(),
            "--data-dir".to_owned(),
            dir.display().to_string(),
            "--name".to_owned(),
            member.name.clone(),
            "--initial-cluster".to_owned(),
            cluster.clone(),
            "--initial-cluster-token".to_owned(),
            plan.token.clone(),
            "--bump-revision".to_owned(),
            plan.bump.to_string(),
        ];
        if plan.replay.is_some() {
            words.extend(["--revision".to_owned(), plan.revision.to_string()]);
        }
        if !plan.mark_compacted {
            words.push("--mark-compacted=false".to_owned());
        }
        if plan.clear_alarms {
            words.push("--clear-alarms".to_owned());
        }
        if let Some(vault) = &args.vault {
            words.extend(["--vault".to_owned(), vault.clone()]);
        }
        if let Some(file) = &args.identity {
            words.extend(["--identity".to_owned(), file.display().to_string()]);
        }
        words.extend(shared(global));
        line(&words)
    };
    members.map(words).collect()
}

/// The members of the new cluster whose data is not written by `plan`.
pub(super) fn others(plan: &RestorePlan) -> impl Iterator<Item = &NewMember> {
    let is_written = |member: &NewMember| plan.write.iter().any(|one| one.name == member.name);
    plan.members.iter().filter(move |one| !is_written(one))
}

/// How a member is started from its new data directory.
pub(super) fn start(plan: &RestorePlan, member: &PlannedMember) -> String {
    let mut words: Vec<String> = match plan.target {
        Target::Holdfast => vec!["holdfast".to_owned(), "store".to_owned()],
        Target::Etcd => vec!["etcd".to_owned()],
    };
    let dir = member.data_dir.display().to_string();
    words.extend(["--name".to_owned(), member.name.clone()]);
    words.extend(["--data-dir".to_owned(), dir]);
    let own = plan.members.iter().find(|one| one.name == member.name);
    let urls = own.map_or(&[][..], |one| one.peer_urls.as_slice());
    if urls != [DEFAULT_PEER_URL] {
        words.extend(addresses(urls));
    }
    let text = line(&words);
    if urls.iter().any(|url| url.starts_with("https:")) {
        return format!("{text} (and its TLS flags)");
    }
    text
}

/// Where a member listens: at its peer URLs, and for clients at the port before, as etcd's own
/// defaults are.
fn addresses(peer_urls: &[String]) -> Vec<String> {
    let (mut peers, mut listen, mut advertise) = (Vec::new(), Vec::new(), Vec::new());
    for url in peer_urls {
        let Some((scheme, host, port)) = parts(url) else {
            continue;
        };
        let ip = bindable(host);
        peers.push(format!("{scheme}://{ip}:{port}"));
        if let Some(port) = port.checked_sub(1).filter(|port| *port > 0) {
            listen.push(format!("{scheme}://{ip}:{port}"));
            advertise.push(format!("{scheme}://{host}:{port}"));
        }
    }
    let flags = [
        ("--listen-peer-urls", peers),
        ("--listen-client-urls", listen),
        ("--advertise-client-urls", advertise),
    ];
    let given = flags.into_iter().filter(|(_, urls)| !urls.is_empty());
    given
        .flat_map(|(flag, urls)| [flag.to_owned(), urls.join(",")])
        .collect()
}

/// Scheme, host and port of a URL that names all three.
fn parts(url: &str) -> Option<(&str, &str, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split('/').next()?;
    let (host, port) = authority.rsplit_once(':')?;
    Some((scheme, host, port.parse().ok()?))
}

/// etcd binds to addresses, not to names.
fn bindable(host: &str) -> &str {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if host == "localhost" || bare.parse::<IpAddr>().is_ok() {
        host
    } else {
        "0.0.0.0"
    }
}

/// The data directory of another member: named after it where this one's is.
fn beside(data_dir: &Path, own: &str, other: &str) -> PathBuf {
    let name = data_dir.file_name().map(|name| name.to_string_lossy());
    match name {
        Some(name) if name.contains(own) => data_dir.with_file_name(name.replacen(own, other, 1)),
        _ => data_dir.to_owned(),
    }
}

/// One line for a shell.
fn line(words: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    let quoted = |word: &String| {
        if !word.is_empty() && word.chars().all(is_plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_listens_at_its_address_and_for_clients_at_the_port_before() {
        let flags = addresses(&["http://10.0.0.1:2380".to_owned()]);
        assert_eq!(
            flags.join(" "),
            "--listen-peer-urls http://10.0.0.1:2380 --listen-client-urls http://10.0.0.1:2379 \
             --advertise-client-urls http://10.0.0.1:2379"
        );
        let flags = addresses(&["https://m1.example:12380".to_owned()]);
        assert_eq!(
            flags.join(" "),
            "--listen-peer-urls https://0.0.0.0:12380 --listen-client-urls https://0.0.0.0:12379 \
             --advertise-client-urls https://m1.example:12379"
        );
        assert!(addresses(&["http://m1".to_owned()]).is_empty());
    }

    #[test]
    fn the_directory_of_another_member_is_named_after_it() {
        assert_eq!(
            beside(Path::new("/x/m1.etcd"), "m1", "m2"),
            Path::new("/x/m2.etcd")
        );
        assert_eq!(
            beside(Path::new("/x/data"), "m1", "m2"),
            Path::new("/x/data")
        );
    }

    #[test]
    fn a_command_that_is_offered_has_the_configuration_of_this_one() {
        let global = Global {
            config: Some("/etc/my holdfast.yaml".into()),
            set: vec!["restore.vault={local: {path: v}}".to_owned()],
            write_out: None,
            log_level: None,
            log_format: None,
        };
        assert_eq!(
            run(&global),
            "holdfast run --config '/etc/my holdfast.yaml' --set 'restore.vault={local: {path: v}}'"
        );
    }

    #[test]
    fn a_word_that_a_shell_would_read_otherwise_is_quoted() {
        let words = ["a b", "plain-1.etcd", "it's", "http://[::1]:1"].map(str::to_owned);
        assert_eq!(
            line(&words),
            "'a b' plain-1.etcd 'it'\\''s' 'http://[::1]:1'"
        );
    }
}
