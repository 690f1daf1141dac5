//! `--peer-cert-file` and its kin: TLS between members.

use std::path::PathBuf;

use super::flags::Values;
use super::{ListenUrl, UsageError, value};
use crate::tls::{Accepted, FilePair, PEER, Protocol, TlsOptions};

/// Most years a made certificate may be valid for.
const YEARS_MAX: u32 = 1000;

/// TLS between members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerTls {
    /// With certificates from files.
    Files(Box<TlsOptions>),
    /// With a certificate made at each start, which nobody can check (`--peer-auto-tls`).
    Made {
        /// How long it is valid, in years of 365 days (`--self-signed-cert-validity`).
        years: u32,
        /// Versions and ciphers.
        protocol: Protocol,
    },
}

/// Reads the flags; `None` when there is no TLS.
pub(super) fn read(
    values: &Values,
    listen: &[ListenUrl],
    warnings: &mut Vec<String>,
) -> Result<Option<PeerTls>, UsageError> {
    let get = |name: &str| text(values, name);
    let is_on = |name: &str| get(name).map_or(Ok(false), |text| value::boolean(name, text));
    let protocol = protocol(values, warnings)?;
    let identity = pair(values, PEER.cert, PEER.key)?;
    let client_identity =
        given(values, PEER.client_cert, PEER.client_key).map_err(|[cert, key]| {
            UsageError::new(format!(
                "ClientKeyFile and ClientCertFile must both be present or both absent: key: {key}, \
             cert: {cert}]"
            ))
        })?;
    let years: u32 = match get("self-signed-cert-validity") {
        Some(text) => value::number("self-signed-cert-validity", text)?,
        None => 1,
    };
    let is_auto = is_on("peer-auto-tls")?;
    let files = TlsOptions {
        identity,
        client_identity,
        authorities: get(PEER.authorities).map(PathBuf::from),
        asks_callers: is_on("peer-client-cert-auth")?,
        revoked: get(PEER.revoked).map(PathBuf::from),
        accepted: accepted(values)?,
        skips_address: is_on("peer-skip-client-san-verification")?,
        server_name: None,
        is_unchecked: false,
        protocol: protocol.clone(),
        ..TlsOptions::new(&PEER)
    };
    warn(&files, is_auto, listen, warnings);
    if is_auto && files.identity.is_none() {
        if !(1..=YEARS_MAX).contains(&years) {
            return Err(UsageError::new(
                "selfSignedCertValidity is invalid,it should be greater than 0",
            ));
        }
        return Ok(Some(PeerTls::Made { years, protocol }));
    }
    let secure = listen.iter().find(|url| url.is_secure());
    if let Some(url) = secure.filter(|_| files.identity.is_none()) {
        let address = url.to_string();
        let address = address.trim_start_matches("https://");
        return Err(UsageError::new(format!(
            "cannot listen on TLS for {address}: KeyFile and CertFile are not presented \
             (--{}, --{} or --peer-auto-tls)",
            PEER.cert, PEER.key
        )));
    }
    let is_given = files.identity.is_some() || files.authorities.is_some();
    Ok(is_given.then(|| PeerTls::Files(Box::new(files))))
}

fn text<'a>(values: &'a Values, name: &str) -> Option<&'a str> {
    let found = values.get(name).map(String::as_str);
    found.filter(|text| !text.is_empty())
}

/// etcd's words for what is given and has no effect.
fn warn(files: &TlsOptions, is_auto: bool, listen: &[ListenUrl], warnings: &mut Vec<String>) {
    let has_files = files.identity.is_some();
    if has_files && is_auto {
        warnings.push("ignoring peer auto TLS since certs given".to_owned());
    }
    for url in listen.iter().filter(|url| !url.is_secure()) {
        if has_files || is_auto {
            warnings.push(format!(
                "scheme is HTTP while key and cert files are present; ignoring key and cert files: \
                 {url}"
            ));
        }
        if files.asks_callers {
            warnings.push(format!(
                "scheme is HTTP while --peer-client-cert-auth is enabled; ignoring client cert \
                 auth for this URL: {url}"
            ));
        }
    }
}

/// A certificate and its key.
pub(super) fn pair(values: &Values, cert: &str, key: &str) -> Result<Option<FilePair>, UsageError> {
    given(values, cert, key).map_err(|[cert, key]| {
        UsageError::new(format!(
            "KeyFile and CertFile must both be present[key: {key}, cert: {cert}]"
        ))
    })
}

/// Two files that go together; their texts when one is missing.
fn given(values: &Values, cert: &str, key: &str) -> Result<Option<FilePair>, [String; 2]> {
    match (text(values, cert), text(values, key)) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(FilePair {
            certificate: PathBuf::from(certificate),
            key: PathBuf::from(key),
        })),
        (cert, key) => Err([cert, key].map(|text| text.unwrap_or_default().to_owned())),
    }
}

fn accepted(values: &Values) -> Result<Accepted, UsageError> {
    let list = |name: &str| {
        let given = text(values, name).unwrap_or_default().split(',');
        let given = given.map(str::trim).filter(|part| !part.is_empty());
        given.map(str::to_owned).collect::<Vec<String>>()
    };
    let names = list("peer-cert-allowed-cn");
    let hosts = list("peer-cert-allowed-hostname");
    match (names.is_empty(), hosts.is_empty()) {
        (true, true) => Ok(Accepted::Any),
        (false, true) => Ok(Accepted::CommonNames(names)),
        (true, false) => Ok(Accepted::Hosts(hosts)),
        (false, false) => Err(UsageError::new(format!(
            "AllowedCNs and AllowedHostnames are mutually exclusive (cns={names:?}, \
             hostnames={hosts:?})"
        ))),
    }
}

/// Reads `--tls-min-version`, `--tls-max-version` and `--cipher-suites`.
fn protocol(values: &Values, warnings: &mut Vec<String>) -> Result<Protocol, UsageError> {
    let suites: Vec<&str> = text(values, "cipher-suites")
        .unwrap_or_default()
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect();
    let mut weak = Vec::new();
    let min = text(values, "tls-min-version").unwrap_or_default();
    let max = text(values, "tls-max-version").unwrap_or_default();
    let protocol = Protocol::read(min, max, &suites, &mut weak).map_err(UsageError::new)?;
    for name in weak {
        warnings.push(format!("--cipher-suites: {name} is weak and not offered"));
    }
    Ok(protocol)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(
        flags: &[(&'static str, &str)],
        listen: &str,
    ) -> Result<(Option<PeerTls>, Vec<String>), String> {
        let values = flags.iter().map(|(name, text)| (*name, (*text).to_owned()));
        let mut warnings = Vec::new();
        let listen = [ListenUrl::parse(listen).unwrap()];
        read(&values.collect(), &listen, &mut warnings)
            .map(|read| (read, warnings))
            .map_err(|error| error.to_string())
    }

    const CERT: (&str, &str) = ("peer-cert-file", "/c");
    const KEY: (&str, &str) = ("peer-key-file", "/k");
    const SECURE: &str = "https://127.0.0.1:2380";

    #[test]
    fn peer_tls_is_read_from_etcds_flags() {
        assert_eq!(
            outcome(&[], "http://127.0.0.1:2380"),
            Ok((None, Vec::new()))
        );
        let (read, warnings) = outcome(
            &[
                CERT,
                KEY,
                ("peer-trusted-ca-file", "/ca"),
                ("peer-client-cert-auth", "true"),
                ("peer-cert-allowed-cn", "a, b"),
                ("peer-skip-client-san-verification", "true"),
            ],
            SECURE,
        )
        .unwrap();
        let Some(PeerTls::Files(options)) = read else {
            panic!("{read:?}");
        };
        assert!(warnings.is_empty(), "{warnings:?}");
        assert_eq!(options.authorities, Some(PathBuf::from("/ca")));
        assert!(options.asks_callers && options.skips_address);
        assert_eq!(
            options.accepted,
            Accepted::CommonNames(vec!["a".to_owned(), "b".to_owned()])
        );
        let (read, _) = outcome(&[("peer-auto-tls", "true")], SECURE).unwrap();
        assert!(matches!(read, Some(PeerTls::Made { years: 1, .. })));
    }

    #[test]
    fn what_has_no_effect_is_warned_of_in_etcds_words() {
        let auto = ("peer-auto-tls", "true");
        let asks = ("peer-client-cert-auth", "true");
        let (_, warnings) = outcome(&[CERT, KEY, auto, asks], "http://127.0.0.1:2380").unwrap();
        let starts = [
            "ignoring peer auto TLS since certs given",
            "scheme is HTTP while key and cert files are present; ignoring key and cert files",
            "scheme is HTTP while --peer-client-cert-auth is enabled; ignoring client cert auth",
        ];
        assert_eq!(warnings.len(), starts.len(), "{warnings:?}");
        for (warning, start) in warnings.iter().zip(starts) {
            assert!(warning.starts_with(start), "{warning}");
        }
    }

    #[test]
    fn half_of_tls_is_refused_in_etcds_words() {
        for (flags, text) in [
            (
                vec![CERT],
                "KeyFile and CertFile must both be present[key: , cert: /c]",
            ),
            (
                vec![CERT, KEY, ("peer-client-key-file", "/x")],
                "ClientKeyFile and ClientCertFile must both be present or both absent",
            ),
            (
                vec![],
                "cannot listen on TLS for 127.0.0.1:2380: KeyFile and CertFile are not presented",
            ),
            (
                vec![
                    CERT,
                    KEY,
                    ("peer-cert-allowed-cn", "a"),
                    ("peer-cert-allowed-hostname", "h"),
                ],
                "AllowedCNs and AllowedHostnames are mutually exclusive",
            ),
            (
                vec![
                    ("peer-auto-tls", "true"),
                    ("self-signed-cert-validity", "0"),
                ],
                "selfSignedCertValidity is invalid,it should be greater than 0",
            ),
            (
                vec![CERT, KEY, ("tls-min-version", "TLS1.0")],
                "unexpected TLS version",
            ),
        ] {
            let error = outcome(&flags, SECURE).unwrap_err();
            assert!(error.contains(text), "{error}");
        }
    }
}
