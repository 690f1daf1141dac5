//! What etcd checks of a certificate beyond its signatures: whose it is, whether it is revoked, and
//! whether the caller comes from where it says.

use std::io;
use std::net::IpAddr;

use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use tokio::net::lookup_host;

use super::certificate::Certificate;
use super::material::Material;
use super::options::{Accepted, TlsOptions};
use crate::dns;

/// What one connection's other side has shown.
pub(super) struct Admission<'a> {
    options: &'a TlsOptions,
    shown: &'a CertificateDer<'static>,
    read: Certificate,
}

impl<'a> Admission<'a> {
    /// # Errors
    /// When nothing readable was shown, or something revoked.
    pub(super) fn new(
        options: &'a TlsOptions,
        material: &Material,
        shown: &'a [CertificateDer<'static>],
    ) -> io::Result<Self> {
        let unreadable = || denied("its certificate cannot be read".to_owned());
        let leaf = shown.first().ok_or_else(unreadable)?;
        for certificate in shown {
            let read = Certificate::read(certificate).ok_or_else(unreadable)?;
            if material.revoked.contains(&read.serial) {
                return Err(denied(format!(
                    "certificate serial {} revoked by the list of --{}: give that member another \
                     certificate",
                    hex::encode(read.serial),
                    options.flags.revoked
                )));
            }
        }
        Ok(Self {
            options,
            shown: leaf,
            read: Certificate::read(leaf).ok_or_else(unreadable)?,
        })
    }

    /// # Errors
    /// When the owner is not one of those let in.
    pub(super) fn check_names(&self) -> io::Result<()> {
        let is_accepted = match &self.options.accepted {
            Accepted::Any => true,
            Accepted::CommonNames(names) => names.contains(&self.read.common_name),
            Accepted::Hosts(hosts) => hosts.iter().any(|host| self.is_valid_for(host)),
        };
        if is_accepted {
            return Ok(());
        }
        let names = self.read.dns_names.iter().cloned();
        let addresses = self.read.addresses.iter().map(IpAddr::to_string);
        let hosts: Vec<String> = names.chain(addresses).collect();
        Err(denied(format!(
            "client certificate authentication failed: the certificate of {:?} for {hosts:?} is \
             none of --{}",
            self.read.common_name, self.options.flags.accepted
        )))
    }

    /// # Errors
    /// When the certificate names hosts, and `address` is none of them.
    pub(super) async fn check_address(&self, address: IpAddr) -> io::Result<()> {
        let (names, addresses) = (&self.read.dns_names, &self.read.addresses);
        let is_free = names.is_empty() && addresses.is_empty();
        let address = address.to_canonical();
        if is_free || addresses.contains(&address) || is_one_of(address, names).await {
            return Ok(());
        }
        Err(denied(format!(
            "tls: \"{address}\" does not match any of {addresses:?} and DNSNames {names:?} of its \
             certificate: issue one that names it, or start this member with \
             --peer-skip-client-san-verification"
        )))
    }

    fn is_valid_for(&self, host: &str) -> bool {
        let Ok(name) = ServerName::try_from(host) else {
            return false;
        };
        ParsedCertificate::try_from(self.shown)
            .is_ok_and(|certificate| verify_server_name(&certificate, &name).is_ok())
    }
}

/// Whether one of the names leads to `address`, or it to one of them.
async fn is_one_of(address: IpAddr, names: &[String]) -> bool {
    if names.is_empty() {
        return false;
    }
    for name in dns::names_of(address).await {
        let is_it = |pattern: &String| match pattern.strip_prefix('*') {
            Some(end) => end.starts_with('.') && name.ends_with(end),
            None => *pattern == name,
        };
        if names.iter().any(is_it) {
            return true;
        }
    }
    for name in names.iter().filter(|name| !name.starts_with('*')) {
        if let Ok(mut found) = lookup_host((name.as_str(), 0)).await
            && found.any(|found| found.ip() == address)
        {
            return true;
        }
    }
    false
}

fn denied(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}
