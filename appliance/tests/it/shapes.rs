//! What programs get with `-w json`: the fields of each answer.

use serde_json::Value;

use crate::support::Place;

fn fields(value: &Value) -> Vec<&str> {
    let mut fields: Vec<&str> = value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    fields.sort_unstable();
    fields
}

#[tokio::test]
async fn status_answers_with_objectives_evidence_and_plans() {
    let place = Place::new();
    place.run(&["init"]).await.expect(0);
    let status = place.run(&["status", "-w", "json"]).await.expect(21).json();
    assert_eq!(
        fields(&status[0]),
        [
            "alarms",
            "backups",
            "copies",
            "last_drill",
            "last_passed_drill",
            "newest",
            "newest_proven",
            "next_backup",
            "next_drill",
            "objectives",
            "problems",
            "read",
            "source",
            "trash",
            "waiting"
        ]
    );
    let objectives = &status[0]["objectives"];
    assert_eq!(
        fields(objectives),
        ["at", "drill", "revisions_at_risk", "rpo", "rto"]
    );
    assert_eq!(objectives["rpo"]["standing"], "missed");
    assert_eq!(objectives["rpo"]["objective"], "2h");
}

#[tokio::test]
async fn keys_policies_and_configuration_answer_as_documents() {
    let place = Place::new();
    let made = place.run(&["init", "-w", "json"]).await.expect(0).json();
    assert_eq!(
        fields(&made),
        [
            "config_file",
            "identity_file",
            "recipient",
            "signer",
            "signing_key_file"
        ]
    );
    let shown = place
        .run(&["key", "show", "-w", "json"])
        .await
        .expect(0)
        .json();
    assert_eq!(shown["can_open"][0], made["recipient"]);
    assert_eq!(shown["sealed_for"][0], made["recipient"]);
    assert_eq!(shown["trusted_signers"][0], made["signer"]);
    let checked = place
        .run(&["config", "check", "-w", "json"])
        .await
        .expect(0)
        .json();
    assert_eq!(
        fields(&checked),
        ["is_encrypted", "notes", "origin", "sources"]
    );
    let printed = place
        .run(&["config", "print", "-w", "json"])
        .await
        .expect(0)
        .json();
    assert_eq!(
        fields(&printed),
        ["appliance", "drills", "policies", "restore", "store"]
    );
    let policy = place
        .run(&["policy", "check", "-w", "json"])
        .await
        .expect(0)
        .json();
    assert_eq!(policy["backup"]["next"].as_array().unwrap().len(), 5);
    let year = place
        .run(&["policy", "simulate", "-w", "json"])
        .await
        .expect(0)
        .json();
    assert_eq!(year["taken"], 8760);
}

#[tokio::test]
async fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let place = Place::new();
    place.run(&["init"]).await.expect(0);
    let name = |printed: &Value| printed["store"]["name"].as_str().unwrap().to_owned();
    let mut command = place.command(&["config", "print", "-w", "json"]);
    command.env("HOLDFAST_STORE__NAME", "from-env");
    let output = command.output().await.unwrap();
    assert_eq!(
        name(&serde_json::from_slice(&output.stdout).unwrap()),
        "from-env"
    );
    let mut command = place.command(&["config", "print", "-w", "json", "--set", "store.name=flag"]);
    command.env("HOLDFAST_STORE__NAME", "from-env");
    let output = command.output().await.unwrap();
    assert_eq!(
        name(&serde_json::from_slice(&output.stdout).unwrap()),
        "flag"
    );
    let printed = place
        .run(&["config", "print", "-w", "json"])
        .await
        .expect(0)
        .json();
    assert_eq!(name(&printed), "default");
}
