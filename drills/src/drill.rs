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
use holdfast_restore::manifest::SourceHash;
use holdfast_restore::{
    Bump, Catalog, Keys, Manifest, ReadOnly, RestoreOptions, RestorePlan, Target, UniqueId, Vault,
    plan_restore, progress, rebuild_with_content,
};
use tokio::time::Instant;

use crate::checks::{self, CHECK_NAMES, Facts, Outcome, Subject};
use crate::client::{Client, answer};
use crate::error::{Error, Result};
use crate::expected::Expected;
use crate::history::History;
use crate::options::{DrillOptions, DrillTarget, Phase, PhaseFn, pick};
use crate::report::{
    BackupRecord, DrillReport, PhaseRecord, PrefixRecord, RestoredRecord, RpoRecord, TargetKind,
    TeardownRecord,
};
use crate::scratch::{MemberOrder, Pass, Program, ScratchDir, ScratchMember, watch_budget};

/// Name of the scratch member.
const MEMBER_NAME: &str = "drill";

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
    let (case, member, fault) = match Box::pin(rehearse(case, vault, keys)).await {
        Ok(Drill { case, state }) => (case, Some(state.member), None),
        Err(broken) => (broken.case, broken.member, Some(Fault::of(&broken.error))),
    };
    Ok(case.conclude(member, fault).await)
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

/// A data directory is there.
struct Restored {
    plan: RestorePlan,
    manifest: Manifest,
    content: Content,
}

/// A member serves it.
struct Booted {
    plan: RestorePlan,
    manifest: Manifest,
    content: Content,
    member: ScratchMember,
    client: Client,
}

/// Everything was asked.
struct Checked {
    member: ScratchMember,
}

/// A drill that broke off, with what there is to tear down.
struct Broken<'a> {
    case: Case<'a>,
    member: Option<ScratchMember>,
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

    fn broken(self, member: Option<ScratchMember>, error: Error) -> Box<Broken<'a>> {
        Box::new(Broken {
            case: self,
            member,
            error,
        })
    }

    async fn plan(mut self, vault: &Vault<ReadOnly>, keys: &Keys) -> Step<'a, Planned> {
        match self.within(self.choose(vault, keys)).await {
            Err(error) => Err(self.broken(None, error)),
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
        let plan = plan_restore(&catalog, choice, &self.restore_options()?)?;
        let manifest = catalog.get(plan.id)?.manifest.clone();
        let history = History::of(&catalog, &manifest);
        Ok((plan, manifest, history))
    }

    /// How the drill is let in by a real etcd that has authentication on.
    fn pass(&self, plan: &RestorePlan) -> Result<Option<Pass>> {
        if plan.target != Target::Etcd || !plan.is_auth_enabled {
            return Ok(None);
        }
        let auth = checks::auth::auth_of(&plan.data_dir.join("member/snap/db"))?;
        Pass::create(self.scratch.path(), &auth).map(Some)
    }

    fn restore_options(&self) -> Result<RestoreOptions> {
        let scratch = self.scratch.path();
        let work_dir = scratch.join("work");
        std::fs::create_dir(&work_dir).map_err(Error::io("create", &work_dir))?;
        let (target, peer_url) = match self.options.target {
            // Nobody listens there: the member has no peers.
            DrillTarget::Holdfast => (Target::Holdfast, "http://127.0.0.1:2380"),
            // A free port, found by etcd.
            DrillTarget::Etcd(_) => (Target::Etcd, "http://127.0.0.1:0"),
        };
        let data_dir = scratch.join("data");
        Ok(RestoreOptions {
            bump: Bump::Auto,
            mark_compacted: true,
            clear_alarms: self.options.clear_alarms,
            restore_id: UniqueId::generate(),
            work_dir: Some(work_dir),
            ..RestoreOptions::single(target, data_dir, MEMBER_NAME, peer_url)
        })
    }

    /// The only way out: tears down, then reports.
    async fn conclude(
        mut self,
        member: Option<ScratchMember>,
        fault: Option<Fault>,
    ) -> DrillReport {
        self.enter(Phase::Teardown);
        let mut left = match member {
            Some(member) => member.stop().await,
            None => Vec::new(),
        };
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
            let (_restored, content) =
                rebuild_with_content(vault, &plan, keys, &progress::silent).await?;
            Ok(content)
        };
        let content = match self.case.within(work).await {
            Ok(content) => content,
            Err(error) => return Err(self.case.broken(None, error)),
        };
        self.case.enter(Phase::Boot);
        Ok(Drill {
            case: self.case,
            state: Restored {
                plan,
                manifest,
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
            content,
        } = self.state;
        let pass = match self.case.pass(&plan) {
            Ok(pass) => pass,
            Err(error) => return Err(self.case.broken(None, error)),
        };
        let mut order = member_order(self.case.options, &plan);
        order.auth_token = pass.as_ref().map(|pass| pass.flag.clone());
        let scratch = self.case.scratch.path();
        let start = ScratchMember::start(&self.case.options.member, &order, scratch);
        let member = match self.case.within(start).await {
            Ok(member) => member,
            Err(error) => return Err(self.case.broken(None, error)),
        };
        let client = match (Client::new(member.address()), pass) {
            (Ok(client), Some(pass)) => client.with_token(pass.token),
            (Ok(client), None) => client,
            (Err(error), _) => return Err(self.case.broken(Some(member), error)),
        };
        let version = match self.case.within(serving(&client)).await {
            Ok(version) => version,
            Err(error) => return Err(self.case.broken(Some(member), error)),
        };
        self.case.report.rto = Some(Span::from(self.case.begun.elapsed()));
        self.case.report.restored = Some(RestoredRecord {
            revision: plan.revision_after,
            bump: plan.bump,
            highest_seen: plan.highest_seen,
            server_version: version,
        });
        self.case.enter(Phase::Decode);
        Ok(Drill {
            case: self.case,
            state: Booted {
                plan,
                manifest,
                content,
                member,
                client,
            },
        })
    }
}

impl<'a> Drill<'a, Booted> {
    async fn check(mut self) -> Step<'a, Checked> {
        let Booted {
            plan,
            manifest,
            content,
            member,
            client,
        } = self.state;
        let expected = match self.case.within(decode(content)).await {
            Ok(expected) => Arc::new(expected),
            Err(error) => return Err(self.case.broken(Some(member), error)),
        };
        self.case.report.prefixes = prefix_records(&expected);
        self.case.enter(Phase::Check);
        let facts = facts(&self.case, &plan, &manifest, &member);
        let subject = Subject {
            facts,
            expected,
            client,
        };
        for name in CHECK_NAMES {
            let check = async { Ok(checks::check(name, &subject).await) };
            match self.case.within(check).await {
                Ok(record) => self.case.report.checks.push(record),
                Err(error) => return Err(self.case.broken(Some(member), error)),
            }
        }
        Ok(Drill {
            case: self.case,
            state: Checked { member },
        })
    }
}

fn member_order(options: &DrillOptions, plan: &RestorePlan) -> MemberOrder {
    let mut peer_urls = plan
        .members
        .iter()
        .flat_map(|member| member.peer_urls.iter());
    MemberOrder {
        name: MEMBER_NAME.to_owned(),
        data_dir: plan.data_dir.clone(),
        peer_url: peer_urls.next().cloned().unwrap_or_default(),
        token: plan.token.clone(),
        program: match &options.target {
            DrillTarget::Holdfast => Program::Holdfast,
            DrillTarget::Etcd(program) => Program::Etcd(program.clone()),
        },
        auth_token: None,
        deadline_s: options.deadline.as_duration().as_secs().saturating_add(60),
    }
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

fn facts(
    case: &Case<'_>,
    plan: &RestorePlan,
    manifest: &Manifest,
    member: &ScratchMember,
) -> Facts {
    let content = &manifest.content;
    let told_hash = match &manifest.source_hash {
        SourceHash::Told { hash, revision, .. } if *revision == content.revision => Ok(*hash),
        SourceHash::Told { revision, .. } => Err(format!("it told that of revision {revision}")),
        SourceHash::Unavailable { reason } => Err(reason.clone()),
    };
    let restored_file = match plan.target {
        Target::Holdfast => None,
        Target::Etcd => Some(plan.data_dir.join("member/snap/db")),
    };
    Facts {
        id: case.options.id,
        revision: content.revision,
        recorded_hash: content.hash_kv,
        told_hash,
        recorded_keys: content.keys,
        wanted_keys: case.options.wanted_keys,
        is_new: case.is_new,
        revision_after: plan.revision_after,
        highest_seen: plan.highest_seen,
        restored_file,
        member_auth: member.auth().cloned(),
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
        age: (options.now - plan.time)
            .to_std()
            .map(Span::from)
            .unwrap_or_default(),
        newest_known,
        newest_known_at: options.known.map(|(_, at)| at),
        revisions_missing: history.revisions_between(plan.revision, newest_known),
        objective: options.rpo,
    }
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
