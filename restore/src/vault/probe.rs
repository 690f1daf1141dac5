//! What a bucket says of itself: region, versioning, object lock. Calls of S3 that the object store
//! library does not have, signed by it all the same.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use object_store::aws::{AmazonS3, AwsAuthorizer};
use object_store::client::{HttpConnector as _, HttpRequestBody, ReqwestConnector};
use object_store::path::Path;
use object_store::signer::Signer as _;

use super::connect::{client_options, s3};
use super::spec::S3Spec;
use crate::error::{Error, Result};

/// Largest answer read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// What a bucket says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketFacts {
    /// Whether it is in the region that is configured.
    pub region: Answer,
    /// Whether old versions of objects are kept.
    pub versioning: Answer,
    /// Whether objects can be locked, and for how long they are unless told otherwise.
    pub object_lock: Answer,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is so.
    Yes(String),
    /// It is not.
    No(String),
    /// These credentials may not ask.
    Denied,
    /// The server does not know the question, or gave no answer.
    Unknown(String),
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Yes(text) | Self::No(text) => f.write_str(text),
            Self::Denied => f.write_str("these credentials may not ask"),
            Self::Unknown(text) => write!(f, "not told: {text}"),
        }
    }
}

/// An answer of the server.
struct Told {
    status: StatusCode,
    region: Option<String>,
    text: String,
}

/// Asks a bucket of an S3 server about itself.
pub async fn ask_bucket(spec: &S3Spec) -> Result<BucketFacts> {
    let configured = spec.region.as_deref().unwrap_or("us-east-1");
    let head = ask(spec, Method::HEAD, "").await?;
    let region = match &head.region {
        Some(told) if told == configured => Answer::Yes(format!("the bucket is in {told}")),
        Some(told) => Answer::No(format!(
            "the bucket is in {told}, the requests are for {configured}"
        )),
        None => Answer::Unknown("the server names no region".to_owned()),
    };
    let versioning = ask(spec, Method::GET, "versioning").await?;
    let versioning = versioning.answer(|text| match element(text, "Status") {
        Some("Enabled") => Answer::Yes("old versions of objects are kept".to_owned()),
        Some(other) => Answer::No(format!("versioning is {}", other.to_lowercase())),
        None => Answer::No("versioning is off".to_owned()),
    });
    let lock = ask(spec, Method::GET, "object-lock").await?;
    let object_lock = lock.answer(|text| match element(text, "ObjectLockEnabled") {
        Some("Enabled") => Answer::Yes(default_lock(text)),
        _ => Answer::No("objects cannot be locked".to_owned()),
    });
    Ok(BucketFacts {
        region,
        versioning,
        object_lock,
    })
}

fn default_lock(text: &str) -> String {
    let mode = element(text, "Mode");
    let days = element(text, "Days").map(|days| format!("{days} days"));
    let years = element(text, "Years").map(|years| format!("{years} years"));
    match (mode, days.or(years)) {
        (Some(mode), Some(time)) => {
            format!("objects can be locked; without more words for {time}, {mode}")
        }
        _ => "objects can be locked; none is by default".to_owned(),
    }
}

impl Told {
    fn answer(&self, read: impl FnOnce(&str) -> Answer) -> Answer {
        let code = element(&self.text, "Code");
        match (self.status, code) {
            (status, _) if status.is_success() => read(&self.text),
            (_, Some("ObjectLockConfigurationNotFoundError")) => {
                Answer::No("objects cannot be locked".to_owned())
            }
            (StatusCode::FORBIDDEN, _) => Answer::Denied,
            (status, Some(code)) => Answer::Unknown(format!("{code} ({})", status.as_u16())),
            (status, None) => Answer::Unknown(format!("status {}", status.as_u16())),
        }
    }
}

/// The text of the first element with this name; the answers are flat.
pub(super) fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>"))
        .map(|(value, _)| value)
}

/// The bucket's own URL, with what is asked: that of an object in it, without the object.
async fn url_of(store: &AmazonS3, question: &str) -> object_store::Result<String> {
    const OBJECT: &str = "x";
    let object = Path::from(OBJECT);
    let mut url = store
        .signed_url(Method::GET, &object, Duration::from_secs(1))
        .await?;
    let path = url.path().trim_end_matches(OBJECT).to_owned();
    url.set_path(&path);
    url.set_query(
        (!question.is_empty())
            .then(|| format!("{question}="))
            .as_deref(),
    );
    Ok(url.into())
}

async fn ask(spec: &S3Spec, method: Method, question: &str) -> Result<Told> {
    let failed = |reason: String| Error::VaultSettings {
        reason: format!("the bucket {} does not answer: {reason}", spec.bucket),
    };
    let (ca, proxy) = (spec.ca_file.as_deref(), spec.proxy.as_deref());
    let options = client_options(spec.endpoint.as_deref(), spec.allow_http, ca, proxy)?;
    let client = ReqwestConnector::default()
        .connect(&options)
        .map_err(|error| failed(error.to_string()))?;
    let store = s3(spec)?;
    let credential = store
        .credentials()
        .get_credential()
        .await
        .map_err(super::failed(
            "get credentials for",
            &super::layout::marker(),
        ))?;
    let url = url_of(&store, question);
    let url = url.await.map_err(|error| failed(error.to_string()))?;
    let mut request = Request::builder()
        .method(method)
        .uri(&url)
        .body(HttpRequestBody::from(Bytes::new()))
        .map_err(|error| failed(error.to_string()))?;
    let region = spec.region.as_deref().unwrap_or("us-east-1");
    AwsAuthorizer::new(&credential, "s3", region)
        .try_authorize(&mut request, None)
        .map_err(|error| failed(error.to_string()))?;
    let answer = client
        .execute(request)
        .await
        .map_err(|error| failed(error.to_string()))?;
    let (status, headers) = (answer.status(), answer.headers());
    let region = headers.get("x-amz-bucket-region");
    let region = region
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned);
    let body = answer
        .into_body()
        .bytes()
        .await
        .map_err(|error| failed(error.to_string()))?;
    let body = body.get(..ANSWER_BYTES_MAX).unwrap_or(&body);
    Ok(Told {
        status,
        region,
        text: String::from_utf8_lossy(body).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        let told = |status: u16, text: &str| Told {
            status: StatusCode::from_u16(status).unwrap(),
            region: None,
            text: text.to_owned(),
        };
        let read = |_: &str| Answer::Yes("read".to_owned());
        assert_eq!(told(200, "").answer(read), Answer::Yes("read".to_owned()));
        assert_eq!(
            told(403, "<Code>AccessDenied</Code>").answer(read),
            Answer::Denied
        );
        let none = "<Code>ObjectLockConfigurationNotFoundError</Code>";
        assert!(matches!(told(404, none).answer(read), Answer::No(_)));
        let odd = told(501, "<Code>NotImplemented</Code>").answer(read);
        assert_eq!(odd, Answer::Unknown("NotImplemented (501)".to_owned()));
        let lock = "<Rule><DefaultRetention><Mode>COMPLIANCE</Mode><Days>30</Days>";
        assert!(default_lock(lock).contains("30 days, COMPLIANCE"));
    }
}
