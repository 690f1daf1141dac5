//! Versions and ciphers, under etcd's names for them.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::{ProtocolVersion, SupportedProtocolVersion, version};

/// Ciphers that etcd knows and that are not offered here: without forward secrecy, or without
/// authenticated encryption.
const WEAK: [&str; 16] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

/// Ciphers of TLS 1.3, which are offered whenever that version is.
const OF_TLS13: [&str; 3] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
];

/// A version of TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// What is spoken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Protocol {
    min: TlsVersion,
    max: Option<TlsVersion>,
    /// Names of the ciphers of TLS 1.2 that are offered; empty: all that are strong.
    suites: Vec<String>,
}

impl Protocol {
    /// Reads etcd's `--tls-min-version`, `--tls-max-version` and `--cipher-suites`; empty texts are
    /// its defaults. What is known and not offered goes to `weak`.
    ///
    /// # Errors
    /// etcd's texts, for a version or cipher that does not exist and for a choice that leaves
    /// nothing.
    pub fn read(
        min: &str,
        max: &str,
        suites: &[&str],
        weak: &mut Vec<String>,
    ) -> Result<Self, String> {
        let min = version(min)?.unwrap_or_default();
        let max = version(max)?;
        if max.is_some_and(|max| min > max) {
            return Err("min version (TLS1.3) is greater than max version (TLS1.2)".to_owned());
        }
        if min == TlsVersion::Tls13 && !suites.is_empty() {
            return Err(
                "cipher suites cannot be configured when only TLS1.3 is enabled".to_owned(),
            );
        }
        let mut offered = Vec::new();
        for name in suites {
            // etcd takes two names without their end.
            let whole = match *name {
                "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"
                | "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => format!("{name}_SHA256"),
                name => name.to_owned(),
            };
            if is_strong(&whole) {
                offered.push(whole);
            } else if WEAK.contains(name) {
                weak.push(whole);
            } else if !OF_TLS13.contains(name) {
                return Err(format!("unexpected TLS cipher suite {name:?}"));
            }
        }
        if !suites.is_empty() && offered.is_empty() && max == Some(TlsVersion::Tls12) {
            return Err("none of the cipher suites can be offered with TLS1.2".to_owned());
        }
        Ok(Self {
            min,
            max,
            suites: offered,
        })
    }

    /// The versions, as the TLS library has them.
    pub(super) fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        let all = [
            (TlsVersion::Tls13, &version::TLS13),
            (TlsVersion::Tls12, &version::TLS12),
        ];
        let wanted = all.into_iter().filter(|(version, _)| {
            *version >= self.min && self.max.is_none_or(|max| *version <= max)
        });
        wanted.map(|(_, version)| version).collect()
    }

    /// The TLS library's cryptography with the ciphers that are offered.
    pub(super) fn provider(&self) -> Arc<CryptoProvider> {
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        if !self.suites.is_empty() {
            provider.cipher_suites.retain(|suite| {
                let is_named = |name: &str| self.suites.iter().any(|wanted| wanted == name);
                suite.version().version == ProtocolVersion::TLSv1_3
                    || suite.suite().as_str().is_some_and(is_named)
            });
        }
        Arc::new(provider)
    }
}

fn version(text: &str) -> Result<Option<TlsVersion>, String> {
    match text {
        "" => Ok(None),
        "TLS1.2" => Ok(Some(TlsVersion::Tls12)),
        "TLS1.3" => Ok(Some(TlsVersion::Tls13)),
        _ => Err(format!(
            "unexpected TLS version {text:?} (must be one of: TLS1.2, TLS1.3)"
        )),
    }
}

fn is_strong(name: &str) -> bool {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let mut suites = provider.cipher_suites.iter();
    suites.any(|suite| suite.suite().as_str() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(min: &str, max: &str, suites: &[&str]) -> Result<(Protocol, Vec<String>), String> {
        let mut weak = Vec::new();
        Protocol::read(min, max, suites, &mut weak).map(|protocol| (protocol, weak))
    }

    #[test]
    fn versions_are_read_by_etcds_names() {
        let count = |min: &str, max: &str| read(min, max, &[]).map(|(read, _)| read.versions());
        assert_eq!(count("", "").unwrap().len(), 2);
        assert_eq!(count("TLS1.2", "TLS1.2").unwrap(), [&version::TLS12]);
        assert_eq!(count("TLS1.3", "").unwrap(), [&version::TLS13]);
        for (min, max, text) in [
            (
                "TLS1.1",
                "",
                "unexpected TLS version \"TLS1.1\" (must be one of: TLS1.2, TLS1.3)",
            ),
            (
                "TLS1.3",
                "TLS1.2",
                "min version (TLS1.3) is greater than max version (TLS1.2)",
            ),
        ] {
            assert_eq!(count(min, max).unwrap_err(), text);
        }
    }

    #[test]
    fn ciphers_are_read_by_etcds_names_and_weak_ones_are_not_offered() {
        let names = [
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
            "TLS_RSA_WITH_AES_128_CBC_SHA",
            "TLS_AES_128_GCM_SHA256",
        ];
        let (protocol, weak) = read("", "", &names).unwrap();
        assert_eq!(weak, ["TLS_RSA_WITH_AES_128_CBC_SHA"]);
        let offered = protocol.provider();
        let of_tls12 = offered.cipher_suites.iter();
        let of_tls12 = of_tls12
            .filter(|suite| suite.version().version == ProtocolVersion::TLSv1_2)
            .map(|suite| suite.suite().as_str());
        assert_eq!(
            of_tls12.collect::<Vec<_>>(),
            [Some("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256")]
        );
        let refused = [
            (
                read("", "", &["TLS_NULL"]),
                "unexpected TLS cipher suite \"TLS_NULL\"",
            ),
            (read("TLS1.3", "", &names), "only TLS1.3 is enabled"),
            (
                read("", "TLS1.2", &names[1..2]),
                "none of the cipher suites",
            ),
        ];
        for (refused, text) in refused {
            let error = refused.unwrap_err();
            assert!(error.contains(text), "{error}");
        }
    }
}
