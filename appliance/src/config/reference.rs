//! The reference page of `holdfast.yaml`, made from the types.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use super::section::{Section, Setting};
use super::sections::{
    Admin, Appliance, AutoCompaction, Config, Discovery, Drills, Log, PeerTls, Policies, Restore,
    Store,
};
use crate::failure::Failure;

const HEAD: &str = "\
# `holdfast.yaml`

One file for the daemon and every command. Sections are named after the parts they set up. A value
comes from `--set KEY=VALUE`, else from the environment (`HOLDFAST_` and the key in upper case with
two underscores for each dot: `HOLDFAST_POLICIES__BACKUP__SCHEDULE=@daily`), else from the file, else
from the default below. Unknown keys are refused, and so is a file without `policies.encryption`.
Durations carry a unit (`90s`, `20m`, `7d`), sizes too (`32MiB`, `2GB`). Secrets are named by file,
never written here. Relative paths start at the folder of this file. `holdfast config check` reads a
file, `holdfast config print` shows what is in force. Made by `holdfast reference`.
";

/// Keys of the kinds of vault and source, which have no default as a whole.
const VAULTS_AND_SOURCES: &str = "
## restore.vault.local

| key | default | |
|---|---|---|
| `path` | needed | The folder; made when missing. Put it on another disk, better on another machine. |

## restore.vault.s3

| key | default | |
|---|---|---|
| `bucket` | needed | The bucket, which must exist. |
| `prefix` | empty | Folder within the bucket. |
| `endpoint` | AWS | The server, as `https://host[:port]`. |
| `region` | `us-east-1` | The region. |
| `force_path_style` | `true` | Bucket in the path rather than in the host name. |
| `ca_file` | not set | Certificates to trust besides the system's, PEM. |
| `allow_http` | `false` | Plain HTTP, only towards this machine itself. |
| `request_checksum` | `none` | Checksum sent with each upload: `none`, `sha256` or `crc64nvme`; needed by buckets with object lock. |
| `object_lock` | not set | `{mode: governance, days: 7}` or `{mode: compliance, ...}`, on a bucket made with object lock: every object of the backups that retention keeps is locked for so many days, and again before half of them are over; what it lets go is removed when its lock has run out, `days` later at most. Nobody ends a lock by `compliance` early. |
| `credentials_file` | not set | A file with `aws_access_key_id = ...` and `aws_secret_access_key = ...` lines; without it the environment, web identity and instance credentials are used. |
| `proxy` | from `HTTPS_PROXY` | A proxy on the way, as a URL. |

The files are looked at before each request and read anew when they changed: rotated credentials and authorities need no restart.

## restore.vault.gcs

| key | default | |
|---|---|---|
| `bucket` | needed | The bucket of Google Cloud Storage, which must exist. |
| `prefix` | empty | Folder within the bucket. |
| `service_account_file` | not set | The key of a service account, in Google's JSON; without it the environment and the instance's own account are used. |
| `endpoint` | Google | Another server, as a URL. |
| `ca_file`, `allow_http`, `proxy` | as for `s3` | |

## restore.vault.azure

| key | default | |
|---|---|---|
| `account` | needed | The storage account. |
| `container` | needed | The container of Azure Blob Storage, which must exist. |
| `prefix` | empty | Folder within the container. |
| `access_key_file` | not set | A file that holds an access key of the account; without it the environment, workload identity and managed identity are used. |
| `endpoint` | Azure | Another server, as a URL. |
| `ca_file`, `allow_http`, `proxy` | as for `s3` | |

## restore.copies[]

| key | default | |
|---|---|---|
| `name` | needed | What it is called in commands, in `status` and in metrics; `first` is the vault of `restore.vault`. |
| `vault` | needed | Where it is, as `restore.vault`. |

## restore.sources[].kind.etcd

| key | default | |
|---|---|---|
| `endpoints` | needed | Client addresses, one of each member is best. |
| `tls.cacert` | needed with `tls` | Certificates to trust, PEM. |
| `tls.cert`, `tls.key` | not set | Our client certificate and its key, PEM. Read anew for each connection, so that rotated ones count. |
| `tls.server_name` | not set | The name expected in the server's certificate. |
| `user.name`, `user.password_file` | not set | Login, where authentication is on; reading a snapshot needs the `root` role. |
| `idle_timeout` | `30s` | A stream that brings no bytes for this long has failed. |
| `rate` | not set | At most so many bytes a second are read from the cluster, such as `20MiB`; not set means as fast as the vault takes them. At least 16KiB. |
| `lag_revisions_max` | `10000` | A member further behind the newest revision than this is not read. |
";

/// Keys of types that belong to other crates: section, key, what it is for.
const POLICY_KEYS: [(&str, &str, &str); 35] = [
    (
        "backup",
        "schedule",
        "Five cron fields, `@hourly` and its kin, or `@every 20m`; `null` leaves backups to `holdfast backup now`.",
    ),
    (
        "backup",
        "time_zone",
        "IANA name of the zone the cron fields follow.",
    ),
    (
        "backup",
        "missed_run",
        "What becomes of runs missed while the daemon was down: `skip` or `once`.",
    ),
    (
        "backup",
        "verify",
        "Level each new backup is proven to: `L0`, `L1` or `L2`. Without an identity on this host it stays at L0, and `status` says so.",
    ),
    (
        "drill",
        "schedule",
        "As for backups; `null` leaves drills to `holdfast drill run`.",
    ),
    (
        "drill",
        "time_zone",
        "IANA name of the zone the cron fields follow.",
    ),
    ("drill", "missed_run", "`skip` or `once`."),
    (
        "drill",
        "deadline",
        "A drill not done by then is ended and has failed.",
    ),
    ("retention", "keep_last", "The newest so many backups."),
    (
        "retention",
        "keep_hourly",
        "The newest of each of the last so many hours that have one.",
    ),
    ("retention", "keep_daily", "The same for days."),
    (
        "retention",
        "keep_weekly",
        "The same for weeks (Monday to Sunday).",
    ),
    ("retention", "keep_monthly", "The same for months."),
    ("retention", "keep_yearly", "The same for years."),
    (
        "retention",
        "keep_within",
        "Everything at most so much older than the newest, verified or not.",
    ),
    (
        "retention",
        "recovery_window",
        "Whatever is needed to go back to any captured moment of so much time before the newest stays: its backups of any pool, and the one its beginning is reached from.",
    ),
    (
        "retention",
        "manual",
        "The same rules for backups that somebody asked for (`backup now`): neither they nor scheduled ones push one of the other out.",
    ),
    (
        "retention",
        "min_proven",
        "So many of the newest backups proven by a drill stay whatever the other rules say; at least 1.",
    ),
    (
        "retention",
        "count_from",
        "Level from which a backup counts for the rules. Where no identity is at hand nothing passes L0: say `L0` there and let another host prove. One that does not count yet and is not damaged stays while the rules would keep it if it counted.",
    ),
    (
        "retention",
        "time_zone",
        "Zone whose hours, days, weeks, months and years are meant.",
    ),
    (
        "retention",
        "max_deletions",
        "At most so many go in one run; the rest waits for the next.",
    ),
    (
        "retention",
        "trash_grace",
        "What is let go stays in the trash so much longer: no longer offered, `backup undelete` brings it back. A reader whose credentials cannot mark what it reads has that long to finish. `0s` removes at once, for good.",
    ),
    (
        "retention",
        "clock_tolerance",
        "Clocks that differ by more than this make a run refuse.",
    ),
    (
        "retention",
        "gap_max",
        "A longer silence between two backups looks like a clock that was set: a run refuses until an operator confirms it.",
    ),
    ("retention.manual", "keep_last", "The newest so many."),
    ("retention.manual", "keep_hourly", "As for scheduled ones."),
    ("retention.manual", "keep_daily", "As for scheduled ones."),
    ("retention.manual", "keep_weekly", "As for scheduled ones."),
    ("retention.manual", "keep_monthly", "As for scheduled ones."),
    ("retention.manual", "keep_yearly", "As for scheduled ones."),
    (
        "retention.manual",
        "keep_within",
        "Everything at most so much older than the newest backup of any pool.",
    ),
    (
        "objective",
        "rpo",
        "Tolerated loss: how old the newest usable backup may be.",
    ),
    (
        "objective",
        "rto",
        "Tolerated time to be back, as drills measure it.",
    ),
    (
        "objective",
        "drill_age",
        "How old the newest passed drill may be.",
    ),
    (
        "objective",
        "rpo_level",
        "Level of proof a backup needs to count for `rpo`.",
    ),
];

/// The page.
pub(crate) fn render() -> Result<String, Failure> {
    let mut page = HEAD.to_owned();
    section::<Config>(&mut page, "(top level)", false)?;
    section::<Appliance>(&mut page, "appliance", true)?;
    section::<Admin>(&mut page, "appliance.admin", true)?;
    section::<Log>(&mut page, "appliance.log", true)?;
    section::<Store>(&mut page, "store", true)?;
    section::<PeerTls>(&mut page, "store.peer_tls", true)?;
    section::<Discovery>(&mut page, "store.discovery", true)?;
    section::<AutoCompaction>(&mut page, "store.auto_compaction", true)?;
    section::<Restore>(&mut page, "restore", true)?;
    page.push_str(VAULTS_AND_SOURCES);
    section::<Policies>(&mut page, "policies", false)?;
    policy_sections(&mut page)?;
    section::<Drills>(&mut page, "drills", true)?;
    Ok(page)
}

fn section<T: Section + Default + Serialize>(
    page: &mut String,
    path: &str,
    has_defaults: bool,
) -> Result<(), Failure> {
    let defaults = tree_of(&T::default())?;
    push(page, &format!("\n## {path}\n\n{}\n", T::about()));
    if has_defaults {
        push(page, "| key | default | |\n|---|---|---|");
    } else {
        push(page, "| key | |\n|---|---|");
    }
    for Setting { key, doc } in T::settings() {
        match defaults.get(key) {
            Some(default) if has_defaults => {
                push(page, &format!("| `{key}` | {} | {doc} |", shown(default)));
            }
            _ => push(page, &format!("| `{key}` | {doc} |")),
        }
    }
    Ok(())
}

fn policy_sections(page: &mut String) -> Result<(), Failure> {
    let defaults = tree_of(&Policies::default())?;
    let mut last = "";
    for (section, key, doc) in POLICY_KEYS {
        if section != last {
            push(
                page,
                &format!("\n## policies.{section}\n\n| key | default | |\n|---|---|---|"),
            );
            last = section;
        }
        let default = section
            .split('.')
            .chain([key])
            .try_fold(&defaults, |place, step| place.get(step))
            .unwrap_or(&Value::Null);
        push(page, &format!("| `{key}` | {} | {doc} |", shown(default)));
    }
    Ok(())
}

fn tree_of<T: Serialize>(value: &T) -> Result<Value, Failure> {
    serde_json::to_value(value)
        .map_err(|e| Failure::unexpected("the defaults could not be laid out", &e))
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "not set".to_owned(),
        Value::String(text) if text.is_empty() => "empty".to_owned(),
        Value::String(text) => format!("`{text}`"),
        Value::Object(_) => "see below".to_owned(),
        other => format!("`{other}`"),
    }
}

fn push(page: &mut String, line: &str) {
    // Writing to a String cannot fail.
    writeln!(page, "{line}").unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_key_of_the_policies_is_on_the_page() {
        let tree = tree_of(&Policies::default()).unwrap();
        let mut found = BTreeSet::new();
        for section in ["backup", "drill", "retention", "objective"] {
            for key in tree[section].as_object().unwrap().keys() {
                found.insert((section, key.clone()));
            }
        }
        for key in tree["retention"]["manual"].as_object().unwrap().keys() {
            found.insert(("retention.manual", key.clone()));
        }
        let listed: BTreeSet<_> = POLICY_KEYS
            .iter()
            .map(|(section, key, _)| (*section, (*key).to_owned()))
            .collect();
        assert_eq!(listed, found);
    }
}
