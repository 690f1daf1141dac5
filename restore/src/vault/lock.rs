//! Object lock: objects that nobody removes or writes over before a time, whatever credentials they
//! hold. S3 has it, on buckets that were made with it.
//!
//! A lock is set and extended by `PUT ?retention`, which the object store library does not send;
//! it signs the request. A versioned bucket answers a plain `DELETE` with a marker and keeps the
//! bytes, so where locks are set, removal names the one version there is.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use futures::StreamExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use object_store::ObjectStoreExt as _;
use object_store::aws::AmazonS3;
use object_store::client::{HttpClient, HttpRequest, HttpRequestBody};
use object_store::path::Path;
use object_store::signer::{SignedUrlOptions, Signer as _};
use serde::{Deserialize, Serialize};

/// How long a signed request may be under way.
const SIGNED_FOR: Duration = Duration::from_mins(5);

/// Largest answer read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The checksum that servers ask for beside such a request.
const CHECKSUM: HeaderName = HeaderName::from_static("x-amz-checksum-sha256");

/// Who may end a lock early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LockMode {
    /// Whoever has the permission to bypass it.
    Governance,
    /// Nobody, the owner of the account among them.
    Compliance,
}

/// How objects of backups that retention keeps are locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectLock {
    /// Who may end a lock early.
    pub mode: LockMode,
    /// A backup is locked for so many days, and again as long as retention keeps it, before half of
    /// them are over. One that it lets go can be removed so many days later at most. 1 to 3650;
    /// default: 7.
    #[serde(default = "week")]
    pub days: u16,
}

const fn week() -> u16 {
    7
}

/// Most days of one lock: nobody ends a lock by compliance early.
const DAYS_MAX: u16 = 3_650;

impl ObjectLock {
    /// Until when what is kept at `now` should be locked.
    pub fn until(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        now + TimeDelta::days(i64::from(self.days))
    }

    /// Whether a lock that ends at `until` is extended at `now`.
    pub fn is_renewed(&self, until: Option<DateTime<Utc>>, now: DateTime<Utc>) -> bool {
        let half = TimeDelta::hours(i64::from(self.days) * 12);
        until.is_none_or(|until| until < now + half)
    }

    /// Whether the number of days makes sense.
    pub(super) fn is_sound(self) -> bool {
        (1..=DAYS_MAX).contains(&self.days)
    }
}

impl fmt::Display for LockMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Governance => "GOVERNANCE",
            Self::Compliance => "COMPLIANCE",
        })
    }
}

/// Sets, extends and reads the locks of one bucket.
#[derive(Clone)]
pub(super) struct Locker {
    pub(super) store: Arc<AmazonS3>,
    pub(super) client: HttpClient,
    pub(super) lock: ObjectLock,
}

impl fmt::Debug for Locker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locker")
            .field("lock", &self.lock)
            .finish_non_exhaustive()
    }
}

impl Locker {
    /// Until when an object is locked; `None`: it is not.
    pub(super) async fn until(&self, path: &Path) -> object_store::Result<Option<DateTime<Utc>>> {
        let (status, text) = self
            .send(Method::GET, path, ("retention", ""), Bytes::new())
            .await?;
        // AWS says so with 404, others with 400.
        if !status.is_success() && text.contains("NoSuchObjectLockConfiguration") {
            return Ok(None);
        }
        if !status.is_success() {
            return Err(refused(path, status, &text));
        }
        let unreadable = || object_store::Error::Generic {
            store: "S3",
            source: format!("{path}: no RetainUntilDate in the answer").into(),
        };
        let date = between(&text, "<RetainUntilDate>", "</RetainUntilDate>");
        let date = date.ok_or_else(unreadable)?;
        let until = DateTime::parse_from_rfc3339(date).map_err(|_unread| unreadable())?;
        Ok(Some(until.to_utc()))
    }

    /// Locks an object until then. Servers refuse to shorten a lock.
    pub(super) async fn extend(
        &self,
        path: &Path,
        until: DateTime<Utc>,
    ) -> object_store::Result<()> {
        let (mode, date) = (
            self.lock.mode,
            until.to_rfc3339_opts(SecondsFormat::Secs, true),
        );
        let body = format!(
            "<Retention><Mode>{mode}</Mode><RetainUntilDate>{date}</RetainUntilDate></Retention>"
        );
        let (status, text) = self
            .send(Method::PUT, path, ("retention", ""), body.into())
            .await?;
        if status.is_success() {
            Ok(())
        } else {
            Err(refused(path, status, &text))
        }
    }

    /// Removes the version that is there, and with it the object's bytes.
    pub(super) async fn remove(&self, path: &Path) -> object_store::Result<()> {
        let Some(version) = self.store.head(path).await?.version else {
            return self.store.delete(path).await;
        };
        let (status, text) = self
            .send(Method::DELETE, path, ("versionId", &version), Bytes::new())
            .await?;
        if status.is_success() || status == StatusCode::NOT_FOUND {
            Ok(())
        } else {
            Err(refused(path, status, &text))
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &Path,
        (key, value): (&str, &str),
        body: Bytes,
    ) -> object_store::Result<(StatusCode, String)> {
        let failed =
            |source: Box<dyn std::error::Error + Send + Sync>| object_store::Error::Generic {
                store: "S3",
                source,
            };
        let mut headers = HeaderMap::new();
        if !body.is_empty() {
            let checksum = STANDARD.encode(digest(&SHA256, &body));
            let value = HeaderValue::from_str(&checksum).map_err(|error| failed(error.into()))?;
            headers.insert(CHECKSUM, value);
        }
        let mut options = SignedUrlOptions::default();
        options.extra_query = vec![(key.to_owned(), value.to_owned())];
        options.signed_headers = headers.clone();
        let url = self
            .store
            .signed_url_opts(method.clone(), path, SIGNED_FOR, &options)
            .await?;
        let mut request = HttpRequest::new(HttpRequestBody::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = url
            .as_str()
            .parse()
            .map_err(|error: http::uri::InvalidUri| failed(error.into()))?;
        *request.headers_mut() = headers;
        let answer = self.client.execute(request).await;
        let answer = answer.map_err(|error| failed(error.into()))?;
        let status = answer.status();
        let (mut pieces, mut text) = (answer.into_body().bytes_stream(), Vec::new());
        while let Some(piece) = pieces.next().await {
            text.extend_from_slice(&piece.map_err(|error| failed(error.into()))?);
            if text.len() > ANSWER_BYTES_MAX {
                break;
            }
        }
        Ok((status, String::from_utf8_lossy(&text).into_owned()))
    }
}

fn between<'a>(text: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(begin)?;
    rest.split_once(end).map(|(found, _)| found)
}

fn refused(path: &Path, status: StatusCode, text: &str) -> object_store::Error {
    let code = between(text, "<Code>", "</Code>").unwrap_or("no reason given");
    let said = between(text, "<Message>", "</Message>").unwrap_or_default();
    let (path, source) = (path.to_string(), format!("{status} {code}: {said}").into());
    match status {
        StatusCode::FORBIDDEN => object_store::Error::PermissionDenied { path, source },
        StatusCode::NOT_FOUND => object_store::Error::NotFound { path, source },
        _ => object_store::Error::Generic {
            store: "S3",
            source,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_renewed_before_half_of_it_is_over() {
        let lock = ObjectLock {
            mode: LockMode::Governance,
            days: 8,
        };
        let now = DateTime::UNIX_EPOCH;
        let until = lock.until(now);
        assert_eq!(until, now + TimeDelta::days(8));
        assert!(lock.is_renewed(None, now));
        assert!(!lock.is_renewed(Some(until), now + TimeDelta::days(4)));
        assert!(lock.is_renewed(Some(until), now + TimeDelta::days(5)));
    }
}
