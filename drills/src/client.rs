//! A client of the scratch member.

use std::net::SocketAddr;
use std::time::Duration;

use holdfast_proto::etcd::rpc::kv_client::KvClient;
use holdfast_proto::etcd::rpc::lease_client::LeaseClient;
use holdfast_proto::etcd::rpc::maintenance_client::MaintenanceClient;
use holdfast_proto::etcd::rpc::watch_client::WatchClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

use crate::error::Error;

/// One answer may take this long.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Largest answer read: a page of large values.
const ANSWER_BYTES_MAX: usize = 512 << 20;

/// A connection to one member on loopback.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    channel: Channel,
    token: Token,
}

/// Sends a token along, where there is one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Token(Option<MetadataValue<Ascii>>);

impl Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("token", token.clone());
        }
        Ok(request)
    }
}

/// How requests travel.
pub(crate) type Service = InterceptedService<Channel, Token>;

impl Client {
    /// A client of the member at `address`, connected when it is first asked. Refuses any
    /// address that is not on loopback: a drill has no business elsewhere.
    pub(crate) fn new(address: SocketAddr) -> crate::error::Result<Self> {
        if !address.ip().is_loopback() {
            let reason = format!("listens on {address}, which is not loopback");
            return Err(Error::Member { reason });
        }
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| Error::member(format!("cannot be reached: {error}")))?;
        let endpoint = endpoint.connect_timeout(Duration::from_secs(5));
        Ok(Self {
            channel: endpoint.connect_lazy(),
            token: Token::default(),
        })
    }

    /// The same, with a token in each request.
    pub(crate) fn with_token(self, token: MetadataValue<Ascii>) -> Self {
        Self {
            token: Token(Some(token)),
            ..self
        }
    }

    /// A client of the same member that nobody let in; none where everybody is let in.
    pub(crate) fn stranger(&self) -> Option<Self> {
        self.token.0.as_ref()?;
        Some(Self {
            channel: self.channel.clone(),
            token: Token::default(),
        })
    }

    fn service(&self) -> Service {
        InterceptedService::new(self.channel.clone(), self.token.clone())
    }

    pub(crate) fn kv(&self) -> KvClient<Service> {
        KvClient::new(self.service()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    pub(crate) fn lease(&self) -> LeaseClient<Service> {
        LeaseClient::new(self.service()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    pub(crate) fn maintenance(&self) -> MaintenanceClient<Service> {
        MaintenanceClient::new(self.service()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    pub(crate) fn watch(&self) -> WatchClient<Service> {
        WatchClient::new(self.service()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }
}

/// Waits for an answer, for a limited time.
pub(crate) async fn answer<T, F>(request: F) -> Result<T, Status>
where
    F: Future<Output = Result<Response<T>, Status>>,
{
    match tokio::time::timeout(ANSWER_MAX, request).await {
        Ok(answer) => answer.map(Response::into_inner),
        Err(_elapsed) => Err(Status::deadline_exceeded("no answer in 30 s")),
    }
}
