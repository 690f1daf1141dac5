use tokio::task::JoinSet;

use super::*;

/// An answer to `question`: SRV records, each name pointing back at the question's.
fn answer(question: &[u8], targets: &[(&str, u16)]) -> Vec<u8> {
    let mut message = question.to_vec();
    message[2] |= 0x80;
    message[7] = u8::try_from(targets.len()).unwrap();
    for (host, port) in targets {
        message.extend([0xc0, 12]);
        for word in [TYPE_SRV, CLASS_IN, 0, 60] {
            message.extend(word.to_be_bytes());
        }
        let mut name = Vec::new();
        for label in host.split('.') {
            name.push(u8::try_from(label.len()).unwrap());
            name.extend(label.as_bytes());
        }
        name.push(0);
        message.extend(u16::try_from(name.len() + 6).unwrap().to_be_bytes());
        for word in [0, 0, *port] {
            message.extend(word.to_be_bytes());
        }
        message.extend(name);
    }
    message
}

fn founder(name: &str, port: u16) -> NewCluster {
    NewCluster {
        name: name.to_owned(),
        initial_cluster: vec![(name.to_owned(), vec![format!("http://127.0.0.1:{port}")])],
        token: "t".to_owned(),
    }
}

#[tokio::test]
async fn founders_are_found_in_dns_and_one_of_them_is_this_member() {
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    let mut names = JoinSet::new();
    names.spawn(async move {
        let mut question = vec![0; 512];
        for _ in 0..2 {
            let (length, from) = server.recv_from(&mut question).await.unwrap();
            let all = [
                ("localhost", 7001),
                ("localhost", 7002),
                ("localhost", 7003),
            ];
            let answer = answer(&question[..length], &all);
            server.send_to(&answer, from).await.unwrap();
        }
        question
    });
    let srv = SrvDiscovery {
        domain: "example.org".to_owned(),
        service: "blue".to_owned(),
    };
    let found = discover_at(&founder("m2", 7002), &srv, &[address])
        .await
        .unwrap();
    let named = |name: &str, port: u16| (name.to_owned(), vec![format!("http://localhost:{port}")]);
    assert_eq!(
        found.initial_cluster,
        [named("0", 7001), named("m2", 7002), named("2", 7003)]
    );
    let stranger = discover_at(&founder("m9", 7009), &srv, &[address]).await;
    let told = stranger.unwrap_err().to_string();
    assert!(
        told.contains("cannot find local etcd member \"m9\" in SRV records"),
        "{told}"
    );
    let question = names.join_next().await.unwrap().unwrap();
    let asked = name_at(&question, 12).unwrap().0;
    assert_eq!(asked, "_etcd-server-blue._tcp.example.org");
}

#[test]
fn no_answer_of_a_name_server_is_more_than_an_error() {
    let question = question(7, "_etcd-server._tcp.example.org").unwrap();
    let fine = answer(&question, &[("h.example.org", 1)]);
    assert_eq!(targets(&fine, 7).unwrap()[0].host, "h.example.org");
    assert!(targets(&fine, 8).is_err(), "another question's");
    assert!(targets(&answer(&question, &[]), 7).is_err(), "no records");
    for length in 0..fine.len() {
        assert!(targets(&fine[..length], 7).is_err(), "{length}");
    }
    let mut endless = fine.clone();
    let at = question.len();
    endless[at..at + 2].copy_from_slice(&[0xc0, u8::try_from(at).unwrap()]);
    assert!(
        targets(&endless, 7)
            .unwrap_err()
            .to_string()
            .contains("without an end")
    );
    for place in 0..fine.len() {
        for bit in 0..8 {
            let mut flipped = fine.clone();
            flipped[place] ^= 1 << bit;
            // Whatever comes of it, it is an answer.
            drop(targets(&flipped, 7));
        }
    }
}

#[test]
fn name_servers_are_those_of_the_system() {
    let config = "# x\nsearch a.b\nnameserver 10.0.0.1\nnameserver ::1 # local\nnameserver x\n";
    let found: Vec<String> = name_servers(config)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(found, ["10.0.0.1:53", "[::1]:53"]);
}
