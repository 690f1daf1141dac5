//! The scratch members of one drill: planned, ordered, asked.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;

use holdfast_restore::RestorePlan;
use holdfast_restore::plan::{NewMember, PlannedMember};

use crate::checks::Other;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::options::{DrillOptions, DrillTarget};
use crate::scratch::{MemberOrder, Pass, Program, ScratchMember};

/// Name of the scratch member; several are numbered.
pub(crate) const MEMBER_NAME: &str = "drill";

/// Members of a new cluster on ports of loopback that nobody has now.
pub(crate) fn new_members(count: usize) -> Result<Vec<NewMember>> {
    let unlistened = |error| Error::member(format!("finds no port on loopback: {error}"));
    let mut held = Vec::new();
    let mut members = Vec::new();
    for number in 1..=count {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(unlistened)?;
        let port = listener.local_addr().map_err(unlistened)?.port();
        members.push(NewMember {
            name: format!("{MEMBER_NAME}-{number}"),
            peer_urls: vec![format!("http://127.0.0.1:{port}")],
        });
        // All at once, so that none gets the port of another.
        held.push(listener);
    }
    Ok(members)
}

/// The database file of the first restored member, for a real etcd.
pub(crate) fn database(plan: &RestorePlan) -> PathBuf {
    let first = plan.write.first();
    let data_dir = first.map_or(&plan.data_dir, |member| &member.data_dir);
    data_dir.join("member/snap/db")
}

pub(crate) fn clients(members: &[ScratchMember], pass: Option<&Pass>) -> Result<Vec<Client>> {
    let client = |member: &ScratchMember| {
        let client = Client::new(member.address())?;
        Ok(match pass {
            Some(pass) => client.with_token(pass.token.clone()),
            None => client,
        })
    };
    members.iter().map(client).collect()
}

/// The client of the member that is asked most, and the other members.
pub(crate) fn split(
    members: &[ScratchMember],
    clients: Vec<Client>,
) -> Option<(Client, Vec<Other>)> {
    let mut pairs = members.iter().zip(clients);
    let (_, first) = pairs.next()?;
    let others = pairs.map(|(member, client)| Other {
        address: member.address(),
        client,
    });
    Some((first, others.collect()))
}

pub(crate) fn member_orders(
    options: &DrillOptions,
    plan: &RestorePlan,
    pass: Option<&Pass>,
) -> Vec<MemberOrder> {
    let url = |member: &NewMember| member.peer_urls.first().cloned().unwrap_or_default();
    let all = plan.members.iter();
    let cluster: Vec<_> = all.map(|one| (one.name.clone(), url(one))).collect();
    let order = |member: &PlannedMember| MemberOrder {
        name: member.name.clone(),
        data_dir: member.data_dir.clone(),
        cluster: cluster.clone(),
        token: plan.token.clone(),
        program: match &options.target {
            DrillTarget::Holdfast => Program::Holdfast,
            DrillTarget::Etcd(program) => Program::Etcd(program.clone()),
        },
        auth_token: pass.map(|pass| pass.flag.clone()),
        deadline_s: options.deadline.as_duration().as_secs().saturating_add(60),
    };
    plan.write.iter().map(order).collect()
}
