//! What to do about a handshake that failed.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::{AlertDescription, CertificateError, Error};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::options::TlsOptions;

/// Why a caller was not let in.
pub(super) fn accepting(error: &io::Error, options: &TlsOptions) -> io::Error {
    let flags = options.flags;
    let authorities = place(flags.authorities, options.authorities.as_deref());
    let text = match cause(error) {
        Some(Error::NoCertificatesPresented) => format!(
            "the caller shows no certificate: start it with --{} and --{} of a certificate that an \
             authority of {authorities} has signed",
            flags.cert, flags.key
        ),
        Some(Error::InvalidCertificate(wrong)) => {
            format!(
                "the caller's certificate is refused: {}",
                refusal(wrong, &authorities)
            )
        }
        Some(Error::AlertReceived(alert)) => {
            let own = options
                .identity
                .as_ref()
                .map(|own| own.certificate.as_path());
            format!(
                "the caller does not take this member's certificate ({}) and says {alert:?}: it \
                 must name the host of this member's URL, and an authority in the caller's --{} \
                 must have signed it",
                place(flags.cert, own),
                flags.authorities
            )
        }
        Some(Error::InvalidMessage(_)) => {
            "the caller does not speak TLS: it must reach this member by https".to_owned()
        }
        _ if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the caller ended the connection during the TLS handshake".to_owned()
        }
        _ => error.to_string(),
    };
    io::Error::new(error.kind(), text)
}

/// Why a connection was not made.
pub(super) fn connecting(error: &io::Error, options: &TlsOptions) -> io::Error {
    let authorities = place(options.flags.authorities, options.authorities.as_deref());
    let text = match cause(error) {
        Some(Error::InvalidCertificate(wrong)) => {
            format!(
                "its certificate is refused: {}",
                refusal(wrong, &authorities)
            )
        }
        Some(Error::AlertReceived(alert)) => refused(*alert, options),
        Some(Error::InvalidMessage(_)) => {
            "it does not speak TLS: its URL must be one of http, or it must listen on https"
                .to_owned()
        }
        _ if error.kind() == io::ErrorKind::UnexpectedEof => {
            "it ended the connection during the TLS handshake; its log says why".to_owned()
        }
        _ => error.to_string(),
    };
    io::Error::new(error.kind(), text)
}

/// The other side ended the connection and said so.
fn refused(alert: AlertDescription, options: &TlsOptions) -> String {
    let flags = options.flags;
    match options.shown() {
        None => format!(
            "it says {alert:?}: it wants a certificate, and there is none: give --{} and --{}",
            flags.cert, flags.key
        ),
        Some(shown) => format!(
            "it says {alert:?} to the certificate of {}: an authority that it believes must have \
             signed it for clients",
            place(options.shown_flag(), Some(&shown.certificate))
        ),
    }
}

fn refusal(wrong: &CertificateError, authorities: &str) -> String {
    match wrong {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            format!("no authority of {authorities} has signed it")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("{wrong}: issue a new one")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("{wrong}: issue one that names the host of the URL")
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            format!("{wrong}: issue one with the extended key usages of servers and of clients")
        }
        other => other.to_string(),
    }
}

fn place(flag: &str, path: Option<&Path>) -> String {
    match path {
        Some(path) => format!("--{flag} {}", path.display()),
        None => format!("the system (there is no --{flag})"),
    }
}

fn cause(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

/// A connection that was made. The other side may still refuse the certificate it was shown: in TLS
/// 1.3 that arrives with the first answer.
#[derive(Debug)]
pub(crate) struct Explained<S> {
    inner: S,
    options: Arc<TlsOptions>,
}

impl<S> Explained<S> {
    pub(super) fn new(inner: S, options: Arc<TlsOptions>) -> Self {
        Self { inner, options }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Explained<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        read.map_err(|error| match cause(&error) {
            Some(Error::AlertReceived(alert)) => {
                io::Error::new(error.kind(), refused(*alert, &self.options))
            }
            _ => error,
        })
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Explained<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
