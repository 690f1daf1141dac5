//! The bundled store's TLS and discovery, in the words of etcd's flags.

use std::path::{Path, PathBuf};

use crate::config::Settings;
use crate::failure::{ErrorName, Failure};

type Flags = Vec<(&'static str, String)>;

/// The files that the sections name, by their keys.
pub(crate) fn files(settings: &Settings) -> Vec<(&'static str, PathBuf)> {
    let store = &settings.config.store;
    let (tls, discovery) = (&store.peer_tls, &store.discovery);
    let named = [
        ("store.peer_tls.cert_file", &tls.cert_file),
        ("store.peer_tls.key_file", &tls.key_file),
        ("store.peer_tls.client_cert_file", &tls.client_cert_file),
        ("store.peer_tls.client_key_file", &tls.client_key_file),
        ("store.peer_tls.trusted_ca_file", &tls.trusted_ca_file),
        ("store.peer_tls.crl_file", &tls.crl_file),
        ("store.discovery.cacert", &discovery.cacert),
        ("store.discovery.cert", &discovery.cert),
        ("store.discovery.key", &discovery.key),
        ("store.discovery.password_file", &discovery.password_file),
    ];
    let named = named.into_iter().filter(|(_, file)| is_named(file));
    named
        .map(|(key, file)| (key, settings.resolve(file)))
        .collect()
}

fn is_named(file: &Path) -> bool {
    !file.as_os_str().is_empty()
}

fn path(settings: &Settings, file: &Path) -> String {
    if is_named(file) {
        settings.resolve(file).display().to_string()
    } else {
        String::new()
    }
}

/// TLS between members, and how fast snapshots go.
pub(super) fn between_members(settings: &Settings) -> Flags {
    let tls = &settings.config.store.peer_tls;
    let rate = settings.config.store.snapshot_send_rate;
    let path = |file: &PathBuf| path(settings, file);
    vec![
        ("--peer-cert-file", path(&tls.cert_file)),
        ("--peer-key-file", path(&tls.key_file)),
        ("--peer-client-cert-file", path(&tls.client_cert_file)),
        ("--peer-client-key-file", path(&tls.client_key_file)),
        ("--peer-trusted-ca-file", path(&tls.trusted_ca_file)),
        ("--peer-client-cert-auth", tls.client_cert_auth.to_string()),
        ("--peer-crl-file", path(&tls.crl_file)),
        ("--peer-cert-allowed-cn", tls.allowed_cn.join(",")),
        (
            "--peer-cert-allowed-hostname",
            tls.allowed_hostname.join(","),
        ),
        (
            "--peer-skip-client-san-verification",
            tls.skip_client_san_verification.to_string(),
        ),
        ("--peer-auto-tls", tls.auto.to_string()),
        (
            "--self-signed-cert-validity",
            tls.self_signed_validity.to_string(),
        ),
        ("--tls-min-version", tls.min_version.clone()),
        ("--tls-max-version", tls.max_version.clone()),
        ("--cipher-suites", tls.cipher_suites.join(",")),
        ("--snapshot-send-rate", rate.bytes().to_string()),
    ]
}

/// Where founders meet.
pub(super) fn discovery(settings: &Settings) -> Result<Flags, Failure> {
    let discovery = &settings.config.store.discovery;
    let path = |file: &PathBuf| path(settings, file);
    let password = if is_named(&discovery.password_file) {
        let file = settings.resolve(&discovery.password_file);
        let text = std::fs::read_to_string(&file).map_err(|error| {
            let what = "`store.discovery.password_file` cannot be read";
            Failure::new(ErrorName::ConfigInvalid, what)
                .because_of(format!("{}: {error}", file.display()))
        })?;
        text.trim_end_matches(['\n', '\r']).to_owned()
    } else {
        String::new()
    };
    Ok(vec![
        ("--discovery-token", discovery.token.clone()),
        ("--discovery-endpoints", discovery.endpoints.join(",")),
        ("--discovery-cacert", path(&discovery.cacert)),
        ("--discovery-cert", path(&discovery.cert)),
        ("--discovery-key", path(&discovery.key)),
        (
            "--discovery-insecure-skip-tls-verify",
            discovery.insecure_skip_tls_verify.to_string(),
        ),
        ("--discovery-user", discovery.user.clone()),
        ("--discovery-password", password),
        ("--discovery-srv", discovery.srv.clone()),
        ("--discovery-srv-name", discovery.srv_name.clone()),
    ])
}
