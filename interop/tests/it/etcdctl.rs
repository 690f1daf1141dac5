//! etcdctl sees the same from our store as from real etcd.

use std::process::Stdio;

use anyhow::Result;
use holdfast_interop::etcdctl::Etcdctl;
use holdfast_interop::peers::Peers;
use holdfast_interop::wait;

use crate::pair::Pair;
use crate::transcript::Transcript;

/// Keys with several versions, deletions in between.
const HISTORY: [&str; 12] = [
    "put a/1 one",
    "put a/2 two",
    "put a/3 three",
    "put a/1 one-again",
    "put b/1 elsewhere",
    "del a/2",
    "put a/2 back",
    "put a/10 ten",
    "put c/1 x",
    "put c/2 y",
    "del c/ --prefix",
    "put a/3 three-again",
];

/// The same ranges, in a stream.
const STREAMED: [&str; 10] = [
    "get a/ --prefix --stream",
    "get a/ --prefix --stream -w json",
    "get a/ --prefix --stream --limit=2 -w json",
    "get a/ --prefix --stream --rev=5 -w json",
    "get a/ --prefix --stream --keys-only -w json",
    "get a/ --prefix --stream --count-only -w json",
    "get a/ --prefix --stream --rev=99999",
    "get a/ --prefix --stream --sort-by=MODIFY --order=DESCEND -w json",
    "get a/ --prefix --stream --min-mod-rev=5 -w json",
    "get nothing --stream -w json",
];

#[test]
fn put_get_and_del_answer_alike_with_every_flag() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let pair = Pair::start(&peers)?;
    let mut script = Transcript::new(&peers, &pair);
    script.steps(&HISTORY)?;
    script.steps(&STREAMED)?;
    script.steps(&[
        "put a/1 third --prev-kv",
        "put new first --prev-kv -w json",
        "put a/1 --ignore-value -w json",
        "put a/1 x --ignore-lease -w fields",
        "put nowhere --ignore-value",
        "put nowhere x --ignore-lease",
        "put a/1 x --lease=1234abcd",
        "get a/1",
        "get a/1 -w json",
        "get a/1 -w fields",
        "get a/1 --print-value-only",
        "get a/1 --hex",
        "get nothing -w json",
        "get a/ --prefix",
        "get a/ --prefix -w json",
        "get a/ --prefix --keys-only",
        "get a/ --prefix --keys-only -w json",
        "get a/ --prefix --count-only -w fields",
        "get a/ --prefix --count-only -w json",
        "get a/ --prefix --limit=2 -w json",
        "get a/ --prefix --limit=2 --count-only -w json",
        "get a/1 a/3 -w json",
        "get a/3 a/1 -w json",
        "get a/2 --from-key -w json",
        "get a/2 --from-key --limit=1 -w json",
        "get a/1 --rev=2 -w json",
        "get a/2 --rev=7 -w json",
        "get a/ --prefix --rev=5 -w json",
        "get a/ --prefix --rev=99999",
        "get a/ --prefix --rev=-1 -w json",
        "get a/ --prefix --consistency=s -w json",
        "get a/1 --consistency=l -w json",
        "get a/ --prefix --min-mod-rev=5 -w json",
        "get a/ --prefix --max-mod-rev=5 -w json",
        "get a/ --prefix --min-create-rev=3 --max-create-rev=8 -w json",
        "get a/ --prefix --min-mod-rev=5 --limit=1 -w json",
        "get a/ --prefix --min-mod-rev=5 --count-only -w json",
        "del a/10 --prev-kv -w json",
        "del nothing -w json",
        "del nothing",
        "del a/1 a/2 --prev-kv",
        "del a/2 --range --prev-kv",
        "del a/2 a/3 --range --prev-kv -w json",
        "del b --from-key -w json",
        "get a/ --prefix -w json",
        "get a/1 --rev=2 -w json",
    ])?;
    for target in ["CREATE", "KEY", "MODIFY", "VALUE", "VERSION"] {
        for order in ["ASCEND", "DESCEND"] {
            let sort = format!("get a/ --prefix --sort-by={target} --order={order} --rev=13");
            script.step(&format!("{sort} -w json"))?;
            script.step(&format!("{sort} --limit=2 -w json"))?;
        }
    }
    script.finish();
    Ok(())
}

#[test]
fn transactions_answer_alike() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let pair = Pair::start(&peers)?;
    let mut script = Transcript::new(&peers, &pair);
    script.steps(&HISTORY)?;
    let compares = [
        "value(\"a/1\") = \"one-again\"",
        "value(\"a/1\") < \"zzz\"",
        "value(\"a/1\") > \"zzz\"",
        "value(\"a/1\") != \"one\"",
        "mod(\"a/1\") = \"5\"",
        "mod(\"a/1\") > \"4\"",
        "create(\"a/1\") = \"2\"",
        "create(\"nothing\") = \"0\"",
        "version(\"a/1\") = \"2\"",
        "version(\"nothing\") = \"0\"",
        "version(\"a/1\") > \"5\"",
        "value(\"nothing\") = \"\"",
        "value(\"nothing\") != \"x\"",
        "mod(\"a/1\") = \"5\"\nversion(\"b/1\") = \"1\"",
        "mod(\"a/1\") = \"5\"\nversion(\"b/1\") = \"7\"",
    ];
    for compare in compares {
        let input = format!("{compare}\n\nput t yes\nget a/ --prefix\n\nput t no\ndel a/2\n\n");
        script.step_with_input("txn -w json", &input)?;
        script.step_with_input("txn", &input)?;
    }
    for body in [
        "\nput same 1\nput same 2\n\n\n",
        "\nput same 1\ndel same\n\n\n",
        "\ndel s --prefix\nput same 1\n\n\n",
        "\nget same\nput same 1\nget same\n\n\n",
        "\nput x 1\nget x --rev=99999\n\n\n",
        "\ndel a/ --prefix --prev-kv\nput z 1\n\n\n",
        "\n\n\n",
    ] {
        script.step_with_input("txn -w json", body)?;
    }
    let puts = |count| -> Vec<String> { (0..count).map(|i| format!("put many/{i} x")).collect() };
    let many = puts(129).join("\n");
    script.step_with_input("txn -w json", &format!("\n{many}\n\n\n"))?;
    let all = puts(128).join("\n");
    script.step_with_input("txn -w json", &format!("\n{all}\n\n\n"))?;
    script.step("get many/ --prefix --count-only -w json")?;
    script.step("endpoint hashkv -w json")?;
    script.finish();
    Ok(())
}

#[test]
fn leases_answer_alike() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let pair = Pair::start(&peers)?;
    let mut script = Transcript::new(&peers, &pair);
    let id = |text: &str| text.split(' ').nth(1).map(str::to_owned);
    script.step("lease list")?;
    script.remember("$LEASE", "lease grant 600", id)?;
    script.step("lease list")?;
    script.step("lease list -w json")?;
    script.remember("$OTHER", "lease grant 5000", id)?;
    script.steps(&[
        "put l/1 x --lease=$LEASE",
        "put l/2 y --lease=$LEASE -w json",
        "put l/3 z",
        "put l/1 moved --lease=$OTHER --prev-kv -w json",
        "get l/ --prefix -w json",
        "put l/1 kept --ignore-lease -w json",
        "get l/1 -w json",
        "lease keep-alive --once $LEASE",
        "lease keep-alive --once 1234",
        "lease timetolive 1234",
        "lease timetolive 1234 -w json",
        "lease revoke 1234",
        "lease revoke $LEASE",
        "lease revoke $LEASE",
        "get l/ --prefix -w json",
        "lease timetolive $LEASE --keys -w json",
        "lease grant 0",
        "lease grant -1",
        "lease grant 99999999999",
        "lease grant abc",
        "put l/1 x --lease=$LEASE",
    ])?;
    script.finish();
    Ok(())
}

#[test]
fn watches_print_alike() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let pair = Pair::start(&peers)?;
    let mut script = Transcript::new(&peers, &pair);
    script.steps(&HISTORY)?;
    for (line, count) in [
        ("watch a/1 --rev=1", 6),
        ("watch a/ --prefix --rev=1", 24),
        ("watch a/ --prefix --rev=6 --prev-kv", 16),
        ("watch c/1 c/3 --rev=1 --prev-kv", 16),
        ("watch a/2 --rev=7", 6),
        ("watch a/2 --rev=7 --progress-notify", 6),
    ] {
        let seen = script.tools().map(|tool| watch(&tool, line, count));
        let [real, ours] = seen;
        script.compare(line, &[real?, ours?]);
    }
    script.steps(&["compact 8", "watch a/ --prefix --rev=3"])?;
    script.finish();
    Ok(())
}

/// What a watch prints until there are `count` lines.
fn watch(tool: &Etcdctl, line: &str, count: usize) -> Result<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("out");
    let mut child = tool
        .command(&words)?
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(&path)?)
        .stderr(Stdio::null())
        .spawn()?;
    let seen = wait::until(line, wait::READY_MAX, || {
        let text = std::fs::read_to_string(&path)?;
        Ok((text.lines().count() >= count).then_some(text))
    });
    child.kill()?;
    child.wait()?;
    Ok(seen.unwrap_or_else(|error| {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        format!("{error}\n{text}")
    }))
}

#[test]
fn compaction_and_maintenance_answer_alike() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let pair = Pair::start(&peers)?;
    let mut script = Transcript::new(&peers, &pair);
    script.step("endpoint hashkv -w json")?;
    script.steps(&HISTORY)?;
    script.steps(&[
        "endpoint health",
        "endpoint health -w json",
        "endpoint status -w json",
        "endpoint health --cluster -w json",
        "endpoint status --cluster -w json",
        "endpoint hashkv --cluster -w json",
        "endpoint hashkv -w json",
        "endpoint hashkv --rev=5 -w json",
        "endpoint hashkv --rev=9999 -w json",
        "member list -w json",
        "alarm list",
        "alarm list -w json",
        "alarm disarm",
        "compact 99999",
        // Not at 0: from then on etcd gives that hash for the newest one, and ours does not.
        "compact 5",
        "compact 5",
        "compact 4",
        "get a/1 --rev=4",
        "get a/1 --rev=5 -w json",
        "get a/1 --rev=6 -w json",
        "endpoint hashkv --rev=4 -w json",
        "endpoint hashkv --rev=6 -w json",
        "endpoint hashkv -w json",
        "compact 12 --physical",
        "get a/ --prefix --rev=11",
        "get a/ --prefix --rev=12 -w json",
        "endpoint hashkv -w json",
        "defrag",
        "endpoint hashkv -w json",
        "get a/ --prefix -w json",
        "put after defrag -w json",
        "endpoint hashkv --rev=13 -w json",
        "put  novalue",
        "get",
        "version",
    ])?;
    script.finish();
    Ok(())
}

#[test]
fn requests_over_the_limits_fail_alike() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let flags = ["--max-request-bytes=20000", "--max-txn-ops=4"];
    let pair = Pair::start_with(&peers, &flags)?;
    let mut script = Transcript::new(&peers, &pair);
    script.step_with_input("put large", &"x".repeat(19_900))?;
    script.step_with_input("put large", &"x".repeat(20_100))?;
    script.step("get large --keys-only -w json")?;
    script.step_with_input("txn", "\nput 1 x\nput 2 x\nput 3 x\nput 4 x\nput 5 x\n\n\n")?;
    script.step_with_input("txn", "\nput 1 x\nput 2 x\nput 3 x\nput 4 x\n\n\n")?;
    script.step("get 1 --from-key -w json")?;
    script.finish();
    Ok(())
}

#[test]
fn the_space_quota_raises_an_alarm_that_can_be_disarmed() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    // Small enough to be reached in a moment, large enough for an empty store of either kind.
    let pair = Pair::start_with(&peers, &["--quota-backend-bytes=8388608"])?;
    let mut script = Transcript::new(&peers, &pair);
    let value = "v".repeat(1_000_000);
    for tool in script.tools() {
        let mut last = String::new();
        for i in 0..40 {
            let output = tool.run_with_input(&["put", &format!("fill/{i}")], &value)?;
            last = output.stderr;
            if output.code != 0 {
                break;
            }
        }
        assert!(
            last.contains("database space exceeded"),
            "the quota never stopped a put: {last}"
        );
    }
    script.steps(&["put one more", "get one", "endpoint health"])?;
    for tool in script.tools() {
        let alarms = tool.run(&["alarm", "list"])?.success()?.stdout;
        assert!(alarms.contains("alarm:NOSPACE"), "{alarms}");
        tool.run(&["del", "fill/", "--prefix"])?.success()?;
        let revision = tool.json(&["get", "one"])?["header"]["revision"].to_string();
        tool.run(&["compact", "--physical", &revision])?.success()?;
        tool.run(&["defrag"])?.success()?;
        tool.run(&["alarm", "disarm"])?.success()?;
    }
    script.steps(&["put one more", "get one", "alarm list", "endpoint health"])?;
    script.finish();
    Ok(())
}
