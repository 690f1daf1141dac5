//! The object stores that settings make.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, Checksum};
use object_store::azure::{MicrosoftAzure, MicrosoftAzureBuilder};
use object_store::client::{HttpConnector as _, ReqwestConnector};
use object_store::gcp::{GoogleCloudStorage, GoogleCloudStorageBuilder};
use object_store::list::PaginatedListStore;
use object_store::local::LocalFileSystem;
use object_store::{Certificate, ClientOptions, ObjectStore, RetryConfig};
use zeroize::Zeroizing;

use super::listing::Lister;
use super::lock::Locker;
use super::reload::{Cloud, Reloading};
use super::spec::{AzureSpec, GcsSpec, RequestChecksum, S3Credentials, S3Spec, VaultSpec};
use crate::error::{Error, Result};

/// Longest wait for one request to an object store, in total. A part is at most 33 MiB.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(10);

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time one request is retried for.
const RETRY_TIMEOUT: Duration = Duration::from_mins(3);

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

    /// In a store that is made anew when a file of `spec` changes.
    fn reloading(
        spec: &VaultSpec,
        prefix: &str,
        make: impl Fn() -> Result<Arc<dyn Cloud>> + Send + Sync + 'static,
    ) -> Result<Self> {
        let files: Vec<PathBuf> = spec.files().into_iter().map(|(_, file)| file).collect();
        let location = spec.location();
        let store = Arc::new(Reloading::new(files, location.clone(), make)?);
        let pages: Arc<dyn PaginatedListStore> = store.clone();
        Ok(Self {
            lister: Lister::Pages(pages),
            locker: None,
            store,
            prefix: prefix.to_owned(),
            location,
        })
    }
}

impl VaultSpec {
    pub(super) fn connect(&self, is_created: bool) -> Result<Place> {
        match self {
            Self::Local { path } => Ok(Place {
                store: local(path, is_created)?,
                lister: Lister::Folder(path.clone()),
                locker: None,
                prefix: String::new(),
                location: self.location(),
            }),
            Self::S3(spec) => {
                let own = spec.clone();
                Ok(Place {
                    locker: locker(spec)?,
                    ..Place::reloading(self, &spec.prefix, move || Ok(s3(&own)?))?
                })
            }
            Self::Gcs(spec) => {
                let own = spec.clone();
                Place::reloading(self, &spec.prefix, move || Ok(gcs(&own)?))
            }
            Self::Azure(spec) => {
                let own = spec.clone();
                Place::reloading(self, &spec.prefix, move || Ok(azure(&own)?))
            }
        }
    }
}

/// What every kind of client has: bounded waits, trusted authorities, the proxy.
pub(super) fn client_options(
    endpoint: Option<&str>,
    is_http_wanted: bool,
    ca_file: Option<&Path>,
    proxy: Option<&str>,
) -> Result<ClientOptions> {
    let mut client = ClientOptions::new()
        .with_timeout(REQUEST_TIMEOUT)
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_allow_http(is_http_allowed(endpoint, is_http_wanted)?);
    if let Some(path) = ca_file {
        let pem = fs::read(path).map_err(Error::io("read", path))?;
        let bundle = Certificate::from_pem_bundle(&pem).map_err(|error| Error::VaultSettings {
            reason: format!("ca_file {}: {error}", path.display()),
        })?;
        for certificate in bundle {
            client = client.with_root_certificate(certificate);
        }
    }
    Ok(match proxy {
        Some(url) => client.with_proxy_url(url),
        None => client,
    })
}

fn retry() -> RetryConfig {
    RetryConfig {
        retry_timeout: RETRY_TIMEOUT,
        ..RetryConfig::default()
    }
}

fn refused(error: &object_store::Error) -> Error {
    Error::VaultSettings {
        reason: error.to_string(),
    }
}

fn gcs(spec: &GcsSpec) -> Result<Arc<GoogleCloudStorage>> {
    let (ca, proxy) = (spec.ca_file.as_deref(), spec.proxy.as_deref());
    let client = client_options(spec.endpoint.as_deref(), spec.allow_http, ca, proxy)?;
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(&spec.bucket)
        .with_client_options(client)
        .with_retry(retry());
    if let Some(endpoint) = &spec.endpoint {
        builder = builder.with_base_url(endpoint);
    }
    if let Some(file) = &spec.service_account_file {
        let key = Zeroizing::new(fs::read_to_string(file).map_err(Error::io("read", file))?);
        builder = builder.with_service_account_key(key.as_str());
    }
    let store = builder.build().map_err(|error| refused(&error))?;
    Ok(Arc::new(store))
}

fn azure(spec: &AzureSpec) -> Result<Arc<MicrosoftAzure>> {
    let (ca, proxy) = (spec.ca_file.as_deref(), spec.proxy.as_deref());
    let client = client_options(spec.endpoint.as_deref(), spec.allow_http, ca, proxy)?;
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_account(&spec.account)
        .with_container_name(&spec.container)
        .with_client_options(client)
        .with_retry(retry());
    if let Some(endpoint) = &spec.endpoint {
        builder = builder
            .with_endpoint(endpoint.clone())
            .with_allow_http(spec.allow_http);
    }
    if let Some(file) = &spec.access_key_file {
        let key = Zeroizing::new(fs::read_to_string(file).map_err(Error::io("read", file))?);
        builder = builder.with_access_key(key.trim());
    }
    let store = builder.build().map_err(|error| refused(&error))?;
    Ok(Arc::new(store))
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

pub(super) fn s3(spec: &S3Spec) -> Result<Arc<AmazonS3>> {
    s3_through(spec, |builder| builder)
}

/// What sets locks, where that is wanted; made with the vault, and not anew when files change.
fn locker(spec: &S3Spec) -> Result<Option<Locker>> {
    let Some(lock) = spec.object_lock else {
        return Ok(None);
    };
    if !lock.is_sound() {
        let reason = "object_lock.days: 1 to 3650".to_owned();
        return Err(Error::VaultSettings { reason });
    }
    let (ca, proxy) = (spec.ca_file.as_deref(), spec.proxy.as_deref());
    let options = client_options(spec.endpoint.as_deref(), spec.allow_http, ca, proxy)?;
    let client = ReqwestConnector::default().connect(&options);
    Ok(Some(Locker {
        store: s3(spec)?,
        client: client.map_err(|error| refused(&error))?,
        lock,
    }))
}

/// As configured, and changed once more.
pub(super) fn s3_through(
    spec: &S3Spec,
    change: impl FnOnce(AmazonS3Builder) -> AmazonS3Builder,
) -> Result<Arc<AmazonS3>> {
    let (ca, proxy) = (spec.ca_file.as_deref(), spec.proxy.as_deref());
    let client = client_options(spec.endpoint.as_deref(), spec.allow_http, ca, proxy)?;
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(&spec.bucket)
        .with_region(spec.region.as_deref().unwrap_or("us-east-1"))
        .with_virtual_hosted_style_request(!spec.force_path_style)
        .with_client_options(client)
        .with_retry(retry());
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
    let store = change(builder).build().map_err(|error| refused(&error))?;
    Ok(Arc::new(store))
}

/// Plain HTTP is for tests and proxies on this machine: credentials and data would be readable.
fn is_http_allowed(endpoint: Option<&str>, is_wanted: bool) -> Result<bool> {
    let Some(rest) = endpoint.and_then(|url| url.strip_prefix("http://")) else {
        return Ok(false);
    };
    let host = rest.split('/').next().unwrap_or_default();
    let is_loopback = ["localhost", "127.0.0.1", "[::1]"]
        .iter()
        .any(|name| host == *name || host.starts_with(&format!("{name}:")));
    if is_wanted && is_loopback {
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
