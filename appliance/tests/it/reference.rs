//! The pages made from the code are the ones in the repository: help texts, keys, codes, errors.

use std::path::Path;

use crate::support::Place;

#[tokio::test]
async fn the_reference_pages_are_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let place = Place::new();
    let ended = place
        .run(&["reference", &root.display().to_string(), "--check"])
        .await;
    let hint = "run `cargo run -- reference .` at the root and look at the difference";
    assert_eq!(ended.code, 0, "{hint}: {}", ended.said);
}

#[tokio::test]
async fn every_command_teaches_by_example() {
    let place = Place::new();
    let cli = place.run(&["--help"]).await.expect(0).said;
    assert!(cli.contains("Examples:"));
    let commands = [
        &["demo"][..],
        &["init"],
        &["run"],
        &["status"],
        &["backup", "now"],
        &["backup", "list"],
        &["backup", "show"],
        &["backup", "verify"],
        &["backup", "prune"],
        &["backup", "undelete"],
        &["backup", "pin"],
        &["restore"],
        &["drill", "run"],
        &["drill", "list"],
        &["drill", "show"],
        &["vault", "check"],
        &["key", "generate"],
        &["key", "show"],
        &["config", "check"],
        &["policy", "check"],
        &["policy", "explain"],
        &["policy", "simulate"],
        &["snapshot", "save"],
        &["snapshot", "status"],
        &["snapshot", "hashkv"],
        &["snapshot", "restore"],
        &["explain"],
        &["completion"],
        &["man"],
    ];
    for command in commands {
        let mut words = command.to_vec();
        words.push("--help");
        let help = place.run(&words).await.expect(0).said;
        assert!(help.contains("Examples:"), "{command:?}: {help}");
        assert!(
            help.contains(&format!("holdfast {}", command.join(" "))),
            "{command:?}"
        );
    }
}

#[tokio::test]
async fn shells_and_manuals_get_every_command() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.run(&["completion", shell]).await.expect(0).said;
        assert!(
            script.contains("restore") && script.contains("drill"),
            "{shell}"
        );
    }
    let pages = place.path().join("man");
    std::fs::create_dir(&pages).unwrap();
    place.run(&["man", "--dir", "man"]).await.expect(0);
    for page in ["holdfast.1", "holdfast-restore.1", "holdfast-backup-now.1"] {
        assert!(pages.join(page).is_file(), "{page}");
    }
}
