use super::*;

/// Answers `count` questions at a socket; a name without targets does not exist. The names asked.
pub(crate) async fn serve(
    server: UdpSocket,
    count: usize,
    targets_of: fn(&str) -> Vec<(&'static str, u16)>,
) -> Vec<String> {
    let mut asked = Vec::new();
    let mut question = vec![0; 512];
    for _ in 0..count {
        let (length, from) = server.recv_from(&mut question).await.unwrap();
        let (name, _) = name_at(&question[..length], 12).unwrap();
        let targets = targets_of(&name);
        let mut answer = answer(&question[..length], &targets);
        if targets.is_empty() {
            answer[3] |= 3;
        }
        server.send_to(&answer, from).await.unwrap();
        asked.push(name);
    }
    asked
}

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

#[test]
fn no_answer_of_a_name_server_is_more_than_an_error() {
    let question = question(7, "_etcd-server._tcp.example.org", TYPE_SRV).unwrap();
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

#[test]
fn the_names_of_an_address_are_asked_for_backwards_and_read() {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let name = reverse(ip("192.0.2.7"));
    assert_eq!(name, "7.2.0.192.in-addr.arpa");
    assert!(reverse(ip("2001:db8::1")).starts_with("1.0.0.0.0.0"));
    assert!(reverse(ip("2001:db8::1")).ends_with("8.b.d.0.1.0.0.2.ip6.arpa"));
    let mut message = question(7, &name, TYPE_PTR).unwrap();
    message[2] |= 0x80;
    message[7] = 1;
    message.extend([0xc0, 12]);
    for word in [TYPE_PTR, CLASS_IN, 0, 60, 5] {
        message.extend(word.to_be_bytes());
    }
    message.extend(b"\x01m\x01x\0");
    assert_eq!(names(&message, 7).unwrap(), ["m.x"]);
    assert!(targets(&message, 7).is_err(), "no SRV records");
}

#[test]
fn the_systems_own_file_knows_names() {
    let file = "# x\n127.0.0.1 localhost  here # there\n::1\tlocalhost\n192.0.2.7 far\n";
    let of = |text: &str| hosts(file, text.parse().unwrap());
    assert_eq!(of("127.0.0.1"), ["localhost", "here"]);
    assert_eq!(of("::1"), ["localhost"]);
    assert!(of("192.0.2.8").is_empty());
}
