//! Where a vault is: its settings.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::lock::ObjectLock;

/// Where a vault is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum VaultSpec {
    /// A folder on this machine, or a mounted one.
    Local {
        /// The folder; created when missing.
        path: PathBuf,
    },
    /// A bucket of an S3 server.
    S3(S3Spec),
    /// A bucket of Google Cloud Storage.
    Gcs(GcsSpec),
    /// A container of Azure Blob Storage.
    Azure(AzureSpec),
}

/// A bucket of an S3 server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct S3Spec {
    /// The bucket.
    pub bucket: String,
    /// Folder within the bucket; empty for its root.
    #[serde(default)]
    pub prefix: String,
    /// The server's URL; AWS when absent.
    #[serde(default)]
    pub endpoint: Option<String>,
    /// The region; `us-east-1` when absent.
    #[serde(default)]
    pub region: Option<String>,
    /// Bucket in the path rather than in the host name. Default: yes.
    #[serde(default = "yes")]
    pub force_path_style: bool,
    /// Certificate authorities to trust besides the system's, in PEM.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Plain HTTP, only towards this machine itself. Default: no.
    #[serde(default)]
    pub allow_http: bool,
    /// A proxy on the way, as a URL; the environment's (`HTTPS_PROXY`) when absent.
    #[serde(default)]
    pub proxy: Option<String>,
    /// Checksum sent with each upload; needed by buckets with object lock. Default: none.
    #[serde(default)]
    pub request_checksum: RequestChecksum,
    /// Objects of the backups that retention keeps are locked, on a bucket made with object lock.
    /// Default: not set.
    #[serde(default)]
    pub object_lock: Option<ObjectLock>,
    /// A file with `aws_access_key_id = ...` and `aws_secret_access_key = ...` lines. Without it
    /// the environment, web identity and instance credentials are used.
    #[serde(default)]
    pub credentials_file: Option<PathBuf>,
    /// Credentials given in code.
    #[serde(skip)]
    pub credentials: Option<S3Credentials>,
}

/// Checksum sent with each upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestChecksum {
    /// None beside the signature's own.
    #[default]
    None,
    /// SHA-256.
    Sha256,
    /// CRC-64/NVME.
    Crc64nvme,
}

/// Credentials of an S3 server.
#[derive(Clone, PartialEq, Eq)]
pub struct S3Credentials {
    /// The public half.
    pub access_key_id: String,
    /// The secret half.
    pub secret_access_key: Zeroizing<String>,
    /// For temporary credentials.
    pub session_token: Option<Zeroizing<String>>,
}

impl fmt::Debug for S3Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Credentials")
            .field("access_key_id", &self.access_key_id)
            .finish_non_exhaustive()
    }
}

const fn yes() -> bool {
    true
}

impl S3Spec {
    /// A bucket of the server at `endpoint`; the rest is default.
    pub fn at(endpoint: &str, bucket: &str, credentials: S3Credentials) -> Self {
        Self {
            bucket: bucket.to_owned(),
            prefix: String::new(),
            endpoint: Some(endpoint.to_owned()),
            region: None,
            force_path_style: true,
            ca_file: None,
            allow_http: endpoint.starts_with("http://"),
            proxy: None,
            request_checksum: RequestChecksum::None,
            object_lock: None,
            credentials_file: None,
            credentials: Some(credentials),
        }
    }
}

/// A bucket of Google Cloud Storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GcsSpec {
    /// The bucket.
    pub bucket: String,
    /// Folder within the bucket; empty for its root.
    #[serde(default)]
    pub prefix: String,
    /// The key of a service account, in Google's JSON. Without it the environment and the
    /// instance's own account are used.
    #[serde(default)]
    pub service_account_file: Option<PathBuf>,
    /// Another server than Google's, as a URL.
    #[serde(default)]
    pub endpoint: Option<String>,
    /// Certificate authorities to trust besides the system's, in PEM.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Plain HTTP, only towards this machine itself. Default: no.
    #[serde(default)]
    pub allow_http: bool,
    /// A proxy on the way, as a URL; the environment's when absent.
    #[serde(default)]
    pub proxy: Option<String>,
}

/// A container of Azure Blob Storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AzureSpec {
    /// The storage account.
    pub account: String,
    /// The container.
    pub container: String,
    /// Folder within the container; empty for its root.
    #[serde(default)]
    pub prefix: String,
    /// A file that holds an access key of the account. Without it the environment, workload
    /// identity and managed identity are used.
    #[serde(default)]
    pub access_key_file: Option<PathBuf>,
    /// Another server than Azure's, as a URL.
    #[serde(default)]
    pub endpoint: Option<String>,
    /// Certificate authorities to trust besides the system's, in PEM.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Plain HTTP, only towards this machine itself. Default: no.
    #[serde(default)]
    pub allow_http: bool,
    /// A proxy on the way, as a URL; the environment's when absent.
    #[serde(default)]
    pub proxy: Option<String>,
}

impl VaultSpec {
    /// What to call the place in messages. Holds no secret.
    pub fn location(&self) -> String {
        match self {
            Self::Local { path } => path.display().to_string(),
            Self::S3(spec) => {
                let server = spec.endpoint.as_deref().unwrap_or("aws");
                format!(
                    "s3 {server} bucket {} prefix {:?}",
                    spec.bucket, spec.prefix
                )
            }
            Self::Gcs(spec) => {
                let server = spec.endpoint.as_deref().unwrap_or("google");
                format!(
                    "gcs {server} bucket {} prefix {:?}",
                    spec.bucket, spec.prefix
                )
            }
            Self::Azure(spec) => {
                let server = spec.endpoint.as_deref().unwrap_or("azure");
                let (account, container) = (&spec.account, &spec.container);
                let prefix = &spec.prefix;
                format!("azure {server} account {account} container {container} prefix {prefix:?}")
            }
        }
    }

    /// The files it names, each with its key: what is in them counts from the moment they change.
    pub fn files(&self) -> Vec<(&'static str, PathBuf)> {
        let files = match self {
            Self::Local { .. } => Vec::new(),
            Self::S3(spec) => vec![
                ("ca_file", &spec.ca_file),
                ("credentials_file", &spec.credentials_file),
            ],
            Self::Gcs(spec) => vec![
                ("ca_file", &spec.ca_file),
                ("service_account_file", &spec.service_account_file),
            ],
            Self::Azure(spec) => vec![
                ("ca_file", &spec.ca_file),
                ("access_key_file", &spec.access_key_file),
            ],
        };
        let named = files.into_iter();
        named
            .filter_map(|(key, file)| Some((key, file.clone()?)))
            .collect()
    }

    /// The same with every path of it changed.
    #[must_use]
    pub fn map_paths(mut self, change: impl Fn(PathBuf) -> PathBuf) -> Self {
        let each = |file: &mut Option<PathBuf>| *file = file.take().map(&change);
        match &mut self {
            Self::Local { path } => *path = change(std::mem::take(path)),
            Self::S3(spec) => {
                each(&mut spec.ca_file);
                each(&mut spec.credentials_file);
            }
            Self::Gcs(spec) => {
                each(&mut spec.ca_file);
                each(&mut spec.service_account_file);
            }
            Self::Azure(spec) => {
                each(&mut spec.ca_file);
                each(&mut spec.access_key_file);
            }
        }
        self
    }
}
