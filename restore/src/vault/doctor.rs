//! Trying out what a store does beyond single objects: uploads in pieces, and bytes that change on
//! the way.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpRequestBody, HttpResponse, HttpService,
    ReqwestConnector,
};
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt as _, PutMode, PutPayload};

use super::layout::ObjectName;
use super::spec::{RequestChecksum, S3Spec, VaultSpec};
use super::{ReadWrite, Vault, failed, parse_prefix};
use crate::error::Result;

/// The smallest piece but the last that S3 accepts, in bytes.
const PIECE_BYTES: usize = 5 << 20;

/// What protects bytes on their way to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// The request's signature, which covers a SHA-256 of the bytes.
    Signature,
    /// An `x-amz-checksum-sha256` alone.
    Checksum,
}

/// What the store did with bytes that are not those the request speaks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It noticed, in its words.
    Refused(String),
    /// It stored them.
    Stored,
    /// The store is no S3 server: it has nothing of the kind.
    NotS3,
}

impl Vault<ReadWrite> {
    /// Uploads an object in two pieces, as clients do with large ones.
    pub async fn try_multipart(&self, name: &ObjectName) -> Result<u64> {
        let path = self.path(name);
        let fail = || failed("upload in pieces", name);
        let mut upload = self.store.put_multipart(&path).await.map_err(fail())?;
        for piece in [
            Bytes::from(vec![7; PIECE_BYTES]),
            Bytes::from_static(b"end"),
        ] {
            upload.put_part(piece.into()).await.map_err(fail())?;
        }
        upload.complete().await.map_err(fail())?;
        self.size(name).await.map(Option::unwrap_or_default)
    }

    /// Begins an upload in pieces and gives it up. Returns whether an object is there now.
    pub async fn try_multipart_abort(&self, name: &ObjectName) -> Result<bool> {
        let path = self.path(name);
        let fail = || failed("give up an upload of", name);
        let mut upload = self.store.put_multipart(&path).await.map_err(fail())?;
        let piece = Bytes::from(vec![7; PIECE_BYTES]);
        upload.put_part(piece.into()).await.map_err(fail())?;
        upload.abort().await.map_err(fail())?;
        self.size(name).await.map(|size| size.is_some())
    }
}

/// Sends other bytes than those that the request was made for, as a broken network would.
pub async fn try_changed_bytes(
    spec: &VaultSpec,
    name: &ObjectName,
    protection: Protection,
) -> Result<Verdict> {
    let VaultSpec::S3(s3) = spec else {
        return Ok(Verdict::NotS3);
    };
    let store = broken_store(s3, protection)?;
    let prefix = parse_prefix(&s3.prefix)?;
    let path = name
        .as_str()
        .split('/')
        .fold(prefix, object_store::path::Path::join);
    let payload = PutPayload::from_static(b"what the request speaks of");
    match store
        .put_opts(&path, payload, PutMode::Overwrite.into())
        .await
    {
        Ok(_) => {
            store.delete(&path).await.map_err(failed("remove", name))?;
            Ok(Verdict::Stored)
        }
        Err(
            error
            @ (object_store::Error::Generic { .. } | object_store::Error::Precondition { .. }),
        ) => Ok(Verdict::Refused(in_short(&error))),
        Err(error) => Err(failed("store", name)(error)),
    }
}

fn broken_store(spec: &S3Spec, protection: Protection) -> Result<Arc<dyn ObjectStore>> {
    let is_unsigned = protection == Protection::Checksum;
    let mut spec = spec.clone();
    if is_unsigned {
        spec.request_checksum = RequestChecksum::Sha256;
    }
    let store = super::connect::s3_through(&spec, |builder| {
        builder
            .with_http_connector(BrokenWire::default())
            .with_unsigned_payload(is_unsigned)
    })?;
    Ok(store)
}

/// S3's code of the error, which is what an administrator can look up.
fn in_short(error: &object_store::Error) -> String {
    let text = error.to_string();
    let code = text
        .split_once("<Code>")
        .and_then(|(_, rest)| rest.split_once("</Code>"))
        .map(|(code, _)| code.to_owned());
    code.unwrap_or(text)
}

/// Changes the bytes of every upload.
#[derive(Debug, Default)]
struct BrokenWire(ReqwestConnector);

impl HttpConnector for BrokenWire {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        self.0
            .connect(options)
            .map(|client| HttpClient::new(BrokenClient(client)))
    }
}

#[derive(Debug)]
struct BrokenClient(HttpClient);

#[async_trait]
impl HttpService for BrokenClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let request = if request.method() == http::Method::PUT {
            request.map(|body| HttpRequestBody::from(vec![b'?'; body.content_length()]))
        } else {
            request
        };
        self.0.execute(request).await
    }
}
