//! TLS of the peer port, from what the options say.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::Error;
use crate::options::{ListenUrl, PeerTls, StoreOptions};
use crate::tls::{Protocol, Subject, Tls, self_signed};

/// A year of certificates that are made here.
const YEAR: Duration = Duration::from_hours(365 * 24);

/// What connections between members are made and taken with; `None` without TLS.
///
/// # Errors
/// When a file cannot be read or used.
pub(super) fn open(options: &StoreOptions) -> Result<Option<Arc<Tls>>, Error> {
    let tls = match &options.peer_tls {
        None => return Ok(None),
        Some(PeerTls::Files(files)) => {
            let mut files = files.as_ref().clone();
            if let Some(srv) = &options.cluster.srv
                && files.authorities.is_none()
            {
                // As etcd: the domain vouches for its records.
                files.server_name = Some(srv.domain.clone());
            }
            if files.identity.is_some() {
                tracing::info!(tls_info = %files, "starting with peer TLS");
            }
            Tls::open(files)?
        }
        Some(PeerTls::Made { years, protocol }) => make(options, *years, protocol)?,
    };
    Ok(Some(Arc::new(tls)))
}

fn make(options: &StoreOptions, years: u32, protocol: &Protocol) -> Result<Tls, Error> {
    let hosts = options.listen.peer_urls.iter().filter_map(ListenUrl::host);
    let subject = Subject {
        common_name: String::new(),
        hosts: hosts.map(str::to_owned).collect(),
        begins: now(),
        lasts: YEAR.saturating_mul(years),
    };
    tracing::warn!(years, "automatically generate certificates");
    tracing::info!("starting with peer TLS; nobody can check who a member is");
    let certificate = self_signed(&subject).map_err(|error| Error::Option {
        option: "peer-auto-tls",
        reason: error.to_string(),
    })?;
    Tls::unchecked(protocol.clone(), certificate)
}

/// The wall clock, since the start of 1970.
fn now() -> Duration {
    #[expect(
        clippy::disallowed_methods,
        reason = "a certificate says from when it is valid; nothing is decided by it"
    )]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).unwrap_or_default()
}
