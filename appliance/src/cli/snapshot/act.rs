//! What `holdfast snapshot` does, by the offline reader and writer.

use std::path::Path;

use holdfast_restore::offline::{self, SnapshotRestore, SnapshotSaved};
use holdfast_restore::{Error, ErrorKind, EtcdSource, Source as _};

use super::super::dispatch::Context;
use super::super::restore::Target;
use super::args::{HashkvArgs, RestoreArgs, SaveArgs, SnapshotCommand, StatusArgs};
use super::print;
use crate::exit_code::ExitCode;
use crate::failure::{ErrorName, Failure, OrFail as _};

/// Does one of them.
pub(crate) async fn run(command: &SnapshotCommand, context: &Context) -> Result<ExitCode, Failure> {
    match command {
        SnapshotCommand::Save(args) => save(args, context).await,
        SnapshotCommand::Status(args) => status(args, context),
        SnapshotCommand::Hashkv(args) => hashkv(args, context),
        SnapshotCommand::Restore(args) => restore(args, context),
    }
}

async fn save(args: &SaveArgs, context: &Context) -> Result<ExitCode, Failure> {
    let what = || format!("no snapshot was saved to {}", args.file.display());
    if args.file.exists() {
        return Err(Failure::new(
            ErrorName::TargetExists,
            format!("{} exists and was not touched", args.file.display()),
        ));
    }
    let source = EtcdSource::new(args.connect.to_spec()?).or_fail(what())?;
    let stream = source.open(&[]).await.or_fail(what());
    let stream = stream.map_err(|failure| match failure.name() {
        ErrorName::Unavailable => failure.next(
            "see that a member answers at --endpoints, with --cacert, --cert, --key and --user \
             (`etcdctl endpoint status` asks the same)",
        ),
        _ => failure,
    })?;
    let saved = offline::save(stream, &args.file).await.or_fail(what())?;
    context.output.show(&saved, saved_text)?;
    Ok(ExitCode::Done)
}

fn saved_text(saved: &SnapshotSaved) -> String {
    format!(
        "snapshot saved at {} ({} bytes)\n{}",
        saved.path.display(),
        saved.size,
        print::status_text(&saved.status)
    )
}

fn status(args: &StatusArgs, context: &Context) -> Result<ExitCode, Failure> {
    let status = relied_on(offline::status(&args.file), &args.file)?;
    print::status(&status, context.output)?;
    Ok(ExitCode::Done)
}

fn hashkv(args: &HashkvArgs, context: &Context) -> Result<ExitCode, Failure> {
    if args.rev < 0 {
        return Err(Failure::usage(
            "--rev is negative",
            "give a revision, or 0 for the newest",
        ));
    }
    let hash = match offline::hash_kv(&args.file, args.rev) {
        // The file is sound; it does not hold that revision.
        Err(error @ Error::Refused { .. }) => {
            let (file, rev) = (args.file.display(), args.rev);
            let what = format!("{file} has no hash at revision {rev}");
            return Err(Failure::new(ErrorName::Usage, what)
                .because(&error)
                .next(format!(
                    "`holdfast snapshot hashkv {file}` tells the newest revision and the compacted \
                     one: give one of these or between"
                )));
        }
        read => relied_on(read, &args.file)?,
    };
    print::hash_kv(hash, context.output)?;
    Ok(ExitCode::Done)
}

fn restore(args: &RestoreArgs, context: &Context) -> Result<ExitCode, Failure> {
    if args.mark_compacted != (args.bump_revision > 0) {
        return Err(Failure::usage(
            "--mark-compacted and --bump-revision only make sense together",
            "give both, or neither; `holdfast restore` chooses a safe bump by itself",
        ));
    }
    let options = SnapshotRestore {
        snapshot: args.file.clone(),
        data_dir: args.data_dir.clone(),
        wal_dir: args.wal_dir.clone(),
        name: args.name.clone(),
        initial_cluster: args.initial_cluster.clone(),
        initial_cluster_token: args.initial_cluster_token.clone(),
        initial_advertise_peer_urls: args.initial_advertise_peer_urls.clone(),
        skip_hash_check: args.skip_hash_check,
        bump_revision: args.bump_revision,
        mark_compacted: Some(args.mark_compacted),
        clear_alarms: args.clear_alarms,
    };
    let restored = match args.target {
        Target::Etcd => offline::restore(&options),
        Target::Holdfast => offline::restore_for_store(&options),
    };
    let what = format!("the snapshot {} was not restored", args.file.display());
    let restored = restored.or_fail(what).map_err(another_copy)?;
    context.output.show(&restored, |restored| {
        format!(
            "restored to {}\nmember    {}\ncluster   {}\nrevision  {}",
            restored.data_dir.display(),
            restored.member_id,
            restored.cluster_id,
            restored.revision
        )
    })?;
    Ok(ExitCode::Done)
}

/// A file by itself is in no vault: nothing there says more about it.
fn another_copy(failure: Failure) -> Failure {
    match failure.name() {
        ErrorName::Corrupt => failure.next(
            "use another copy of the snapshot, or save it again: `holdfast snapshot save`; keep \
             this one for inspection",
        ),
        _ => failure,
    }
}

/// What was read, or why the file is of no use.
fn relied_on<T>(read: Result<T, Error>, file: &Path) -> Result<T, Failure> {
    match read {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let what = format!("there is no file {}", file.display());
            Err(Failure::new(ErrorName::NotFound, what).next("correct the path to the snapshot"))
        }
        read => read
            .or_fail(format!(
                "the snapshot {} cannot be relied on",
                file.display()
            ))
            .map_err(another_copy),
    }
}
