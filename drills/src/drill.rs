//! One drill: planned, restored, booted, checked, reported.
//!
//! Each state is a type, so no step can be left out or taken twice. A step that breaks off hands
//! over everything there is to tear down, and there is one way out for all of them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use holdfast_policies::Span;
use holdfast_proto::etcd::rpc;
use holdfast_restore::content::Content;
use holdfast_restore::delta::run;
use holdfast_restore::manifest::SourceHash;
use holdfast_restore::plan::choose;
use holdfast_restore::{
    Bump, Catalog, Keys, Manifest, Pick, ReadOnly, RestoreOptions, RestorePlan,
    Restored as Rebuilt, Target, UniqueId, Upto, Vault, plan_replay, progress,
    rebuild_with_content,
};
use tokio::time::Instant;

use crate::checks::{self, CHECK_NAMES, Facts, Outcome, Subject};
use crate::client::{Client, answer};
use crate::error::{Error, Result};
use crate::expected::Expected;
use crate::history::History;
use crate::members::{MEMBER_NAME, clients, database, member_orders, new_members, split};
use crate::options::{DrillOptions, DrillTarget, Phase, PhaseFn, pick};
use crate::report::{
    BackupRecord, DrillReport, PhaseRecord, PrefixRecord, ReplayRecord, RestoredRecord, RpoRecord,
    TargetKind, TeardownRecord,
};
use crate::scratch::{Pass, ScratchDir, ScratchMember, watch_budget};

/// Prefixes told in a report.
const PREFIXES_TOLD: usize = 32;

/// How often a member that is coming up is asked.
const ASK_INTERVAL: Duration = Duration::from_millis(20);

/// Rehearses a restore. Whatever happens on the way is in the report; an error means that no
/// drill came about at all. Nothing is written to the vault: see [`crate::publish`].
pub async fn run(
    options: &DrillOptions,
    vault: &Vault<ReadOnly>,
    keys: &Keys,
    told: PhaseFn<'_>,
) -> Result<DrillReport> {
    let case = Case::open(options, told)?;
    let (case, members, fault) = match Box::pin(rehearse(case, vault, keys)).await {
        Ok(Drill { case, state }) => (case, state.members, None),
        Err(broken) => (broken.case, broken.members, Some(Fault::of(&broken.error))),
    };
    Ok(case.conclude(members, fault).await)
}

async fn rehearse<'a>(case: Case<'a>, vault: &Vault<ReadOnly>, keys: &Keys) -> Step<'a, Checked> {
    let planned = case.plan(vault, keys).await?;
    let restored = planned.restore(vault, keys).await?;
    let booted = restored.boot().await?;
    booted.check().await
}

/// A drill in one of its states.
struct Drill<'a, State> {
    case: Case<'a>,
    state: State,
}

/// A backup is chosen.
struct Planned {
    plan: RestorePlan,
    manifest: Manifest,
}

/// The data directories are there.
struct Restored {
    plan: RestorePlan,
    manifest: Manifest,
    rebuilt: Rebuilt,
    content: Content,
}

/// They are served.
struct Booted {
    plan: RestorePlan,
    manifest: Manifest,
    rebuilt: Rebuilt,
    content: Content,
    members: Vec<ScratchMember>,
    /// One for each member.
    clients: Vec<Client>,
}

/// Everything was asked.
struct Checked {
    members: Vec<ScratchMember>,
}

/// A drill that broke off, with what there is to tear down.
struct Broken<'a> {
    case: Case<'a>,
    members: Vec<ScratchMember>,
    error: Error,
}

type Step<'a, State> = std::result::Result<Drill<'a, State>, Box<Broken<'a>>>;

/// What all states share: where it works, until when, and the report so far.
struct Case<'a> {
    options: &'a DrillOptions,
    told: PhaseFn<'a>,
    scratch: ScratchDir,
    begun: Instant,
    phase: (Phase, Instant),
    /// Nothing was ever written to the source; known once a backup is chosen.
    is_new: bool,
    report: DrillReport,
}

/// Why a drill broke off, and whether that says something of the backup.
struct Fault {
    text: String,
    outcome: Outcome,
}

impl Fault {
    fn of(error: &Error) -> Self {
        let outcome = error.outcome();
        let text = match outcome {
            Outcome::Failed | Outcome::Passed => error.line(),
            Outcome::Inconclusive => {
                format!("{}; this says nothing of the backup itself", error.line())
            }
        };
        Self { text, outcome }
    }
}

impl<'a> Case<'a> {
    fn open(options: &'a DrillOptions, told: PhaseFn<'a>) -> Result<Self> {
        let scratch = ScratchDir::create(&options.scratch_dir, options.id)?;
        let begun = Instant::now();
        told(Phase::Pick);
        let target = match options.target {
            DrillTarget::Holdfast => TargetKind::Holdfast,
            DrillTarget::Etcd(_) => TargetKind::Etcd,
        };
        let report = DrillReport {
            id: options.id,
            cluster: options.cluster.clone(),
            outcome: Outcome::Failed,
            started: options.now,
            ended: options.now,
            target,
            backup: None,
            replayed: None,
            restored: None,
            phases: Vec::new(),
            rto: None,
            rto_objective: options.rto,
            rpo: None,
            checks: Vec::new(),
            prefixes: Vec::new(),
            fault: None,
            teardown: TeardownRecord::default(),
            writer: concat!("holdfast ", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        Ok(Self {
            options,
            told,
            scratch,
            begun,
            phase: (Phase::Pick, begun),
            is_new: false,
            report,
        })
    }

    /// Notes how long the phase took that ends here.
    fn enter(&mut self, next: Phase) {
        let (phase, since) = self.phase;
        let took = Span::from(since.elapsed());
        self.report.phases.push(PhaseRecord {
            name: phase.name().to_owned(),
            took,
        });
        self.phase = (next, Instant::now());
        (self.told)(next);
    }

    /// Carries out one piece of work, within deadline and budget.
    async fn within<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let deadline = self.options.deadline.as_duration();
        let budget = self.options.budget.bytes();
        tokio::select! {
            done = work => done,
            () = tokio::time::sleep_until(self.begun + deadline) => {
                Err(Error::Deadline { seconds: deadline.as_secs() })
            }
            error = watch_budget(self.scratch.path(), budget) => Err(error),
        }
    }

    fn broken(self, members: Vec<ScratchMember>, error: Error) -> Box<Broken<'a>> {
        Box::new(Broken {
            case: self,
            members,
            error,
        })
    }

    async fn plan(mut self, vault: &Vault<ReadOnly>, keys: &Keys) -> Step<'a, Planned> {
        match self.within(self.choose(vault, keys)).await {
            Err(error) => Err(self.broken(Vec::new(), error)),
            Ok((plan, manifest, history)) => {
                self.report.backup = Some(backup_record(&plan, &manifest));
                self.report.rpo = Some(rpo_record(self.options, &plan, &history));
                self.is_new = history.is_new;
                self.enter(Phase::Restore);
                Ok(Drill {
                    case: self,
                    state: Planned { plan, manifest },
                })
            }
        }
    }

    /// The plan, the manifest, and the history it is from.
    async fn choose(
        &self,
        vault: &Vault<ReadOnly>,
        keys: &Keys,
    ) -> Result<(RestorePlan, Manifest, History)> {
        let options = self.options;
        let ledger = options.ledger.as_ref();
        let catalog = Catalog::load(vault, &options.cluster, &keys.trust, ledger).await?;
        let choice = options.pick.unwrap_or_else(|| pick(&catalog));
        let chosen = choose(&catalog, choice)?;
        let listed = chosen.manifest.content.members.len();
        let wanted = self.restore_options(options.members.count(listed))?;
        let runs = run::survey(vault, &catalog, &keys.trust).await?;
        let upto = Upto::Newest(Pick::Id(chosen.id()));
        let plan = plan_replay(&catalog, &runs, upto, &wanted)?;
        let manifest = chosen.manifest.clone();
        let history = History::of(&catalog, &manifest);
        Ok((plan, manifest, history))
    }

    /// How the drill is let in by a real etcd that has authentication on.
    fn pass(&self, plan: &RestorePlan) -> Result<Option<Pass>> {
        if plan.target != Target::Etcd || !plan.is_auth_enabled {
            return Ok(None);
        }
        let auth = checks::auth::auth_of(&database(plan))?;
        Pass::create(self.scratch.path(), &auth).map(Some)
    }

    fn restore_options(&self, members: usize) -> Result<RestoreOptions> {
        let scratch = self.scratch.path();
        let work_dir = scratch.join("work");
        std::fs::create_dir(&work_dir).map_err(Error::io("create", &work_dir))?;
        let (target, peer_url) = match self.options.target {
            // Nobody listens there: a member by itself has no peers.
            DrillTarget::Holdfast => (Target::Holdfast, "http://127.0.0.1:2380"),
            // A free port, found by etcd.
            DrillTarget::Etcd(_) => (Target::Etcd, "http://127.0.0.1:0"),
        };
        let one = RestoreOptions::single(target, scratch.join("data"), MEMBER_NAME, peer_url);
        let members = if members > 1 {
            new_members(members)?
        } else {
            one.members.clone()
        };
        Ok(RestoreOptions {
            members,
            bump: Bump::Auto,
            mark_compacted: true,
            clear_alarms: self.options.clear_alarms,
            restore_id: UniqueId::generate(),
            work_dir: Some(work_dir),
            ..one
        })
    }

    /// The only way out: tears down, then reports.
    async fn conclude(mut self, members: Vec<ScratchMember>, fault: Option<Fault>) -> DrillReport {
        self.enter(Phase::Teardown);
        let mut left = ScratchMember::stop_all(members).await;
        if let Err(what) = self.scratch.remove().await {
            left.push(what);
        }
        let (phase, since) = self.phase;
        let took = Span::from(since.elapsed());
        let mut report = self.report;
        report.phases.push(PhaseRecord {
            name: phase.name().to_owned(),
            took,
        });
        let way_there = fault
            .as_ref()
            .map_or(Outcome::Passed, |fault| fault.outcome);
        report.fault = fault.map(|fault| fault.text);
        report.teardown = TeardownRecord {
            is_clean: left.is_empty(),
            left,
        };
        report.ended = report.started + Span::from(self.begun.elapsed()).as_delta();
        report.outcome = report.judge(way_there);
        report
    }
}

impl<'a> Drill<'a, Planned> {
    async fn restore(mut self, vault: &Vault<ReadOnly>, keys: &Keys) -> Step<'a, Restored> {
        let Planned { plan, manifest } = self.state;
        let work = async {
            let silent = &progress::silent;
            Ok(rebuild_with_content(vault, &plan, keys, silent).await?)
        };
        let (rebuilt, content) = match self.case.within(work).await {
            Ok(done) => done,
            Err(error) => return Err(self.case.broken(Vec::new(), error)),
        };
        self.case.report.replayed = replay_record(&plan, &rebuilt);
        self.case.enter(Phase::Boot);
        Ok(Drill {
            case: self.case,
            state: Restored {
                plan,
                manifest,
                rebuilt,
                content,
            },
        })
    }
}

impl<'a> Drill<'a, Restored> {
    async fn boot(mut self) -> Step<'a, Booted> {
        let Restored {
            plan,
            manifest,
            rebuilt,
            content,
        } = self.state;
        let pass = match self.case.pass(&plan) {
            Ok(pass) => pass,
            Err(error) => return Err(self.case.broken(Vec::new(), error)),
        };
        let orders = member_orders(self.case.options, &plan, pass.as_ref());
        let scratch = self.case.scratch.path();
        let start = ScratchMember::start_all(&self.case.options.member, orders, scratch);
        let members = match self.case.within(start).await {
            Ok(members) => members,
            Err(error) => return Err(self.case.broken(Vec::new(), error)),
        };
        let clients = match clients(&members, pass.as_ref()) {
            Ok(clients) => clients,
            Err(error) => return Err(self.case.broken(members, error)),
        };
        let version = match self.case.within(all_serving(&clients)).await {
            Ok(version) => version,
            Err(error) => return Err(self.case.broken(members, error)),
        };
        self.case.report.rto = Some(Span::from(self.case.begun.elapsed()));
        self.case.report.restored = Some(RestoredRecord {
            revision: plan.revision_after,
            bump: plan.bump,
            highest_seen: plan.highest_seen,
            server_version: version,
            members: u32::try_from(members.len()).unwrap_or(u32::MAX),
        });
        self.case.enter(Phase::Decode);
        Ok(Drill {
            case: self.case,
            state: Booted {
                plan,
                manifest,
                rebuilt,
                content,
                members,
                clients,
            },
        })
    }
}

impl<'a> Drill<'a, Booted> {
    async fn check(mut self) -> Step<'a, Checked> {
        let Booted {
            plan,
            manifest,
            rebuilt,
            content,
            members,
            clients,
        } = self.state;
        let Some((client, others)) = split(&members, clients) else {
            let error = Error::member("is not there");
            return Err(self.case.broken(members, error));
        };
        let expected = match self.case.within(decode(content)).await {
            Ok(expected) => Arc::new(expected),
            Err(error) => return Err(self.case.broken(members, error)),
        };
        self.case.report.prefixes = prefix_records(&expected);
        self.case.enter(Phase::Check);
        let facts = facts(&self.case, &plan, (&manifest, &rebuilt), members.first());
        let subject = Subject {
            facts,
            expected,
            client,
        };
        for place in 0..CHECK_NAMES.len() {
            let check = async { Ok(checks::check_at(place, &subject, &others).await) };
            match self.case.within(check).await {
                Ok(records) => self.case.report.checks.extend(records),
                Err(error) => return Err(self.case.broken(members, error)),
            }
        }
        Ok(Drill {
            case: self.case,
            state: Checked { members },
        })
    }
}

/// Waits until every member answers a linearizable read; then tells the version of the first.
async fn all_serving(clients: &[Client]) -> Result<Option<String>> {
    let mut version = None;
    for client in clients {
        let told = serving(client).await?;
        version = version.or(told);
    }
    Ok(version)
}

/// Waits until a linearizable read is answered; then tells the member's version.
async fn serving(client: &Client) -> Result<Option<String>> {
    let request = rpc::RangeRequest {
        key: Bytes::from_static(b"\0"),
        range_end: Bytes::from_static(b"\0"),
        limit: 1,
        ..rpc::RangeRequest::default()
    };
    loop {
        let answered = answer(client.kv().range(request.clone())).await;
        // A refusal is an answer too; what it is worth, the checks say.
        let is_coming_up = answered.is_err_and(|status| {
            matches!(
                status.code(),
                tonic::Code::Unavailable | tonic::Code::DeadlineExceeded
            )
        });
        if !is_coming_up {
            let status = answer(client.maintenance().status(rpc::StatusRequest {})).await;
            return Ok(status.ok().map(|status| status.version));
        }
        tokio::time::sleep(ASK_INTERVAL).await;
    }
}

async fn decode(content: Content) -> Result<Expected> {
    let read = tokio::task::spawn_blocking(move || {
        Expected::read(content.file(), content.is_trailer_valid())
    });
    let read = read.await;
    read.unwrap_or_else(|error| Err(Error::member(format!("cannot be compared: {error}"))))
}

/// What the source told of the content, before anything was replayed and of what was.
fn told_hash(manifest: &Manifest, rebuilt: &Rebuilt) -> std::result::Result<u32, String> {
    let content = &manifest.content;
    let told = match &manifest.source_hash {
        SourceHash::Told { hash, revision, .. } if *revision == content.revision => Ok(*hash),
        SourceHash::Told { revision, .. } => Err(format!("it told that of revision {revision}")),
        SourceHash::Unavailable { reason } => Err(reason.clone()),
    };
    match (rebuilt.replayed, told) {
        // The replay was compared with it, and refused otherwise.
        (Some(replayed), _) if replayed.compared.is_some() => Ok(rebuilt.hash_kv),
        (Some(_), Ok(told)) if told == content.hash_kv => Ok(rebuilt.hash_kv),
        (_, told) => told,
    }
}

fn facts(
    case: &Case<'_>,
    plan: &RestorePlan,
    (manifest, rebuilt): (&Manifest, &Rebuilt),
    member: Option<&ScratchMember>,
) -> Facts {
    let content = &manifest.content;
    let (recorded_hash, recorded_keys) = match rebuilt.replayed {
        Some(_) => (rebuilt.hash_kv, rebuilt.keys),
        None => (content.hash_kv, content.keys),
    };
    let restored_file = match plan.target {
        Target::Holdfast => None,
        Target::Etcd => Some(database(plan)),
    };
    Facts {
        id: case.options.id,
        revision: plan.revision,
        recorded_hash,
        told_hash: told_hash(manifest, rebuilt),
        recorded_keys,
        wanted_keys: case.options.wanted_keys,
        is_new: case.is_new,
        revision_after: plan.revision_after,
        highest_seen: plan.highest_seen,
        restored_file,
        member_auth: member.and_then(ScratchMember::auth).cloned(),
    }
}

fn backup_record(plan: &RestorePlan, manifest: &Manifest) -> BackupRecord {
    BackupRecord {
        id: manifest.id,
        sequence: manifest.sequence,
        manifest: plan.manifest,
        content: manifest.content.digest,
        time: manifest.started,
        revision: manifest.content.revision,
        hash_kv: manifest.content.hash_kv,
        keys: manifest.content.keys,
        bytes: manifest.content.bytes,
        stored_bytes: manifest.stored_bytes(),
        level: plan.level,
    }
}

/// What the source told, or else what its backups hold; what a restore has jumped over is no
/// revision that was lost.
fn rpo_record(options: &DrillOptions, plan: &RestorePlan, history: &History) -> RpoRecord {
    let newest_known = options
        .known
        .map_or(history.newest_backed_up, |(revision, _)| revision)
        .max(plan.revision);
    RpoRecord {
        age: (options.now - plan.until)
            .to_std()
            .map(Span::from)
            .unwrap_or_default(),
        newest_known,
        newest_known_at: options.known.map(|(_, at)| at),
        revisions_missing: history.revisions_between(plan.revision, newest_known),
        objective: options.rpo,
    }
}

fn replay_record(plan: &RestorePlan, rebuilt: &Rebuilt) -> Option<ReplayRecord> {
    let replayed = rebuilt.replayed?;
    Some(ReplayRecord {
        deltas: replayed.deltas,
        revision: plan.revision,
        until: plan.until,
        compared: replayed.compared.map(|told| told.revision),
    })
}

fn prefix_records(expected: &Expected) -> Vec<PrefixRecord> {
    let digest = |prefix: &Bytes| holdfast_restore::Digest::of(prefix).short();
    let record = |prefix: &Bytes| PrefixRecord {
        digest: digest(prefix),
        keys: expected.count_with(prefix),
    };
    let mut records: Vec<PrefixRecord> = expected.prefixes().iter().map(record).collect();
    records.sort_by(|left, right| {
        right
            .keys
            .cmp(&left.keys)
            .then(left.digest.cmp(&right.digest))
    });
    records.truncate(PREFIXES_TOLD);
    records
}
