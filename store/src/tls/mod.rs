//! TLS between members, as etcd's `--peer-*` flags have it, and towards a discovery service.
//!
//! Certificates, keys, authorities and revocation lists are read from their files for each
//! connection, so that rotated ones count without a restart; what cannot be read leaves the last
//! good ones in use. `material` turns files into configurations, `admit` checks what etcd checks
//! beyond the signatures (names, revocation, the caller's address), `explain` says what to do about
//! a handshake that failed.

mod admit;
mod any;
mod certificate;
mod der;
mod explain;
mod issue;
mod material;
mod options;
mod protocol;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use self::admit::Admission;
pub(crate) use self::explain::Explained;
pub use self::issue::{Authority, Issued, NotIssued, Subject, self_signed};
use self::material::{Material, Sources};
pub use self::options::{Accepted, DISCOVERY, FilePair, PEER, TlsFlags, TlsOptions};
pub use self::protocol::{Protocol, TlsVersion};
use crate::error::Error;

/// One member's side of TLS; shared by its listeners and its connections.
#[derive(Debug)]
pub struct Tls {
    options: Arc<TlsOptions>,
    /// A certificate made for this process, which is in no file.
    made: Option<Issued>,
    current: Mutex<Arc<Material>>,
    /// The digest of files that could not be used, so that they are told of once.
    unusable: Mutex<Option<[u8; 32]>>,
}

impl Tls {
    /// Reads the files that `options` name.
    ///
    /// # Errors
    /// When one cannot be read or used; the error names it.
    pub fn open(options: TlsOptions) -> Result<Self, Error> {
        Self::with(options, None)
    }

    /// A side whose certificate nobody can check: `--peer-auto-tls`. What is sent is enciphered,
    /// and who is on the other side stays unknown.
    ///
    /// # Errors
    /// When the certificate cannot be used.
    pub fn unchecked(protocol: Protocol, certificate: Issued) -> Result<Self, Error> {
        let options = TlsOptions {
            protocol,
            is_unchecked: true,
            ..TlsOptions::new(&PEER)
        };
        Self::with(options, Some(certificate))
    }

    fn with(options: TlsOptions, made: Option<Issued>) -> Result<Self, Error> {
        let sources = Sources::read(&options)?;
        let material = Material::build(&options, made.as_ref(), &sources)?;
        Ok(Self {
            options: Arc::new(options),
            made,
            current: Mutex::new(Arc::new(material)),
            unusable: Mutex::default(),
        })
    }

    /// Whether connections can be accepted: there is a certificate.
    pub(crate) fn can_accept(&self) -> bool {
        self.current.lock().server.is_some()
    }

    /// Takes the connection of a caller at `address`.
    ///
    /// # Errors
    /// When it does not speak TLS, or is not to be let in; the error says what to do.
    pub(crate) async fn accept<S>(
        self: &Arc<Self>,
        stream: S,
        address: IpAddr,
    ) -> io::Result<server::TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let material = self.material().await;
        let Some(config) = material.server.clone() else {
            return Err(io::Error::other("there is no certificate to show"));
        };
        let accepted = TlsAcceptor::from(config).accept(stream).await;
        let stream = accepted.map_err(|error| explain::accepting(&error, &self.options))?;
        let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
        if !shown.is_empty() {
            let admission = Admission::new(&self.options, &material, shown)?;
            admission.check_names()?;
            if !self.options.skips_address {
                admission.check_address(address).await?;
            }
        }
        Ok(stream)
    }

    /// Speaks TLS to `host` over `stream`, for the application protocols `alpn`.
    ///
    /// # Errors
    /// When the other side is not who it must be, or does not take this one; the error says what to
    /// do.
    pub(crate) async fn connect<S>(
        self: &Arc<Self>,
        stream: S,
        host: &str,
        alpn: &[&str],
    ) -> io::Result<Explained<client::TlsStream<S>>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let material = self.material().await;
        let expected = self.options.server_name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(expected.to_owned());
        let name = name.map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{expected}: {error}"))
        })?;
        let connector = TlsConnector::from(Arc::clone(&material.client));
        let alpn = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let connected = connector.with_alpn(alpn).connect(name, stream).await;
        let stream = connected.map_err(|error| explain::connecting(&error, &self.options))?;
        let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
        if !self.options.is_unchecked {
            Admission::new(&self.options, &material, shown)?.check_names()?;
        }
        Ok(Explained::new(stream, Arc::clone(&self.options)))
    }

    /// The files as they are now, or as they last could be used.
    async fn material(self: &Arc<Self>) -> Arc<Material> {
        let own = Arc::clone(self);
        let read = tokio::task::spawn_blocking(move || own.refresh());
        match read.await {
            Ok(material) => material,
            Err(_stopping) => Arc::clone(&self.current.lock()),
        }
    }

    fn refresh(&self) -> Arc<Material> {
        let current = Arc::clone(&self.current.lock());
        let sources = match Sources::read(&self.options) {
            Ok(sources) if sources.digest == current.digest => return current,
            Ok(sources) => sources,
            Err(error) => return self.go_on(current, [0; 32], &error),
        };
        match Material::build(&self.options, self.made.as_ref(), &sources) {
            Ok(material) => {
                tracing::info!(files = %self.options, "the files of TLS have changed");
                let material = Arc::new(material);
                *self.current.lock() = Arc::clone(&material);
                *self.unusable.lock() = None;
                material
            }
            Err(error) => self.go_on(current, sources.digest, &error),
        }
    }

    /// With what was good, saying once why.
    fn go_on(&self, current: Arc<Material>, digest: [u8; 32], error: &Error) -> Arc<Material> {
        if self.unusable.lock().replace(digest) != Some(digest) {
            tracing::warn!(
                %error,
                "the files of TLS have changed and cannot be used; the ones before stay in use"
            );
        }
        current
    }
}

#[cfg(test)]
mod tests;
