//! Scratch members of tests: this test program, started again.

use std::path::Path;
use std::time::Duration;

use super::dir::processes_in;
use super::*;
use crate::error::Error;

/// Tells the test below that it is meant.
const IS_MEMBER: &str = "HOLDFAST_TEST_SCRATCH_MEMBER";

/// Starts this program again, as a scratch member.
pub(crate) fn member_command() -> MemberCommand {
    MemberCommand {
        program: std::env::current_exe().unwrap(),
        args: ["scratch::tests::member_process", "--exact", "--nocapture"]
            .map(Into::into)
            .to_vec(),
        env: vec![(IS_MEMBER.into(), "1".into())],
    }
}

/// Not a test when started as one: the scratch member's process.
#[test]
fn member_process() {
    if std::env::var_os(IS_MEMBER).is_some() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(run_scratch_member()).unwrap();
    }
}

fn order(scratch: &Path) -> MemberOrder {
    MemberOrder {
        name: "drill".to_owned(),
        data_dir: scratch.join("data"),
        cluster: vec![("drill".to_owned(), "http://127.0.0.1:2380".to_owned())],
        token: "t".to_owned(),
        program: Program::Holdfast,
        auth_token: None,
        deadline_s: 60,
    }
}

#[tokio::test]
async fn a_member_that_cannot_start_is_an_error_and_leaves_no_process() {
    let scratch = tempfile::tempdir().unwrap();
    let program = Program::Etcd(scratch.path().join("there-is-no-etcd"));
    let order = MemberOrder {
        program,
        ..order(scratch.path())
    };
    let error = ScratchMember::start(&member_command(), &order, scratch.path())
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Member { .. }), "{error}");
    assert_no_process(scratch.path()).await;
}

#[tokio::test]
async fn a_program_that_says_nothing_is_an_error() {
    let scratch = tempfile::tempdir().unwrap();
    let command = MemberCommand {
        program: "true".into(),
        args: Vec::new(),
        env: Vec::new(),
    };
    let started = ScratchMember::start(&command, &order(scratch.path()), scratch.path()).await;
    assert!(matches!(started, Err(Error::Member { .. })));
}

/// Waits until no process works below `path` any more.
pub(crate) async fn assert_no_process(path: &Path) {
    for _ in 0..100 {
        if processes_in(path).is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!(
        "processes are left in {}: {:?}",
        path.display(),
        processes_in(path)
    );
}
