//! The commented `holdfast.yaml` that `init` writes; `holdfast.example.yaml` is one of them.

/// What differs between one written file and the next.
#[derive(Debug, Clone)]
pub(crate) struct Example {
    encryption: String,
}

impl Example {
    /// Backups sealed for these recipients.
    pub(crate) fn sealed_for(recipients: &[String]) -> Self {
        let lines: Vec<String> = recipients
            .iter()
            .map(|one| format!("      - {one}"))
            .collect();
        Self {
            encryption: format!("  encryption:\n    recipients:\n{}", lines.join("\n")),
        }
    }

    /// Backups in clear.
    pub(crate) fn in_clear() -> Self {
        Self {
            encryption: "  encryption: none".to_owned(),
        }
    }

    /// The file in the repository: a recipient nobody has the identity of.
    pub(crate) fn sample() -> Self {
        Self::sealed_for(&[
            "age1lvyvwawkr0mcnnnncaghunadrqkmuf9e6507x9y920xxpp866cnql7dp2z".to_owned(),
        ])
    }
}

/// The file's text.
pub(crate) fn render(example: &Example) -> String {
    TEMPLATE.replace("  encryption: TO BE FILLED IN", &example.encryption)
}

const TEMPLATE: &str = r#"# Holdfast. Every key is in docs/reference/config.md; what is left out has its default.
# `holdfast config check` reads this file and starts nothing.

appliance:
  # Where this host keeps its store, keys and scratch space. Relative paths start at this file.
  data_dir: holdfast-data
  admin:
    # Status page, /healthz and /metrics. No login: keep it on loopback or behind a proxy.
    listen: 127.0.0.1:2384
  log:
    level: info

# The bundled etcd-compatible store. `enabled: false` where only real etcd clusters are backed up;
# take the `bundled` source out then.
store:
  enabled: true
  name: default
  listen_client_urls: ["http://127.0.0.1:2379"]

restore:
  # Where backups live. A vault on the disk that may be lost saves nobody: use another machine.
  vault:
    local:
      path: holdfast-data/vault
    # s3:
    #   bucket: backups
    #   prefix: holdfast
    #   endpoint: https://s3.example.com
    #   region: us-east-1
    #   credentials_file: /etc/holdfast/s3-credentials   # aws_access_key_id = ..., and so on

  # Further vaults, each with everything that the first has.
  # copies:
  #   - name: offsite
  #     vault: { s3: { bucket: backups-far, region: us-west-2 } }

  # What is backed up, one entry for each cluster; the name is its folder in the vault.
  sources:
    - name: bundled
      kind: bundled
    # - name: production
    #   kind:
    #     etcd:
    #       endpoints: ["https://10.0.0.1:2379", "https://10.0.0.2:2379", "https://10.0.0.3:2379"]
    #       tls:
    #         cacert: /etc/kubernetes/pki/etcd/ca.crt
    #         cert: /etc/kubernetes/pki/etcd/healthcheck-client.crt
    #         key: /etc/kubernetes/pki/etcd/healthcheck-client.key

policies:
  # For whom backups are sealed. Never leave this out: a file that does not say is refused.
  # Several recipients are fine, and one of them should be in a safe.
  encryption: TO BE FILLED IN

  backup:
    # Five cron fields, @hourly and its kin, or @every 20m. `holdfast policy check` shows the runs.
    schedule: "@hourly"
    time_zone: UTC
    missed_run: once
    # Each backup is read back and proven to this level.
    verify: L2

  drill:
    # A restore is rehearsed, measured and reported.
    schedule: "30 3 * * SUN"
    time_zone: UTC

  # `holdfast policy explain` gives the reason for each backup that stays or goes.
  retention:
    keep_last: 10
    keep_hourly: 24
    keep_daily: 7
    keep_weekly: 4
    keep_monthly: 12
    min_proven: 1

  # `holdfast status` compares these with the evidence and exits with 21 when one is missed.
  objective:
    rpo: 2h
    rto: 15m
"#;

#[cfg(test)]
mod tests {
    use super::super::load::parse;
    use super::*;

    #[test]
    fn every_written_file_is_a_valid_configuration() {
        for example in [Example::sample(), Example::in_clear()] {
            let text = render(&example);
            let config = parse(&text).unwrap();
            assert!(config.policies.encryption.is_some(), "{text}");
        }
    }
}
