//! Which files TLS uses and what it asks of the other side.

use std::fmt;
use std::path::{Path, PathBuf};

use super::protocol::Protocol;

/// What the flags are called that the options come from, for errors.
#[derive(Debug, PartialEq, Eq)]
pub struct TlsFlags {
    /// The own certificate.
    pub cert: &'static str,
    /// Its key.
    pub key: &'static str,
    /// The certificate shown when this side calls.
    pub client_cert: &'static str,
    /// Its key.
    pub client_key: &'static str,
    /// The authorities whose certificates are believed.
    pub authorities: &'static str,
    /// The revocation list.
    pub revoked: &'static str,
    /// The names that are let in.
    pub accepted: &'static str,
}

/// Between members.
pub static PEER: TlsFlags = TlsFlags {
    cert: "peer-cert-file",
    key: "peer-key-file",
    client_cert: "peer-client-cert-file",
    client_key: "peer-client-key-file",
    authorities: "peer-trusted-ca-file",
    revoked: "peer-crl-file",
    accepted: "peer-cert-allowed-cn or --peer-cert-allowed-hostname",
};

/// Towards a discovery service.
pub static DISCOVERY: TlsFlags = TlsFlags {
    cert: "discovery-cert",
    key: "discovery-key",
    client_cert: "discovery-cert",
    client_key: "discovery-key",
    authorities: "discovery-cacert",
    revoked: "",
    accepted: "",
};

/// A certificate (with those of the authorities between, if there are some) and its key, PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePair {
    /// The certificate's file.
    pub certificate: PathBuf,
    /// The key's file.
    pub key: PathBuf,
}

/// Whose certificates are let in, of those that an authority vouches for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Accepted {
    /// All.
    #[default]
    Any,
    /// Those of one of these common names.
    CommonNames(Vec<String>),
    /// Those that are valid for one of these hosts or addresses.
    Hosts(Vec<String>),
}

/// One side of TLS. All files are PEM; a revocation list may be DER, as etcd has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsOptions {
    /// What the flags are called.
    pub flags: &'static TlsFlags,
    /// The own certificate. Without one nobody can be accepted.
    pub identity: Option<FilePair>,
    /// Another one to show when this side calls.
    pub client_identity: Option<FilePair>,
    /// Authorities whose certificates are believed; `None`: the system's.
    pub authorities: Option<PathBuf>,
    /// Whether callers must show a certificate also without `authorities`.
    pub asks_callers: bool,
    /// A list of revoked certificates.
    pub revoked: Option<PathBuf>,
    /// Whose certificates are let in.
    pub accepted: Accepted,
    /// Whether a caller may come from an address that its certificate does not name.
    pub skips_address: bool,
    /// The name expected in certificates instead of the host that is called.
    pub server_name: Option<String>,
    /// Whether any certificate is taken.
    pub is_unchecked: bool,
    /// Versions and ciphers.
    pub protocol: Protocol,
}

impl TlsOptions {
    /// No files, and everything as etcd has it without flags.
    pub fn new(flags: &'static TlsFlags) -> Self {
        Self {
            flags,
            identity: None,
            client_identity: None,
            authorities: None,
            asks_callers: false,
            revoked: None,
            accepted: Accepted::Any,
            skips_address: false,
            server_name: None,
            is_unchecked: false,
            protocol: Protocol::default(),
        }
    }

    /// The certificate shown to those who are called, with its flags.
    pub(super) fn shown(&self) -> Option<&FilePair> {
        self.client_identity.as_ref().or(self.identity.as_ref())
    }

    /// The flag that names the certificate shown to those who are called.
    pub(super) fn shown_flag(&self) -> &'static str {
        match self.client_identity {
            Some(_) => self.flags.client_cert,
            None => self.flags.cert,
        }
    }

    /// Whether callers must show a certificate.
    pub(super) fn wants_certificate(&self) -> bool {
        self.asks_callers || self.authorities.is_some()
    }
}

/// As etcd writes it to its log.
impl fmt::Display for TlsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = |path: Option<&Path>| path.map(|path| path.display().to_string());
        let path = |given: Option<&Path>| path(given).unwrap_or_default();
        let certificate =
            |pair: &Option<FilePair>| path(pair.as_ref().map(|pair| pair.certificate.as_path()));
        let key = |pair: &Option<FilePair>| path(pair.as_ref().map(|pair| pair.key.as_path()));
        write!(
            f,
            "cert = {}, key = {}, client-cert={}, client-key={}, trusted-ca = {}, \
             client-cert-auth = {}, crl-file = {}",
            certificate(&self.identity),
            key(&self.identity),
            certificate(&self.client_identity),
            key(&self.client_identity),
            path(self.authorities.as_deref()),
            self.asks_callers,
            path(self.revoked.as_deref()),
        )
    }
}
