//! `--discovery-*`: where founders meet that do not know each other.

use std::path::PathBuf;
use std::time::Duration;

use super::flags::Values;
use super::{Discovery, DiscoveryPassword, SrvDiscovery, UsageError, tls, value};
use crate::tls::{DISCOVERY, TlsOptions};

/// etcd's words for two ways to begin at once.
const CONFLICT: &str = "multiple discovery or bootstrap flags are set. Choose one of \
                        \"initial-cluster\", \"discovery-endpoints\" or \"discovery-srv\"";

/// Reads the flags; `None` when there is no discovery.
pub(super) fn read(values: &Values) -> Result<Option<Discovery>, UsageError> {
    let get = |name: &str| {
        values
            .get(name)
            .map(String::as_str)
            .filter(|text| !text.is_empty())
    };
    let (token, endpoints) = match (get("discovery-token"), get("discovery-endpoints")) {
        (None, None) => return Ok(None),
        (Some(token), Some(endpoints)) => (token, endpoints),
        _ => {
            return Err(UsageError::new(
                "both --discovery-token and --discovery-endpoints must be set",
            ));
        }
    };
    if get("initial-cluster").is_some() {
        return Err(UsageError::new(CONFLICT));
    }
    let time = |name: &str, default: u64| {
        get(name).map_or(Ok(Duration::from_secs(default)), |text| {
            value::duration(name, text)
        })
    };
    let (files, is_bare_secure) = secure(values)?;
    let endpoints = dialled(endpoints, is_bare_secure)?;
    let is_secure = endpoints.iter().any(|url| url.starts_with("https://"));
    Ok(Some(Discovery {
        endpoints,
        tls: is_secure.then_some(files),
        token: token.to_owned(),
        user: user(get("discovery-user"), get("discovery-password"))?,
        dial_timeout: time("discovery-dial-timeout", 2)?,
        request_timeout: time("discovery-request-timeout", 5)?,
        keepalive_time: time("discovery-keepalive-time", 2)?,
        keepalive_timeout: time("discovery-keepalive-timeout", 6)?,
    }))
}

/// Reads `--discovery-srv` and `--discovery-srv-name`.
pub(super) fn read_srv(values: &Values) -> Result<Option<SrvDiscovery>, UsageError> {
    let get = |name: &str| values.get(name).filter(|text| !text.is_empty());
    let Some(domain) = get("discovery-srv") else {
        return Ok(None);
    };
    if get("initial-cluster").is_some() || get("discovery-endpoints").is_some() {
        return Err(UsageError::new(CONFLICT));
    }
    Ok(Some(SrvDiscovery {
        domain: domain.clone(),
        service: get("discovery-srv-name").cloned().unwrap_or_default(),
    }))
}

/// The certificates, and whether an address without a scheme is reached by https.
fn secure(values: &Values) -> Result<(TlsOptions, bool), UsageError> {
    let is_on = |name: &str, default: bool| {
        let given = values.get(name).filter(|text| !text.is_empty());
        given.map_or(Ok(default), |text| value::boolean(name, text))
    };
    let identity = tls::pair(values, DISCOVERY.cert, DISCOVERY.key)?;
    let authorities = values.get(DISCOVERY.authorities);
    let authorities = authorities
        .filter(|text| !text.is_empty())
        .map(PathBuf::from);
    let is_unchecked = is_on("discovery-insecure-skip-tls-verify", false)?;
    let is_bare_secure = identity.is_some()
        || authorities.is_some()
        || is_unchecked
        || !is_on("discovery-insecure-transport", true)?;
    let files = TlsOptions {
        identity,
        authorities,
        is_unchecked,
        ..TlsOptions::new(&DISCOVERY)
    };
    Ok((files, is_bare_secure))
}

fn dialled(text: &str, is_bare_secure: bool) -> Result<Vec<String>, UsageError> {
    let scheme = if is_bare_secure { "https" } else { "http" };
    let url = |text: &str| match text.trim() {
        "" => Err(UsageError::new(
            "--discovery-endpoints must not contain empty endpoints",
        )),
        url if url.starts_with("http://") || url.starts_with("https://") => Ok(url.to_owned()),
        address => Ok(format!("{scheme}://{address}")),
    };
    text.split(',').map(url).collect()
}

/// `name[:password]`, or the password apart.
fn user(
    user: Option<&str>,
    password: Option<&str>,
) -> Result<Option<(String, DiscoveryPassword)>, UsageError> {
    let Some(user) = user else { return Ok(None) };
    let (name, password) = match (user.split_once(':'), password) {
        (_, Some(password)) => (user, password),
        (Some((name, password)), None) => (name, password),
        (None, None) => {
            return Err(UsageError::new(
                "--discovery-user needs a password: name:password, or --discovery-password",
            ));
        }
    };
    Ok(Some((
        name.to_owned(),
        DiscoveryPassword(password.to_owned()),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(flags: &[(&'static str, &str)]) -> Result<Option<Discovery>, String> {
        let values = flags.iter().map(|(name, text)| (*name, (*text).to_owned()));
        read(&values.collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn discovery_is_read_from_etcds_flags() {
        assert_eq!(given(&[]), Ok(None));
        let found = given(&[
            ("discovery-token", "t"),
            ("discovery-endpoints", "http://a:1, b:2"),
            ("discovery-user", "root:secret"),
            ("discovery-request-timeout", "7s"),
        ]);
        let found = found.unwrap().unwrap();
        assert_eq!(found.endpoints, ["http://a:1", "http://b:2"]);
        assert_eq!(found.request_timeout, Duration::from_secs(7));
        let (name, password) = found.user.clone().unwrap();
        assert_eq!((name.as_str(), password.0.as_str()), ("root", "secret"));
        assert!(!format!("{found:?}").contains("secret"));
    }

    #[test]
    fn a_registry_is_reached_by_tls_where_a_scheme_or_a_file_says_so() {
        let with = |more: &[(&'static str, &str)]| {
            let mut flags = vec![
                ("discovery-token", "t"),
                ("discovery-endpoints", "http://a:1,https://b:2,c:3"),
            ];
            flags.extend(more);
            given(&flags).unwrap().unwrap()
        };
        let plain = with(&[]);
        assert_eq!(plain.endpoints, ["http://a:1", "https://b:2", "http://c:3"]);
        let system = plain.tls.unwrap();
        assert!(system.authorities.is_none() && !system.is_unchecked);
        for flag in [
            ("discovery-cacert", "/ca"),
            ("discovery-insecure-skip-tls-verify", "true"),
            ("discovery-insecure-transport", "false"),
        ] {
            let found = with(&[flag]);
            assert_eq!(found.endpoints[2], "https://c:3", "{flag:?}");
            let tls = found.tls.unwrap();
            assert_eq!(tls.is_unchecked, flag.0.contains("skip"));
            assert_eq!(tls.authorities.is_some(), flag.0.contains("cacert"));
        }
        let pair = [("discovery-cert", "/c"), ("discovery-key", "/k")];
        assert!(with(&pair).tls.unwrap().identity.is_some());
    }

    #[test]
    fn a_domain_is_one_way_to_begin() {
        let read = |flags: &[(&'static str, &str)]| {
            let values = flags.iter().map(|(name, text)| (*name, (*text).to_owned()));
            read_srv(&values.collect())
        };
        let found = read(&[("discovery-srv", "d.org"), ("discovery-srv-name", "x")]);
        let found = found.unwrap().unwrap();
        assert_eq!(
            (found.domain.as_str(), found.service.as_str()),
            ("d.org", "x")
        );
        for other in ["initial-cluster", "discovery-endpoints"] {
            assert!(read(&[("discovery-srv", "d.org"), (other, "x")]).is_err());
        }
    }

    #[test]
    fn half_a_discovery_and_two_ways_to_begin_are_refused() {
        let both = [
            ("discovery-token", "t"),
            ("discovery-endpoints", "http://a:1"),
        ];
        for (more, text) in [
            (
                ("initial-cluster", "a=http://h:1"),
                "multiple discovery or bootstrap flags",
            ),
            (("discovery-user", "root"), "needs a password"),
            (("discovery-endpoints", "http://a:1,,"), "empty endpoints"),
            (
                ("discovery-cert", "/c"),
                "KeyFile and CertFile must both be present[key: , cert: /c]",
            ),
            (("discovery-endpoints", ""), "must be set"),
        ] {
            let flags = [both[0], both[1], more];
            let error = given(&flags).unwrap_err();
            assert!(error.contains(text), "{error}");
        }
    }
}
