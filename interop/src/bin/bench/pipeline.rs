//! A sealed backup of the data set into a local vault, and a drill of it.

use std::path::Path;

use anyhow::{Result, ensure};
use holdfast_interop::holdfast;
use holdfast_interop::server::Server;

use crate::dataset::seconds;
use crate::figures::{Figure, Figures};
use crate::progress;

/// What `holdfast init` writes for the bundled store, and what to back up instead.
const BUNDLED: &str = "    - name: bundled\n      kind: bundled\n";

pub(crate) fn measure(server: &Server, figures: &mut Figures) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let config = folder.path().join("holdfast.yaml");
    let run = |words: &[&str]| -> Result<f64> {
        let mut command = holdfast::command()?;
        command.current_dir(folder.path()).args(words);
        seconds(&mut command)
    };
    run(&["init"])?;
    back_up_instead(&config, &server.endpoint())?;
    progress(server.kind(), "sealed backup and drill");
    figures.set(
        server.kind(),
        Figure::SealedBackup,
        run(&["backup", "now"])?,
    );
    figures.set(server.kind(), Figure::Drill, run(&["drill", "run"])?);
    Ok(())
}

/// Points the configuration at a running server.
fn back_up_instead(config: &Path, endpoint: &str) -> Result<()> {
    let text = std::fs::read_to_string(config)?;
    let source = format!(
        "    - name: bench\n      kind:\n        etcd:\n          endpoints: [\"{endpoint}\"]\n"
    );
    let changed = text
        .replace(BUNDLED, &source)
        .replace("  enabled: true\n", "  enabled: false\n");
    ensure!(
        changed != text,
        "the configuration looks unlike what was expected:\n{text}"
    );
    Ok(std::fs::write(config, changed)?)
}
