//! Where the configuration comes from: flag over environment over file over default.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::sections::Config;
use crate::failure::{ErrorName, Failure};

/// Largest configuration file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Environment variables with this prefix and a double underscore set one key:
/// `HOLDFAST_POLICIES__BACKUP__SCHEDULE=@daily`.
const ENV_PREFIX: &str = "HOLDFAST_";

/// Where a file is looked for when none is named.
const PLACES: [&str; 2] = ["holdfast.yaml", "/etc/holdfast/holdfast.yaml"];

/// Where the settings came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// No file: the defaults, and whatever flags and environment say.
    Defaults,
    /// This file.
    File(PathBuf),
}

/// The configuration and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Loaded {
    /// The settings.
    pub(crate) config: Config,
    /// Where they came from.
    pub(crate) origin: Origin,
    /// What flags and environment laid over the file.
    pub(crate) laid: Vec<Laid>,
}

/// A key that a flag or the environment sets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Laid {
    /// `--set KEY`, or the variable.
    pub(crate) place: String,
    /// The key, dotted.
    pub(crate) path: String,
    /// Its value, as it was read.
    pub(crate) value: Value,
}

impl Loaded {
    /// The folder at which relative paths start: that of the file, else the current one.
    pub(crate) fn base_or_here(&self) -> &Path {
        let parent = match &self.origin {
            Origin::Defaults => None,
            Origin::File(file) => file.parent().filter(|dir| !dir.as_os_str().is_empty()),
        };
        parent.unwrap_or_else(|| Path::new("."))
    }
}

/// Reads the file (`named`, or the first of the usual places that exists) and lays the environment
/// and the flags (`KEY=VALUE`) over it.
pub(crate) fn load(
    named: Option<&Path>,
    flags: &[String],
    env: impl Iterator<Item = (String, String)>,
) -> Result<Loaded, Failure> {
    let file = match named {
        Some(file) => Some(file.to_owned()),
        None => PLACES
            .iter()
            .map(PathBuf::from)
            .find(|place| place.is_file()),
    };
    let (config, origin) = match file {
        None => (Config::default(), Origin::Defaults),
        Some(file) => (read(&file)?, Origin::File(file)),
    };
    let mut overlay: Vec<(String, String, String)> = Vec::new();
    let mut from_env: Vec<_> = env.filter_map(from_env).collect();
    from_env.sort();
    overlay.extend(from_env);
    for flag in flags {
        overlay.push(from_flag(flag)?);
    }
    let config = lay_over(config, &overlay)?;
    let tree = tree_of(&config)?;
    let laid = overlay.into_iter().map(|(place, path, _)| Laid {
        value: value_at(&tree, &path),
        place,
        path,
    });
    let laid = laid.collect();
    Ok(Loaded {
        config,
        origin,
        laid,
    })
}

/// Reads one file, with the place of a mistake in the failure.
fn read(file: &Path) -> Result<Config, Failure> {
    let name = file.display();
    let fault = |e: &std::io::Error| {
        Failure::io(
            format!("the configuration file {name} could not be read"),
            e,
        )
        .next("name another with --config, or write one with `holdfast init`")
    };
    let size = std::fs::metadata(file).map_err(|e| fault(&e))?.len();
    if size > FILE_BYTES_MAX {
        return Err(Failure::new(
            ErrorName::ConfigInvalid,
            format!("the configuration file {name} has {size} bytes, more than a megabyte"),
        ));
    }
    let text = std::fs::read_to_string(file).map_err(|e| fault(&e))?;
    parse(&text).map_err(|cause| {
        Failure::new(
            ErrorName::ConfigInvalid,
            format!("{name} is not a valid configuration"),
        )
        .because_of(cause)
    })
}

/// Reads the text of a configuration file; an empty one is all defaults.
pub(super) fn parse(text: &str) -> Result<Config, String> {
    let is_blank = text.lines().all(|line| {
        let line = line.trim();
        line.is_empty() || line.starts_with('#') || line == "---"
    });
    if is_blank {
        return Ok(Config::default());
    }
    serde_saphyr::from_str(text).map_err(|error| error.to_string())
}

/// `HOLDFAST_A__B_C=v` as (where, `a.b_c`, `v`).
fn from_env((name, value): (String, String)) -> Option<(String, String, String)> {
    let path = name.strip_prefix(ENV_PREFIX)?;
    if !path.contains("__") {
        return None;
    }
    let path = path.to_ascii_lowercase().replace("__", ".");
    Some((format!("the variable {name}"), path, value))
}

/// `a.b_c=v` as (where, `a.b_c`, `v`).
fn from_flag(flag: &str) -> Result<(String, String, String), Failure> {
    let (path, value) = flag.split_once('=').ok_or_else(|| {
        Failure::usage(
            format!("--set {flag} has no `=`"),
            "write --set section.key=value, such as --set policies.backup.schedule=@daily",
        )
    })?;
    Ok((
        format!("--set {path}"),
        path.trim().to_owned(),
        value.to_owned(),
    ))
}

/// Sets each key over `config`; a key that does not exist is refused.
fn lay_over(config: Config, overlay: &[(String, String, String)]) -> Result<Config, Failure> {
    if overlay.is_empty() {
        return Ok(config);
    }
    let mut tree = tree_of(&config)?;
    let mut current = config;
    for (place, path, text) in overlay {
        let invalid = |cause: String| {
            Failure::new(ErrorName::ConfigInvalid, format!("{place} cannot be used"))
                .because_of(cause)
        };
        let wanted = value_of(text);
        set(&mut tree, path, wanted.clone()).map_err(&invalid)?;
        current = match Config::deserialize_value(tree.clone()) {
            Ok(config) => config,
            Err(error) if wanted.is_string() => return Err(invalid(error)),
            Err(first) => {
                // `2` may be meant as text.
                set(&mut tree, path, Value::String(text.clone())).map_err(&invalid)?;
                Config::deserialize_value(tree.clone()).map_err(|_as_text| invalid(first))?
            }
        };
    }
    Ok(current)
}

/// The value a person means by `text`: YAML's reading of it, else the text itself.
fn value_of(text: &str) -> Value {
    if text.starts_with('@') {
        return Value::String(text.to_owned());
    }
    serde_saphyr::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// Puts `value` at the dotted `path`, making the maps on the way.
fn set(tree: &mut Value, path: &str, value: Value) -> Result<(), String> {
    let mut place = tree;
    let mut steps = path.split('.').peekable();
    while let Some(step) = steps.next() {
        if !place.is_object() {
            *place = Value::Object(serde_json::Map::new());
        }
        let map = place
            .as_object_mut()
            .ok_or_else(|| format!("`{step}` is not a section"))?;
        if steps.peek().is_none() {
            map.insert(step.to_owned(), value);
            return Ok(());
        }
        // A choice such as `vault: {local: ...}` holds one key: naming another one replaces it.
        place = map.entry(step.to_owned()).or_insert(Value::Null);
        if let (Some(next), Some(choice)) = (steps.peek(), place.as_object_mut())
            && choice.len() == 1
            && CHOICES.contains(&step)
            && !choice.contains_key(*next)
        {
            choice.clear();
        }
    }
    Err("the key is empty".to_owned())
}

fn tree_of(config: &Config) -> Result<Value, Failure> {
    serde_json::to_value(config)
        .map_err(|e| Failure::unexpected("the configuration could not be laid out", &e))
}

/// What is at the dotted `path`; null where nothing is.
fn value_at(tree: &Value, path: &str) -> Value {
    let found = path
        .split('.')
        .try_fold(tree, |place, step| place.get(step));
    found.cloned().unwrap_or(Value::Null)
}

/// The first of `laid` that differs from `config`, and what is there. Where a process logs to and
/// listens is its own matter.
pub(crate) fn differing<'a>(
    config: &Config,
    laid: &'a [Laid],
) -> Result<Option<(&'a Laid, Value)>, Failure> {
    let tree = tree_of(config)?;
    let mut differing = laid
        .iter()
        .filter(|one| !one.path.starts_with("appliance."))
        .map(|one| (one, value_at(&tree, &one.path)))
        .filter(|(one, here)| one.value != *here);
    Ok(differing.next())
}

/// Keys whose value is one of several kinds.
const CHOICES: [&str; 2] = ["vault", "kind"];

impl Config {
    /// Reads the settings from a tree of values.
    fn deserialize_value(tree: Value) -> Result<Self, String> {
        serde_json::from_value(tree).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use holdfast_restore::VaultSpec;

    use super::*;
    use crate::config::DrillMembers;

    fn laid(flags: &[&str], env: &[(&str, &str)]) -> Result<Loaded, Failure> {
        let flags: Vec<String> = flags.iter().map(|f| (*f).to_owned()).collect();
        let env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        load(None, &flags, env)
    }

    #[test]
    fn a_flag_wins_over_the_environment_and_that_over_the_default() {
        let env = [
            ("HOLDFAST_STORE__NAME", "from-env"),
            ("HOLDFAST_CONFIG", "ignored-here"),
        ];
        let loaded = laid(&[], &env).unwrap();
        assert_eq!(loaded.config.store.name, "from-env");
        let loaded = laid(&["store.name=from-flag"], &env).unwrap();
        assert_eq!(loaded.config.store.name, "from-flag");
    }

    #[test]
    fn numbers_lists_and_words_are_read_as_the_key_wants_them() {
        let loaded = laid(
            &[
                "store.name=2",
                "store.peer_urls=[http://a:1, http://b:2]",
                "store.enabled=false",
            ],
            &[],
        )
        .unwrap();
        assert_eq!(loaded.config.store.name, "2");
        assert_eq!(loaded.config.store.peer_urls, ["http://a:1", "http://b:2"]);
        assert!(!loaded.config.store.enabled);
    }

    #[test]
    fn a_drill_has_as_many_members_as_the_source_or_a_number_of_them() {
        let members = |flag: &str| laid(&[flag], &[]).map(|one| one.config.drills.members);
        assert_eq!(
            laid(&[], &[]).unwrap().config.drills.members,
            DrillMembers::Source
        );
        assert_eq!(
            members("drills.members=source").unwrap(),
            DrillMembers::Source
        );
        assert_eq!(
            members("drills.members=3").unwrap(),
            DrillMembers::Exactly(3)
        );
        for wrong in [
            "drills.members=0",
            "drills.members=8",
            "drills.members=many",
        ] {
            assert!(members(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn naming_another_kind_of_vault_replaces_the_default_one() {
        let loaded = laid(&["restore.vault.s3.bucket=b"], &[]).unwrap();
        let vault = loaded.config.restore.vault;
        assert!(matches!(vault, Some(VaultSpec::S3(s3)) if s3.bucket == "b"));
    }

    #[test]
    fn unknown_keys_are_refused_wherever_they_come_from() {
        let failure = laid(&["store.nmae=x"], &[]).unwrap_err();
        assert_eq!(failure.name(), ErrorName::ConfigInvalid);
        assert!(
            failure.to_string().contains("--set store.nmae"),
            "{failure}"
        );
        assert!(laid(&[], &[("HOLDFAST_STORE__NMAE", "x")]).is_err());
        assert!(parse("store: {nmae: x}").unwrap_err().contains("nmae"));
        assert!(laid(&["store.name"], &[]).is_err());
    }

    #[test]
    fn a_laid_key_that_another_process_has_otherwise_is_found() {
        let flags = ["policies.backup.verify=L0", "appliance.log.level=debug"];
        let ours = laid(&flags, &[("HOLDFAST_STORE__NAME", "default")]).unwrap();
        let theirs = laid(&[], &[]).unwrap().config;
        let (found, there) = differing(&theirs, &ours.laid).unwrap().unwrap();
        assert_eq!(found.place, "--set policies.backup.verify");
        assert_eq!(
            (found.value.as_str(), there.as_str()),
            (Some("L0"), Some("L2"))
        );
        assert_eq!(differing(&ours.config, &ours.laid).unwrap(), None);
    }

    #[test]
    fn a_named_file_must_exist() {
        let file = Path::new("/nonexistent/none.yaml");
        assert!(load(Some(file), &[], std::iter::empty()).is_err());
    }

    #[test]
    fn an_empty_file_is_all_defaults() {
        assert_eq!(parse("# nothing\n---\n"), Ok(Config::default()));
    }
}
