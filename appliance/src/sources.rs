//! The sources of these settings, ready to be read.

use std::time::Duration;

use holdfast_restore::delta::Followed;
use holdfast_restore::follow::{FollowedBundled, FollowedEtcd};
use holdfast_restore::source::{EtcdSource, EtcdSpec, Overflow, Source, SourceSpec};

use crate::config::{self, Settings};
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::jobs::backup::work_dir;
use crate::stores::RunningMember;

/// Longest wait for a source to say its newest revision, where that is only nice to know.
const REVISION_PATIENCE: Duration = Duration::from_secs(5);

/// Makes `source` ready; the bundled one needs the running `member`.
pub(crate) fn open(
    settings: &Settings,
    source: &config::Source,
    member: Option<&RunningMember>,
) -> Result<Box<dyn Source>, Failure> {
    match (&source.kind, member) {
        (SourceSpec::Etcd(spec), _) => Ok(Box::new(etcd(settings, source, spec)?)),
        (SourceSpec::Bundled, Some(member)) => {
            let overflow = Overflow {
                work_dir: work_dir(settings)?,
                limit: settings.config.restore.spool_limit.bytes(),
            };
            member.source(overflow)
        }
        (SourceSpec::Bundled, None) => Err(not_running(source)),
    }
}

/// Makes `source` ready to be followed. `cluster_id`: the cluster it must still be.
pub(crate) fn follow(
    settings: &Settings,
    source: &config::Source,
    member: Option<&RunningMember>,
    cluster_id: Option<String>,
) -> Result<Box<dyn Followed>, Failure> {
    match (&source.kind, member) {
        (SourceSpec::Etcd(spec), _) => {
            let etcd = etcd(settings, source, spec)?;
            Ok(Box::new(FollowedEtcd::new(etcd, cluster_id)))
        }
        (SourceSpec::Bundled, Some(member)) => {
            Ok(Box::new(FollowedBundled::new(member.itself(), cluster_id)))
        }
        (SourceSpec::Bundled, None) => Err(not_running(source)),
    }
}

fn etcd(
    settings: &Settings,
    source: &config::Source,
    spec: &EtcdSpec,
) -> Result<EtcdSource, Failure> {
    EtcdSource::new(resolved(settings, spec.clone()))
        .or_fail(format!("the source `{}` cannot be used", source.name))
}

/// The bundled store can only be read by the daemon that runs it.
pub(crate) fn not_running(source: &config::Source) -> Failure {
    Failure::new(
        ErrorName::Unavailable,
        format!(
            "the bundled store (source `{}`) is not running here",
            source.name
        ),
    )
    .next("start `holdfast run` with this configuration; it answers `backup now`")
}

fn resolved(settings: &Settings, mut spec: EtcdSpec) -> EtcdSpec {
    if let Some(tls) = &mut spec.tls {
        tls.cacert = settings.resolve(&tls.cacert);
        tls.cert = tls.cert.as_deref().map(|file| settings.resolve(file));
        tls.key = tls.key.as_deref().map(|file| settings.resolve(file));
    }
    if let Some(user) = &mut spec.user {
        user.password_file = settings.resolve(&user.password_file);
    }
    spec
}

/// The newest revision of a source, where it answers soon.
pub(crate) async fn newest_revision(opened: &dyn Source) -> Option<i64> {
    let asked = tokio::time::timeout(REVISION_PATIENCE, opened.latest_revision()).await;
    asked.ok()?.ok().map(|observed| observed.revision)
}
