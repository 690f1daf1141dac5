//! How to reach an etcd server: etcdctl's flags and variables, shared by every command that dials.

use std::path::PathBuf;

use clap::Args;
use holdfast_restore::EtcdSpec;
use holdfast_restore::source::{TlsSpec, UserSpec};

use crate::failure::Failure;

/// etcdctl's connection flags.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection (as etcdctl)")]
pub(crate) struct ConnectArgs {
    /// Client addresses of members
    #[arg(
        long,
        env = "ETCDCTL_ENDPOINTS",
        hide_env_values = true,
        value_delimiter = ',',
        value_name = "URLS",
        default_value = "http://127.0.0.1:2379"
    )]
    pub(crate) endpoints: Vec<String>,
    /// Certificates to trust
    #[arg(
        long,
        env = "ETCDCTL_CACERT",
        hide_env_values = true,
        value_name = "FILE"
    )]
    pub(crate) cacert: Option<PathBuf>,
    /// Our client certificate
    #[arg(
        long,
        env = "ETCDCTL_CERT",
        hide_env_values = true,
        value_name = "FILE",
        requires = "key"
    )]
    pub(crate) cert: Option<PathBuf>,
    /// The key of --cert
    #[arg(
        long,
        env = "ETCDCTL_KEY",
        hide_env_values = true,
        value_name = "FILE",
        requires = "cert"
    )]
    pub(crate) key: Option<PathBuf>,
    /// The user to log in as
    #[arg(long, value_name = "NAME", requires = "password_file")]
    pub(crate) user: Option<String>,
    /// A file with the user's password
    #[arg(long, value_name = "FILE", requires = "user")]
    pub(crate) password_file: Option<PathBuf>,
}

impl ConnectArgs {
    /// The same as settings of a source.
    pub(crate) fn to_spec(&self) -> Result<EtcdSpec, Failure> {
        let mut spec = EtcdSpec::at(self.endpoints.clone());
        spec.tls = match (&self.cacert, &self.cert) {
            (Some(cacert), cert) => Some(TlsSpec {
                cacert: cacert.clone(),
                cert: cert.clone(),
                key: self.key.clone(),
                server_name: None,
            }),
            (None, None) => None,
            (None, Some(_)) => {
                return Err(Failure::usage(
                    "--cert is given without --cacert",
                    "name the certificates to trust with --cacert",
                ));
            }
        };
        spec.user = match (&self.user, &self.password_file) {
            (Some(name), Some(file)) => Some(UserSpec {
                name: name.clone(),
                password_file: file.clone(),
            }),
            _ => None,
        };
        Ok(spec)
    }
}
