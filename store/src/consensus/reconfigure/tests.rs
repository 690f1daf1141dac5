use super::*;

const RULES: Rules = Rules {
    is_strict: true,
    learners_max: 1,
};
const LAX: Rules = Rules {
    is_strict: false,
    ..RULES
};

fn url(id: u64) -> Vec<String> {
    vec![format!("http://h:{id}")]
}

fn node(id: u64, wanted: Wanted) -> PeerNode {
    PeerNode {
        peer_urls: url(id),
        wanted,
    }
}

/// Member 1 leads; everyone has started, is connected and is as far as the leader.
fn cluster(voters: &[u64], learners: &[u64], to_vote: &[u64]) -> Facts {
    let kinds = [
        (voters, Wanted::Voter),
        (learners, Wanted::Learner),
        (to_vote, Wanted::Voter),
    ];
    let nodes: BTreeMap<u64, PeerNode> = kinds
        .iter()
        .flat_map(|(ids, wanted)| ids.iter().map(|id| (*id, node(*id, *wanted))))
        .collect();
    let all: BTreeSet<u64> = nodes.keys().copied().collect();
    let others = all.iter().filter(|id| **id != 1);
    Facts {
        membership: Membership::new(vec![voters.iter().copied().collect()], nodes).unwrap(),
        started: all.clone(),
        removed: BTreeSet::new(),
        matched: others.map(|id| (*id, 1000)).collect(),
        connected: all,
        last_index: 1000,
        leader: 1,
    }
}

fn without(mut facts: Facts, connected: &[u64], started: &[u64]) -> Facts {
    for id in connected {
        facts.connected.remove(id);
    }
    for id in started {
        facts.started.remove(id);
    }
    facts
}

fn add_voter(id: u64) -> Change {
    Change::Add {
        id,
        peer_urls: url(id),
        is_learner: false,
    }
}

fn add_learner(id: u64) -> Change {
    Change::Add {
        id,
        peer_urls: url(id),
        is_learner: true,
    }
}

fn update(id: u64, port: u64) -> Change {
    Change::Update {
        id,
        peer_urls: url(port),
    }
}

const fn promote(id: u64) -> Change {
    Change::Promote { id }
}

const fn remove(id: u64) -> Change {
    Change::Remove { id }
}

/// The step in short: voters, then all nodes, a `?` behind those that are to learn.
fn told(result: &Result<Step, Error>) -> String {
    let shown = |membership: &Membership| {
        let voters: Vec<u64> = membership.voter_ids().collect();
        let nodes = membership.nodes().map(|(id, node)| {
            let mark = if node.is_wanted_voter() { "" } else { "?" };
            format!("{id}{mark}")
        });
        format!("{voters:?} of {}", nodes.collect::<Vec<_>>().join(" "))
    };
    match result {
        Ok(Step::Append(membership)) => shown(membership),
        Ok(Step::Describe(id, node)) => {
            format!("{id} {:?} {}", node.wanted, node.peer_urls.join(","))
        }
        Ok(Step::HandOver) => "hand over".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn assert_told(cases: &[(&str, Change, Facts, Rules, &str)]) {
    for (case, change, facts, rules, expected) in cases {
        assert_eq!(told(&decide(change, facts, *rules)), *expected, "{case}");
    }
}

const NOT_STARTED: &str = "re-configuration failed due to not enough started members";
const UNHEALTHY: &str = "unhealthy cluster";

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn a_member_is_added_by_etcds_rules() {
    let three = || cluster(&[1, 2, 3], &[], &[]);
    let one = || cluster(&[1], &[], &[]);
    let gone = Facts {
        removed: [4].into(),
        ..three()
    };
    assert_told(&[
        (
            "a voter learns first",
            add_voter(4),
            three(),
            RULES,
            "[1, 2, 3] of 1 2 3 4",
        ),
        (
            "a learner",
            add_learner(4),
            three(),
            RULES,
            "[1, 2, 3] of 1 2 3 4?",
        ),
        ("to one", add_voter(2), one(), RULES, "[1] of 1 2"),
        (
            "to one and one that has not started",
            add_voter(3),
            without(cluster(&[1], &[], &[2]), &[2], &[2]),
            RULES,
            NOT_STARTED,
        ),
        (
            "two of three have not started",
            add_voter(4),
            without(three(), &[], &[2, 3]),
            RULES,
            NOT_STARTED,
        ),
        (
            "a learner asks for no started members, but for connected ones",
            add_learner(4),
            without(three(), &[3], &[2, 3]),
            RULES,
            UNHEALTHY,
        ),
        (
            "one of three is down",
            add_voter(4),
            without(three(), &[3], &[]),
            RULES,
            UNHEALTHY,
        ),
        (
            "one of three is down and nobody minds",
            add_voter(4),
            without(three(), &[3], &[3]),
            LAX,
            "[1, 2, 3] of 1 2 3 4",
        ),
        (
            "a removed id",
            add_voter(4),
            gone,
            RULES,
            "member not found",
        ),
        (
            "a known id",
            add_voter(2),
            three(),
            RULES,
            "member ID already exist",
        ),
        (
            "a known address",
            Change::Add {
                id: 9,
                peer_urls: vec!["http://x:1".to_owned(), "http://h:2".to_owned()],
                is_learner: true,
            },
            three(),
            RULES,
            "peer URLs already exists",
        ),
        (
            "a second learner",
            add_learner(5),
            cluster(&[1, 2, 3], &[4], &[]),
            RULES,
            "too many learner members in cluster",
        ),
        (
            "a second learner where two may be",
            add_learner(5),
            cluster(&[1, 2, 3], &[4], &[]),
            Rules {
                learners_max: 2,
                ..RULES
            },
            "[1, 2, 3] of 1 2 3 4? 5?",
        ),
        (
            "one that is still to vote is no learner",
            add_learner(5),
            cluster(&[1, 2, 3], &[], &[4]),
            RULES,
            "[1, 2, 3] of 1 2 3 4 5?",
        ),
        (
            "an eighth voter",
            add_voter(8),
            cluster(&[1, 2, 3, 4, 5, 6], &[], &[7]),
            RULES,
            "a cluster has at most 7 voting members: remove one first",
        ),
    ]);
}

#[test]
fn a_learner_is_promoted_once_it_has_nine_tenths_of_the_log() {
    let with = |matched: Option<u64>| {
        let mut facts = cluster(&[1, 2, 3], &[4], &[]);
        facts.matched.remove(&4);
        facts.matched.extend(matched.map(|matched| (4, matched)));
        facts
    };
    let behind = "can only promote a learner member which is in sync with leader";
    assert_told(&[
        (
            "enough",
            promote(4),
            with(Some(900)),
            RULES,
            "4 Voter http://h:4",
        ),
        ("too little", promote(4), with(Some(899)), RULES, behind),
        ("nothing", promote(4), with(None), LAX, behind),
        ("unknown", promote(9), with(None), RULES, "member not found"),
        (
            "a voter",
            promote(2),
            with(None),
            RULES,
            "can only promote a learner member",
        ),
        (
            "the leader",
            promote(1),
            with(None),
            RULES,
            "can only promote a learner member",
        ),
        (
            "a voter that is behind",
            promote(2),
            Facts {
                matched: [(2, 10)].into(),
                ..with(None)
            },
            RULES,
            behind,
        ),
        (
            "voters that have not started",
            promote(4),
            without(with(Some(1000)), &[], &[2, 3]),
            RULES,
            NOT_STARTED,
        ),
        (
            "voters that have not started, and nobody minds",
            promote(4),
            without(with(Some(1000)), &[], &[2, 3]),
            LAX,
            "4 Voter http://h:4",
        ),
        (
            "an eighth voter",
            promote(9),
            cluster(&[1, 2, 3, 4, 5, 6, 7], &[9], &[]),
            RULES,
            "a cluster has at most 7 voting members: remove one first",
        ),
    ]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn a_member_is_removed_by_etcds_rules() {
    let three = || cluster(&[1, 2, 3], &[], &[]);
    assert_told(&[
        ("a healthy one", remove(3), three(), RULES, "[1, 2] of 1 2"),
        (
            "one that is down",
            remove(3),
            without(three(), &[3], &[]),
            RULES,
            "[1, 2] of 1 2",
        ),
        (
            "a healthy one while another is down",
            remove(2),
            without(three(), &[3], &[]),
            RULES,
            UNHEALTHY,
        ),
        (
            "a healthy one while another is down, and nobody minds",
            remove(2),
            without(three(), &[3], &[]),
            LAX,
            "[1, 3] of 1 3",
        ),
        (
            "too few of the rest have started",
            remove(2),
            without(three(), &[3], &[3]),
            RULES,
            NOT_STARTED,
        ),
        ("the leader", remove(1), three(), RULES, "hand over"),
        (
            "an unknown one",
            remove(9),
            three(),
            RULES,
            "member not found",
        ),
        (
            "the last one",
            remove(1),
            cluster(&[1], &[], &[]),
            RULES,
            NOT_STARTED,
        ),
        (
            "the last one, and nobody minds",
            remove(1),
            cluster(&[1], &[], &[]),
            LAX,
            NOT_STARTED,
        ),
        (
            "the last one that has its vote",
            remove(1),
            without(cluster(&[1], &[], &[2]), &[], &[]),
            LAX,
            NOT_STARTED,
        ),
        (
            "a learner while another member is down",
            remove(4),
            without(cluster(&[1, 2, 3], &[4], &[]), &[3], &[3]),
            RULES,
            "[1, 2, 3] of 1 2 3",
        ),
        (
            "one that was added and never started",
            remove(4),
            without(cluster(&[1, 2, 3], &[], &[4]), &[4], &[4]),
            RULES,
            "[1, 2, 3] of 1 2 3",
        ),
        (
            "one of two that work, the other is down",
            remove(1),
            without(cluster(&[1, 2], &[], &[]), &[2], &[]),
            RULES,
            UNHEALTHY,
        ),
    ]);
}

#[test]
fn a_member_is_told_to_be_elsewhere() {
    let facts = || cluster(&[1, 2, 3], &[4], &[]);
    assert_told(&[
        (
            "a voter",
            update(2, 20),
            facts(),
            RULES,
            "2 Voter http://h:20",
        ),
        (
            "a learner stays one",
            update(4, 20),
            facts(),
            RULES,
            "4 Learner http://h:20",
        ),
        (
            "where it is",
            update(2, 2),
            facts(),
            RULES,
            "2 Voter http://h:2",
        ),
        (
            "where another is",
            update(2, 3),
            facts(),
            RULES,
            "peer URLs already exists",
        ),
        (
            "an unknown one",
            update(9, 20),
            facts(),
            RULES,
            "member not found",
        ),
    ]);
}

#[test]
fn a_vote_is_given_to_who_has_caught_up_and_to_nobody_else() {
    let next = |facts: &Facts| {
        next_vote(facts).map(|(id, membership)| (id, membership.voter_ids().collect::<Vec<_>>()))
    };
    let mut facts = cluster(&[1, 2, 3], &[4], &[5, 6]);
    facts.last_index = 5000;
    facts.matched = [(4, 5000), (5, 3999), (6, 4000)].into();
    assert_eq!(next(&facts), Some((6, vec![1, 2, 3, 6])));
    let silent = without(facts.clone(), &[6], &[]);
    assert_eq!(next(&silent), None);
    facts.matched.remove(&6);
    assert_eq!(next(&facts), None);
    assert_eq!(next(&cluster(&[1, 2, 3], &[4], &[])), None);
}
