//! From files to the TLS library's configurations.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use sha2::{Digest as _, Sha256};

use super::any::AnyCertificate;
use super::certificate;
use super::issue::Issued;
use super::options::{FilePair, TlsOptions};
use crate::error::Error;

/// Largest file of certificates, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// What the files hold.
pub(super) struct Sources {
    identity: Option<(Vec<u8>, Vec<u8>)>,
    client_identity: Option<(Vec<u8>, Vec<u8>)>,
    authorities: Option<Vec<u8>>,
    revoked: Option<Vec<u8>>,
    /// Tells one state of the files from another.
    pub(super) digest: [u8; 32],
}

impl Sources {
    pub(super) fn read(options: &TlsOptions) -> Result<Self, Error> {
        let flags = options.flags;
        let pair = |pair: &Option<FilePair>, cert, key| -> Result<_, Error> {
            let Some(pair) = pair else { return Ok(None) };
            let certificate = read_file(cert, &pair.certificate)?;
            Ok(Some((certificate, read_file(key, &pair.key)?)))
        };
        let file = |flag, path: &Option<PathBuf>| match path {
            Some(path) => read_file(flag, path).map(Some),
            None => Ok(None),
        };
        let mut sources = Self {
            identity: pair(&options.identity, flags.cert, flags.key)?,
            client_identity: pair(
                &options.client_identity,
                flags.client_cert,
                flags.client_key,
            )?,
            authorities: file(flags.authorities, &options.authorities)?,
            revoked: file(flags.revoked, &options.revoked)?,
            digest: [0; 32],
        };
        sources.digest = sources.digest();
        Ok(sources)
    }

    fn digest(&self) -> [u8; 32] {
        let pairs = [&self.identity, &self.client_identity];
        let in_pairs = pairs.into_iter().flat_map(|pair| match pair {
            Some((certificate, key)) => [Some(certificate), Some(key)],
            None => [None, None],
        });
        let alone = [self.authorities.as_ref(), self.revoked.as_ref()];
        let mut hasher = Sha256::new();
        for file in in_pairs.chain(alone) {
            let file = file.map_or(&[][..], Vec::as_slice);
            hasher.update(file.len().to_le_bytes());
            hasher.update(file);
        }
        hasher.finalize().into()
    }
}

/// Ready to be used by connections.
pub(super) struct Material {
    pub(super) server: Option<Arc<ServerConfig>>,
    pub(super) client: Arc<ClientConfig>,
    /// Serial numbers of revoked certificates.
    pub(super) revoked: BTreeSet<Vec<u8>>,
    pub(super) digest: [u8; 32],
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Material")
    }
}

/// A certificate, those above it, and its key.
type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Material {
    /// # Errors
    /// When a file does not hold what it must; the error names it.
    pub(super) fn build(
        options: &TlsOptions,
        made: Option<&Issued>,
        sources: &Sources,
    ) -> Result<Self, Error> {
        let flags = options.flags;
        let own = match (made, &sources.identity) {
            (Some(made), _) => Some(made.pair()),
            (None, Some(files)) => Some(pair(files, flags.cert, flags.key)?),
            (None, None) => None,
        };
        let shown = match &sources.client_identity {
            Some(files) => Some(pair(files, flags.client_cert, flags.client_key)?),
            None => own
                .as_ref()
                .map(|(chain, key)| (chain.clone(), key.clone_key())),
        };
        let roots = roots(options, sources)?;
        let revoked = match &sources.revoked {
            Some(file) => revoked(file).ok_or_else(|| Error::Option {
                option: flags.revoked,
                reason: "there is no list of revoked certificates in the file".to_owned(),
            })?,
            None => BTreeSet::new(),
        };
        Ok(Self {
            server: own.map(|own| server(options, own, &roots)).transpose()?,
            client: client(options, shown, &roots)?,
            revoked,
            digest: sources.digest,
        })
    }
}

fn server(
    options: &TlsOptions,
    (chain, key): Pair,
    roots: &Arc<RootCertStore>,
) -> Result<Arc<ServerConfig>, Error> {
    let provider = options.protocol.provider();
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&options.protocol.versions())
        .map_err(|error| unusable("cipher-suites", &error))?;
    let builder = if options.wants_certificate() {
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider).build();
        let verifier = verifier.map_err(|error| unusable(options.flags.authorities, &error))?;
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| unusable(options.flags.key, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Each connection is checked anew: a certificate may have been revoked meanwhile.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn client(
    options: &TlsOptions,
    shown: Option<Pair>,
    roots: &Arc<RootCertStore>,
) -> Result<Arc<ClientConfig>, Error> {
    let provider = options.protocol.provider();
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&options.protocol.versions())
        .map_err(|error| unusable("cipher-suites", &error))?;
    let builder = if options.is_unchecked {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
    } else {
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), provider).build();
        let verifier = verifier.map_err(|error| unusable(options.flags.authorities, &error))?;
        builder.with_webpki_verifier(verifier)
    };
    let mut config = match shown {
        Some((chain, key)) => builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| unusable(options.shown_flag(), &error))?,
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// The authorities that are believed.
fn roots(options: &TlsOptions, sources: &Sources) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    match &sources.authorities {
        Some(file) => {
            for certificate in certificates(file, options.flags.authorities)? {
                roots
                    .add(certificate)
                    .map_err(|error| unusable(options.flags.authorities, &error))?;
            }
        }
        None if options.is_unchecked => {}
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    if roots.is_empty() && !options.is_unchecked {
        return Err(Error::Option {
            option: options.flags.authorities,
            reason: "it is not given, and the system has no authorities to believe".to_owned(),
        });
    }
    Ok(Arc::new(roots))
}

fn read_file(flag: &'static str, path: &Path) -> Result<Vec<u8>, Error> {
    let failed = |reason: String| Error::Option {
        option: flag,
        reason: format!("{}: {reason}", path.display()),
    };
    let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(error.to_string()))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length >= FILE_BYTES_MAX) {
        return Err(failed("it is too large to be certificates".to_owned()));
    }
    Ok(bytes)
}

fn pair(
    (certificate, key): &(Vec<u8>, Vec<u8>),
    cert_flag: &'static str,
    key_flag: &'static str,
) -> Result<Pair, Error> {
    let chain = certificates(certificate, cert_flag)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| Error::Option {
        option: key_flag,
        reason: format!("there is no private key in the file: {error}"),
    })?;
    Ok((chain, key))
}

fn certificates(file: &[u8], flag: &'static str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let failed = |reason: String| Error::Option {
        option: flag,
        reason,
    };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(file).collect();
    let found = found.map_err(|error| failed(format!("it is no PEM: {error}")))?;
    if found.is_empty() {
        return Err(failed("there is no certificate in the file".to_owned()));
    }
    Ok(found)
}

/// The serial numbers of a revocation list, which may be PEM or DER.
fn revoked(file: &[u8]) -> Option<BTreeSet<Vec<u8>>> {
    let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(file).collect();
    match lists {
        Ok(lists) if !lists.is_empty() => {
            let serials: Option<Vec<_>> = lists
                .iter()
                .map(|list| certificate::revoked(list))
                .collect();
            Some(serials?.into_iter().flatten().collect())
        }
        _ => certificate::revoked(file),
    }
}

fn unusable(flag: &'static str, error: &dyn std::error::Error) -> Error {
    Error::Option {
        option: flag,
        reason: format!("it cannot be used: {error}"),
    }
}
