//! Where a vault is: settings, and the object store they make.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, Checksum};
use object_store::client::{HttpConnector as _, ReqwestConnector};
use object_store::list::PaginatedListStore;
use object_store::local::LocalFileSystem;
use object_store::{Certificate, ClientOptions, ObjectStore, RetryConfig};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::listing::Lister;
use super::lock::{Locker, ObjectLock};
use crate::error::{Error, Result};

/// Longest wait for one request to an object store, in total. A part is at most 33 MiB.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(10);

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time one request is retried for.
const RETRY_TIMEOUT: Duration = Duration::from_mins(3);

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
            request_checksum: RequestChecksum::None,
            object_lock: None,
            credentials_file: None,
            credentials: Some(credentials),
        }
    }
}

/// An object store and the folder of the vault in it.
pub(super) struct Place {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) lister: Lister,
    pub(super) locker: Option<Locker>,
    pub(super) prefix: String,
    pub(super) location: String,
}

impl Place {
    /// In an object store made elsewhere, which is listed in one way only.
    pub(super) fn made_elsewhere(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        location: String,
    ) -> Self {
        Self {
            store,
            lister: Lister::None,
            locker: None,
            prefix: prefix.to_owned(),
            location,
        }
    }
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
        }
    }

    pub(super) fn connect(&self, is_created: bool) -> Result<Place> {
        let location = self.location();
        match self {
            Self::Local { path } => Ok(Place {
                store: local(path, is_created)?,
                lister: Lister::Folder(path.clone()),
                locker: None,
                prefix: String::new(),
                location,
            }),
            Self::S3(spec) => {
                let store = s3(spec)?;
                let pages: Arc<dyn PaginatedListStore> = store.clone();
                Ok(Place {
                    lister: Lister::Pages(pages),
                    locker: locker(spec, &store)?,
                    store,
                    prefix: spec.prefix.clone(),
                    location,
                })
            }
        }
    }
}

fn local(path: &Path, is_created: bool) -> Result<Arc<dyn ObjectStore>> {
    if is_created {
        use std::os::unix::fs::DirBuilderExt as _;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(Error::io("create", path))?;
    } else if !path.is_dir() {
        return Err(Error::NotAVault {
            location: path.display().to_string(),
        });
    }
    let store = LocalFileSystem::new_with_prefix(path).map_err(|error| Error::Vault {
        action: "open",
        object: path.display().to_string(),
        source: Box::new(error),
    })?;
    Ok(Arc::new(store.with_fsync(true)))
}

fn s3(spec: &S3Spec) -> Result<Arc<AmazonS3>> {
    s3_through(spec, |builder| builder)
}

/// What sets locks, where that is wanted.
fn locker(spec: &S3Spec, store: &Arc<AmazonS3>) -> Result<Option<Locker>> {
    let Some(lock) = spec.object_lock else {
        return Ok(None);
    };
    let refused = |reason: String| Error::VaultSettings { reason };
    if !lock.is_sound() {
        return Err(refused("object_lock.days: 1 to 3650".to_owned()));
    }
    let client = ReqwestConnector::default().connect(&client_options(spec)?);
    Ok(Some(Locker {
        store: Arc::clone(store),
        client: client.map_err(|error| refused(error.to_string()))?,
        lock,
    }))
}

/// As configured, and changed once more.
pub(super) fn s3_through(
    spec: &S3Spec,
    change: impl FnOnce(AmazonS3Builder) -> AmazonS3Builder,
) -> Result<Arc<AmazonS3>> {
    let refused = |reason: String| Error::VaultSettings { reason };
    let retry = RetryConfig {
        retry_timeout: RETRY_TIMEOUT,
        ..RetryConfig::default()
    };
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(&spec.bucket)
        .with_region(spec.region.as_deref().unwrap_or("us-east-1"))
        .with_virtual_hosted_style_request(!spec.force_path_style)
        .with_client_options(client_options(spec)?)
        .with_retry(retry);
    if let Some(endpoint) = &spec.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    builder = match spec.request_checksum {
        RequestChecksum::None => builder,
        RequestChecksum::Sha256 => builder.with_checksum_algorithm(Checksum::SHA256),
        RequestChecksum::Crc64nvme => builder.with_checksum_algorithm(Checksum::CRC64NVME),
    };
    let from_file = match &spec.credentials_file {
        Some(path) => Some(read_credentials(path)?),
        None => None,
    };
    if let Some(credentials) = spec.credentials.as_ref().or(from_file.as_ref()) {
        builder = builder
            .with_access_key_id(&credentials.access_key_id)
            .with_secret_access_key(credentials.secret_access_key.as_str());
        if let Some(token) = &credentials.session_token {
            builder = builder.with_token(token.as_str());
        }
    }
    let store = change(builder)
        .build()
        .map_err(|error| refused(error.to_string()))?;
    Ok(Arc::new(store))
}

fn client_options(spec: &S3Spec) -> Result<ClientOptions> {
    let refused = |reason: String| Error::VaultSettings { reason };
    let mut client = ClientOptions::new()
        .with_timeout(REQUEST_TIMEOUT)
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_allow_http(is_http_allowed(spec)?);
    if let Some(path) = &spec.ca_file {
        let pem = fs::read(path).map_err(Error::io("read", path))?;
        let bundle = Certificate::from_pem_bundle(&pem)
            .map_err(|error| refused(format!("ca_file {}: {error}", path.display())))?;
        for certificate in bundle {
            client = client.with_root_certificate(certificate);
        }
    }
    Ok(client)
}

/// Plain HTTP is for tests and proxies on this machine: credentials and data would be readable.
fn is_http_allowed(spec: &S3Spec) -> Result<bool> {
    let Some(rest) = spec
        .endpoint
        .as_deref()
        .and_then(|url| url.strip_prefix("http://"))
    else {
        return Ok(false);
    };
    let host = rest.split('/').next().unwrap_or_default();
    let is_loopback = ["localhost", "127.0.0.1", "[::1]"]
        .iter()
        .any(|name| host == *name || host.starts_with(&format!("{name}:")));
    if spec.allow_http && is_loopback {
        return Ok(true);
    }
    Err(Error::VaultSettings {
        reason: format!("endpoint {rest}: plain http needs `allow_http` and a loopback address"),
    })
}

fn read_credentials(path: &Path) -> Result<S3Credentials> {
    let text = Zeroizing::new(fs::read_to_string(path).map_err(Error::io("read", path))?);
    let value = |name: &str| {
        text.lines()
            .filter_map(|line| line.split_once('='))
            .find(|(key, _)| key.trim() == name)
            .map(|(_, value)| value.trim().to_owned())
    };
    let needed = |name: &str| {
        value(name).ok_or_else(|| Error::VaultSettings {
            reason: format!("{} has no {name} line", path.display()),
        })
    };
    Ok(S3Credentials {
        access_key_id: needed("aws_access_key_id")?,
        secret_access_key: Zeroizing::new(needed("aws_secret_access_key")?),
        session_token: value("aws_session_token").map(Zeroizing::new),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(endpoint: &str) -> S3Spec {
        let credentials = S3Credentials {
            access_key_id: "k".to_owned(),
            secret_access_key: Zeroizing::new("secret-half".to_owned()),
            session_token: None,
        };
        S3Spec::at(endpoint, "bucket", credentials)
    }

    #[test]
    fn plain_http_is_accepted_towards_loopback_only() {
        for good in [
            "http://127.0.0.1:9000",
            "http://localhost",
            "http://[::1]:1",
            "https://x",
        ] {
            assert!(VaultSpec::S3(spec(good)).connect(true).is_ok(), "{good}");
        }
        for bad in [
            "http://10.0.0.1:9000",
            "http://localhost.example",
            "http://127.0.0.10",
        ] {
            assert!(VaultSpec::S3(spec(bad)).connect(true).is_err(), "{bad}");
        }
    }

    #[test]
    fn debug_output_shows_no_secret() {
        assert!(!format!("{:?}", spec("https://x")).contains("secret-half"));
    }

    #[test]
    fn a_credentials_file_is_read_line_by_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credentials");
        fs::write(
            &path,
            "[default]\naws_access_key_id = a\naws_secret_access_key=b==\n",
        )
        .unwrap();
        let read = read_credentials(&path).unwrap();
        assert_eq!(
            (read.access_key_id.as_str(), read.secret_access_key.as_str()),
            ("a", "b==")
        );
        fs::write(&path, "aws_access_key_id = a\n").unwrap();
        assert!(read_credentials(&path).is_err());
    }
}
