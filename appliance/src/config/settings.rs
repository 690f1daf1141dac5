//! The settings of this run: the configuration with its paths resolved and its rules checked.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use holdfast_policies::{EncryptionRule, PolicyOptions};
use holdfast_restore::source::SourceSpec;
use holdfast_restore::vault::VaultSpec;

use super::copies::{COPIES_MAX, CopyVault, FIRST};
use super::load::{Laid, Loaded, Origin};
use super::sections::{Config, Source};
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::keys::{IDENTITY_FILE, SIGNING_FILE};
use crate::telemetry;

/// Most sources of one appliance.
const SOURCES_MAX: usize = 64;

/// Checked settings.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The sections.
    pub(crate) config: Config,
    /// Where they came from.
    pub(crate) origin: Origin,
    /// What flags and environment laid over the file.
    pub(crate) laid: Vec<Laid>,
    base: PathBuf,
    chosen: Option<VaultSpec>,
}

impl Settings {
    /// Checks what a single key cannot say.
    pub(crate) fn new(loaded: Loaded) -> Result<Self, Failure> {
        // Absolute: children work in folders of their own, and a relative path means another there.
        let base = std::path::absolute(loaded.base_or_here())
            .or_fail("the folder of the configuration has no absolute path")?;
        let settings = Self {
            config: loaded.config,
            origin: loaded.origin,
            laid: loaded.laid,
            base,
            chosen: None,
        };
        settings.check_places()?;
        settings.check_copies()?;
        settings.check_sources()?;
        settings.policies()?;
        Ok(settings)
    }

    /// `path` as seen from the folder of the configuration file.
    pub(crate) fn resolve(&self, path: &Path) -> PathBuf {
        if path.is_absolute() {
            path.to_owned()
        } else {
            self.base.join(path)
        }
    }

    /// Where this host keeps everything.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.resolve(&self.config.appliance.data_dir)
    }

    /// The folder of keys made here.
    pub(crate) fn key_dir(&self) -> PathBuf {
        self.data_dir().join("keys")
    }

    /// The data directory of the bundled store.
    pub(crate) fn store_dir(&self) -> PathBuf {
        self.data_dir().join("store")
    }

    /// Where scratch members of drills live.
    pub(crate) fn scratch_dir(&self) -> PathBuf {
        self.or_in_data_dir(&self.config.drills.scratch_dir, Path::new("scratch"))
    }

    /// Where backups live, its paths resolved: the first vault, unless another was chosen.
    pub(crate) fn vault(&self) -> VaultSpec {
        if let Some(chosen) = &self.chosen {
            return chosen.clone();
        }
        match &self.config.restore.vault {
            None => VaultSpec::Local {
                path: self.data_dir().join("vault"),
            },
            Some(spec) => self.resolve_vault(spec),
        }
    }

    /// The same settings for a command that works on the vault called `name` instead of the first.
    pub(crate) fn at_vault(self, name: Option<&str>) -> Result<Self, Failure> {
        let chosen = match name {
            None | Some(FIRST) => None,
            Some(name) => Some(self.resolve_vault(&self.copy(name)?.vault)),
        };
        Ok(Self { chosen, ..self })
    }

    /// Whether a command works on a copy.
    pub(crate) fn is_at_copy(&self) -> bool {
        self.chosen.is_some()
    }

    /// The copy called `name`.
    pub(crate) fn copy(&self, name: &str) -> Result<&CopyVault, Failure> {
        let copies = &self.config.restore.copies;
        let found = copies.iter().find(|one| one.name.as_str() == name);
        found.ok_or_else(|| {
            let names = copies.iter().map(|one| one.name.as_str());
            let names: Vec<&str> = std::iter::once(FIRST).chain(names).collect();
            let what = format!("there is no vault `{name}`");
            let next = format!("the configuration has: {}", names.join(", "));
            Failure::new(ErrorName::NotFound, what).next(next)
        })
    }

    /// A vault's place with its paths resolved.
    pub(crate) fn resolve_vault(&self, spec: &VaultSpec) -> VaultSpec {
        spec.clone().map_paths(|path| self.resolve(&path))
    }

    /// The age identity that opens backups.
    pub(crate) fn identity_file(&self) -> PathBuf {
        let default = Path::new("keys").join(IDENTITY_FILE);
        self.or_in_data_dir(&self.config.restore.identity_file, &default)
    }

    /// The key that signs manifests.
    pub(crate) fn signing_key_file(&self) -> PathBuf {
        let default = Path::new("keys").join(SIGNING_FILE);
        self.or_in_data_dir(&self.config.restore.signing_key_file, &default)
    }

    /// Whether missing keys are made at the first start: only where nobody chose any.
    pub(crate) fn makes_keys(&self) -> bool {
        self.origin == Origin::Defaults
            && self.config.restore.identity_file.as_os_str().is_empty()
            && self.config.restore.signing_key_file.as_os_str().is_empty()
    }

    /// What the configuration says about encryption; `None` only without any file. A file that says
    /// nothing is refused.
    pub(crate) fn encryption(&self) -> Result<Option<EncryptionRule>, Failure> {
        match (&self.config.policies.encryption, &self.origin) {
            (Some(rule), _) => Ok(Some(rule.clone())),
            (None, Origin::Defaults) => Ok(None),
            (None, Origin::File(file)) => Err(Failure::new(
                ErrorName::EncryptionNotConfigured,
                format!("{} does not say how backups are encrypted", file.display()),
            )),
        }
    }

    /// The policies, checked. Without any file backups are sealed for the key made at first start,
    /// whose recipient stands in here as a file of identities would: by its place.
    pub(crate) fn policies(&self) -> Result<PolicyOptions, Failure> {
        let section = self.config.policies.clone();
        let own = EncryptionRule::Recipients {
            recipients: Vec::new(),
            recipients_file: Some(self.identity_file().display().to_string()),
        };
        let policies = PolicyOptions {
            encryption: section.encryption.unwrap_or(own),
            backup: section.backup,
            drill: section.drill,
            retention: section.retention,
            objective: section.objective,
        };
        policies.check().or_fail("the policies do not make sense")?;
        Ok(policies)
    }

    /// The source called `name`, or the only one.
    pub(crate) fn source(&self, name: Option<&str>) -> Result<&Source, Failure> {
        let sources = &self.config.restore.sources;
        let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
        match (name, sources.as_slice()) {
            (Some(name), _) => sources
                .iter()
                .find(|source| source.name.as_str() == name)
                .ok_or_else(|| {
                    Failure::new(ErrorName::NotFound, format!("there is no source `{name}`"))
                        .next(format!("the configuration has: {}", names.join(", ")))
                }),
            (None, [only]) => Ok(only),
            (None, _) => Err(Failure::usage(
                "there are several sources",
                format!("name one with --source: {}", names.join(", ")),
            )),
        }
    }

    /// The source called `name`, or all of them.
    pub(crate) fn sources(&self, name: Option<&str>) -> Result<Vec<&Source>, Failure> {
        match name {
            Some(_) => self.source(name).map(|source| vec![source]),
            None => Ok(self.config.restore.sources.iter().collect()),
        }
    }

    fn or_in_data_dir(&self, path: &Path, default: &Path) -> PathBuf {
        if path.as_os_str().is_empty() {
            self.data_dir().join(default)
        } else {
            self.resolve(path)
        }
    }

    /// What is only looked at once something runs, and is plain to see before.
    fn check_places(&self) -> Result<(), Failure> {
        let invalid = |what: String| Failure::new(ErrorName::ConfigInvalid, what);
        let appliance = &self.config.appliance;
        let port = appliance.admin.listen.rsplit_once(':');
        let is_address =
            port.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        if appliance.admin.enabled && !is_address {
            let listen = &appliance.admin.listen;
            let what = format!("`appliance.admin.listen` is `{listen}`, not `host:port`");
            return Err(invalid(what));
        }
        telemetry::check(&appliance.log.level).map_err(|failure| {
            let what = "`appliance.log.level` cannot be used".to_owned();
            invalid(what).because_of(failure.line())
        })?;
        match &self.config.restore.vault {
            Some(VaultSpec::Local { path }) if path.as_os_str().is_empty() => Err(invalid(
                "`restore.vault.local.path` is empty: it names no folder".to_owned(),
            )),
            _ => Ok(()),
        }
    }

    /// Names are told apart, and no two vaults are in one place: a copy beside itself saves nobody.
    fn check_copies(&self) -> Result<(), Failure> {
        let copies = &self.config.restore.copies;
        let invalid = |what: String| Failure::new(ErrorName::ConfigInvalid, what);
        if copies.len() > COPIES_MAX {
            return Err(invalid(format!(
                "`restore.copies` has more than {COPIES_MAX} entries"
            )));
        }
        let (mut names, mut places) = (BTreeSet::new(), BTreeSet::new());
        places.insert(self.vault().location());
        for copy in copies {
            let name = &copy.name;
            if !names.insert(name) {
                return Err(invalid(format!("two copies are called `{name}`")));
            }
            if matches!(&copy.vault, VaultSpec::Local { path } if path.as_os_str().is_empty()) {
                return Err(invalid(format!("the copy `{name}` has an empty `path`")));
            }
            let location = self.resolve_vault(&copy.vault).location();
            if !places.insert(location.clone()) {
                return Err(invalid(format!(
                    "the copy `{name}` is where another vault is: {location}"
                )));
            }
        }
        Ok(())
    }

    fn check_sources(&self) -> Result<(), Failure> {
        let sources = &self.config.restore.sources;
        let invalid = |what: String| Failure::new(ErrorName::ConfigInvalid, what);
        if sources.is_empty() || sources.len() > SOURCES_MAX {
            return Err(invalid(format!(
                "`restore.sources` needs 1 to {SOURCES_MAX} entries"
            )));
        }
        let mut names = BTreeSet::new();
        for source in sources {
            let name = &source.name;
            if !names.insert(name) {
                return Err(invalid(format!("two sources are called `{name}`")));
            }
            if let SourceSpec::Etcd(etcd) = &source.kind
                && etcd.endpoints.is_empty()
            {
                return Err(invalid(format!("the source `{name}` has no `endpoints`")));
            }
        }
        let bundled = sources
            .iter()
            .filter(|source| source.kind == SourceSpec::Bundled)
            .count();
        match bundled {
            0 => Ok(()),
            1 if self.config.store.enabled => Ok(()),
            1 => Err(invalid(
                "a source is `bundled` and `store.enabled` is false".to_owned(),
            )),
            _ => Err(invalid("only one source can be `bundled`".to_owned())),
        }
    }
}
