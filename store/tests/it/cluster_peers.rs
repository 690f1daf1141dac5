//! What arrives at the peer URLs and does not belong there, or is no message.

use holdfast_proto::peer::v1 as peer;
use holdfast_proto::peer::v1::peer_client::PeerClient;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::cluster_support::Cluster;

/// Calls member 0 as member 1 of its cluster, unless told otherwise.
struct Caller {
    client: PeerClient<Channel>,
    from: u64,
    to: u64,
    cluster: u64,
}

impl Caller {
    async fn of(cluster: &Cluster) -> Caller {
        let address = cluster.servers[0].as_ref().unwrap().peer_addresses()[0];
        let channel = Channel::from_shared(format!("http://{address}")).unwrap();
        Caller {
            client: PeerClient::new(channel.connect().await.unwrap()),
            from: cluster.member(1).id().0,
            to: cluster.member(0).id().0,
            cluster: cluster.member(0).cluster_id().0,
        }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert("holdfast-peer-protocol", "1".parse().unwrap());
        for (name, id) in [
            ("holdfast-from", self.from),
            ("holdfast-to", self.to),
            ("holdfast-cluster", self.cluster),
        ] {
            metadata.insert(name, format!("{id:x}").parse().unwrap());
        }
        request
    }

    async fn probe(&self, message: peer::AppendRequest) -> Result<peer::AppendResponse, Status> {
        let request = self.request(message);
        let response = self.client.clone().probe(request).await?;
        Ok(response.into_inner())
    }

    async fn append(&self, message: peer::AppendRequest) -> Result<peer::AppendResponse, Status> {
        let stream = futures::stream::iter([message]);
        let response = self.client.clone().append(self.request(stream)).await?;
        let answer = response.into_inner().message().await?;
        answer.ok_or_else(|| Status::unknown("no answer"))
    }

    fn vote(&self, term: u64) -> peer::Vote {
        peer::Vote {
            term,
            member: self.from,
            committed: true,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_of_another_cluster_is_refused_and_changes_nothing() {
    let mut cluster = Cluster::start(3).await;
    let term = cluster.member(0).term();
    let own = Caller::of(&cluster).await;
    let stranger = Caller {
        cluster: own.cluster + 1,
        ..Caller::of(&cluster).await
    };
    let message = peer::VoteRequest {
        vote: Some(peer::Vote {
            term: term + 10,
            member: stranger.from,
            committed: false,
        }),
        ..peer::VoteRequest::default()
    };
    let request = stranger.request(message);
    let refused = stranger.client.clone().vote(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let ids = [
        format!("{:x}", stranger.cluster),
        format!("{:x}", own.cluster),
    ];
    for id in ids {
        assert!(refused.message().contains(&id), "{}", refused.message());
    }
    let wrong_target = Caller {
        to: own.to + 1,
        ..Caller::of(&cluster).await
    };
    let request = wrong_target.request(message);
    let refused = wrong_target.client.clone().vote(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let unnamed = own
        .client
        .clone()
        .read_index(peer::ReadIndexRequest {})
        .await;
    assert_eq!(unnamed.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(cluster.member(0).term(), term, "nothing changed");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_messages_are_refused_and_the_member_goes_on() {
    let mut cluster = Cluster::start(3).await;
    let caller = Caller::of(&cluster).await;
    let entry = |term| peer::Entry {
        term,
        kind: peer::EntryKind::Blank.into(),
        body: Vec::new().into(),
    };
    let id = |term, index| Some(peer::LogId { term, index });
    let message = |vote, previous, entries| peer::AppendRequest {
        vote,
        previous,
        entries,
        committed: None,
    };
    let other = Some(peer::Vote {
        term: 9,
        member: caller.from + 1,
        committed: true,
    });
    let command = peer::Entry {
        kind: peer::EntryKind::Command.into(),
        body: vec![0xff; 40].into(),
        ..entry(1)
    };
    let membership = peer::Entry {
        kind: peer::EntryKind::Membership.into(),
        ..command.clone()
    };
    let bad = [
        message(None, None, vec![entry(1)]),
        message(other, None, vec![entry(1)]),
        message(Some(caller.vote(1)), id(1, 5), vec![entry(2)]),
        message(Some(caller.vote(3)), id(3, 5), vec![entry(2)]),
        message(Some(caller.vote(3)), id(1, u64::MAX), vec![entry(1)]),
        message(Some(caller.vote(3)), id(1, 5), vec![command]),
        message(Some(caller.vote(3)), id(1, 5), vec![membership]),
    ];
    for (at, message) in bad.into_iter().enumerate() {
        let refused = caller.append(message).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{at}: {refused}");
    }
    let full = message(Some(caller.vote(3)), id(1, 5), vec![entry(1)]);
    let refused = caller.probe(full).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);

    let head = peer::SnapshotHead {
        vote: Some(caller.vote(1)),
        id: 5,
        last_log: id(2, 1000),
        size: 10,
        digest: vec![0; 32].into(),
        membership: br#"{"voters":[[1]],"nodes":{"1":{"peer_urls":[]}}}"#.to_vec().into(),
        offset: 0,
    };
    let parts = [peer::SnapshotRequest {
        part: Some(peer::snapshot_request::Part::Head(head)),
    }];
    let request = caller.request(futures::stream::iter(parts));
    let refused = caller.client.clone().snapshot(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");

    cluster.put(0, "k", "v").await.unwrap();
    cluster.agree().await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oversized_message_and_bytes_that_are_none_are_refused_and_the_member_goes_on() {
    let mut cluster = Cluster::start(3).await;
    let caller = Caller::of(&cluster).await;
    let mut client = caller.client.clone();
    client = client.max_encoding_message_size(usize::MAX);
    let message = peer::ProposeRequest {
        commands: vec![vec![0; 65 << 20].into()],
    };
    let refused = client.propose(caller.request(message)).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
    let address = cluster.servers[0].as_ref().unwrap().peer_addresses()[0];
    for bytes in [
        &b"\x00\xff\x00\xff garbage \r\n\r\n"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff",
    ] {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer).await);
    }
    cluster.put(0, "k", "v").await.unwrap();
    cluster.stop_all().await;
}
