//! Small file systems that fill up. Part of the tests of `store`, `restore` and `appliance`.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// What is mounted. They differ in when they say that they are full: tmpfs at the write, ext4 also
/// at the creation of a name, and with space of its own for what it has to write anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileSystem {
    /// In memory.
    Tmpfs,
    /// In a file, through a loop device.
    Ext4,
}

impl FileSystem {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Tmpfs, Self::Ext4];

    /// The command that mounts `megabytes` at `at`; `image` is a free path.
    fn mount(self, megabytes: u32, image: &Path, at: &Path) -> Result<(), String> {
        let size = u64::from(megabytes) << 20;
        match self {
            Self::Tmpfs => {
                let options = format!("size={size}");
                run(Command::new("mount")
                    .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
                    .arg(at))
            }
            Self::Ext4 => {
                let file = File::create(image).map_err(|error| error.to_string())?;
                file.set_len(size).map_err(|error| error.to_string())?;
                // No space kept for root: tests often run as root.
                run(Command::new("mkfs.ext4")
                    .args(["-q", "-F", "-m", "0"])
                    .arg(image))?;
                run(Command::new("mount")
                    .args(["-o", "loop"])
                    .arg(image)
                    .arg(at))
            }
        }
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("{command:?}: {text}"))
}

/// A mounted file system; unmounted when dropped.
pub(crate) struct SmallDisk {
    at: PathBuf,
    image: PathBuf,
    _dir: TempDir,
}

impl SmallDisk {
    /// `None`, with the reason said, where this machine does not let us mount: tests of full disks
    /// need root, and ext4 a loop device, which a container may not have. In CI memory at least
    /// can be mounted, so there its absence is a failure.
    #[expect(clippy::print_stderr, reason = "a skipped test says so")]
    pub(crate) fn mount(kind: FileSystem, megabytes: u32) -> Option<Self> {
        let dir = TempDir::new().unwrap();
        let at = dir.path().join("disk");
        std::fs::create_dir(&at).unwrap();
        let image = dir.path().join("image");
        match kind.mount(megabytes, &image, &at) {
            Ok(()) => Some(Self {
                at,
                image,
                _dir: dir,
            }),
            Err(reason) => {
                let is_required = std::env::var_os("CI").is_some() && kind == FileSystem::Tmpfs;
                assert!(!is_required, "cannot mount {kind:?}: {reason}");
                eprintln!("SKIPPED on {kind:?}: cannot mount it: {reason}");
                None
            }
        }
    }

    /// A folder on it, made when it is not there.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let folder = self.at.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Ends the life of a disk with ext4 as a loss of power does: what is not synced is lost.
    pub(crate) fn cut_power(&self) {
        run(Command::new("mount")
            .args(["-o", "remount,abort"])
            .arg(&self.at))
        .unwrap();
    }

    /// Mounts it again after a loss of power; nobody may have a file open on it.
    pub(crate) fn power_up(&self) {
        run(Command::new("umount").arg(&self.at)).unwrap();
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(&self.image)
            .arg(&self.at))
        .unwrap();
    }

    /// Takes all the space that is left, in a file in `folder`; removing it gives it back.
    pub(crate) fn fill(&self, folder: &Path) -> PathBuf {
        assert!(folder.starts_with(&self.at), "not on this disk");
        let path = folder.join("filler");
        let filler = File::create(&path).unwrap();
        let chunk = vec![1; 64 << 10];
        let mut at = 0;
        let mut step = chunk.len();
        while step > 0 {
            match filler.write_at(&chunk[..step], at) {
                Ok(written) if written > 0 => at += u64::try_from(written).unwrap(),
                _ => step /= 2,
            }
        }
        // Space that is promised only is found missing here.
        let _synced = filler.sync_all();
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(&self.at).status();
        assert!(
            unmounted.is_ok_and(|status| status.success()),
            "the small disk stays mounted"
        );
    }
}
