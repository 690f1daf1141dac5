//! How to reach an etcd server: etcdctl's flags and variables, shared by every command that dials.

use std::path::PathBuf;

use clap::Args;

/// etcdctl's connection flags.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection (as etcdctl)")]
pub(crate) struct ConnectArgs {
    /// Client addresses of members
    #[arg(
        long,
        env = "ETCDCTL_ENDPOINTS",
        value_delimiter = ',',
        value_name = "URLS",
        default_value = "http://127.0.0.1:2379"
    )]
    pub(crate) endpoints: Vec<String>,
    /// Certificates to trust
    #[arg(long, env = "ETCDCTL_CACERT", value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,
    /// Our client certificate
    #[arg(long, env = "ETCDCTL_CERT", value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// The key of --cert
    #[arg(long, env = "ETCDCTL_KEY", value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// The user to log in as
    #[arg(long, value_name = "NAME", requires = "password_file")]
    pub(crate) user: Option<String>,
    /// A file with the user's password
    #[arg(long, value_name = "FILE", requires = "user")]
    pub(crate) password_file: Option<PathBuf>,
}
