//! Until `store::datadir::durable` is there.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    #[expect(
        clippy::disallowed_methods,
        reason = "replaced by the store's helper once landed"
    )]
    std::fs::rename(&temporary, path)
}
