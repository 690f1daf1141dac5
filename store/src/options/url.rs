//! Addresses to listen on, in the forms etcd's flags take them.

use std::fmt;
use std::path::PathBuf;

use super::UsageError;

/// Most addresses one flag may list.
const LISTEN_URLS_MAX: usize = 64;

/// One address of `--listen-client-urls`, `--listen-peer-urls` or `--listen-metrics-urls`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenUrl {
    /// `http://host:port`; port 0 lets the system choose one.
    Http {
        /// Host name or IP address, without the brackets of IPv6.
        host: String,
        /// TCP port.
        port: u16,
    },
    /// `unix://path`, a socket in the file system.
    Unix {
        /// The socket's path.
        path: PathBuf,
    },
}

impl ListenUrl {
    /// An `http` address on the loopback interface.
    pub fn loopback(port: u16) -> ListenUrl {
        ListenUrl::Http {
            host: "127.0.0.1".to_owned(),
            port,
        }
    }

    /// Reads one address.
    ///
    /// # Errors
    /// When the scheme is unknown or not served (`https`, `unixs`), or host or port are missing.
    pub fn parse(text: &str) -> Result<ListenUrl, UsageError> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(UsageError::new(format!(
                "URL scheme must be http, https, unix, or unixs: {text}"
            )));
        };
        match scheme {
            "http" => ListenUrl::parse_host_port(text, rest),
            "unix" if rest.is_empty() => {
                Err(UsageError::new(format!("missing path in URL: {text}")))
            }
            "unix" => Ok(ListenUrl::Unix {
                path: PathBuf::from(rest),
            }),
            "https" | "unixs" => Err(UsageError::new(format!(
                "this version does not serve TLS: {text}"
            ))),
            _ => Err(UsageError::new(format!(
                "URL scheme must be http, https, unix, or unixs: {text}"
            ))),
        }
    }

    /// Reads a comma-separated list; an empty text is an empty list.
    ///
    /// # Errors
    /// As [`ListenUrl::parse`], and for a list that is too long.
    pub fn parse_list(text: &str) -> Result<Vec<ListenUrl>, UsageError> {
        let urls: Vec<ListenUrl> = text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .take(LISTEN_URLS_MAX + 1)
            .map(ListenUrl::parse)
            .collect::<Result<_, _>>()?;
        if urls.len() > LISTEN_URLS_MAX {
            return Err(UsageError::new(format!(
                "more than {LISTEN_URLS_MAX} URLs in one flag"
            )));
        }
        Ok(urls)
    }

    fn parse_host_port(text: &str, rest: &str) -> Result<ListenUrl, UsageError> {
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains('/') {
            return Err(UsageError::new(format!(
                "URL must not contain a path: {text}"
            )));
        }
        let Some((host, port)) = authority.rsplit_once(':') else {
            return Err(UsageError::new(format!(
                "URL address does not have the form \"host:port\": {text}"
            )));
        };
        let port = port.parse::<u16>().map_err(|_error| {
            UsageError::new(format!(
                "URL address does not have the form \"host:port\": {text}"
            ))
        })?;
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let host = match bare {
            Some(host) => host,
            None if host.contains(':') => {
                return Err(UsageError::new(format!(
                    "IPv6 host needs brackets in URL: {text}"
                )));
            }
            None => host,
        };
        Ok(ListenUrl::Http {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for ListenUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenUrl::Http { host, port } if host.contains(':') => {
                write!(f, "http://[{host}]:{port}")
            }
            ListenUrl::Http { host, port } => write!(f, "http://{host}:{port}"),
            ListenUrl::Unix { path } => write!(f, "unix://{}", path.display()),
        }
    }
}

/// The addresses of a member's peer port as etcd would store them, sorted; `None` when there is
/// none, or one that nobody could dial.
pub(crate) fn peer_urls(given: &[String]) -> Option<Vec<String>> {
    let mut urls: Vec<String> = given
        .iter()
        .map(|text| peer_url(text.trim()))
        .collect::<Option<_>>()?;
    urls.sort_unstable();
    (!urls.is_empty()).then_some(urls)
}

fn peer_url(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    match scheme.as_str() {
        "http" | "https" => {
            // No path, query, fragment or password, and no blanks.
            let is_odd = |c: char| "/?#@\\".contains(c) || c.is_whitespace() || c.is_control();
            if rest.contains(is_odd) {
                return None;
            }
            ListenUrl::parse_host_port(text, rest).ok()?;
            Some(format!("{scheme}://{rest}"))
        }
        "unix" | "unixs" if !rest.is_empty() => Some(format!("{scheme}://{rest}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{ListenUrl, peer_urls};

    #[test]
    fn peer_urls_are_sorted_and_taken_as_etcd_takes_them() {
        let list = |urls: &[&str]| urls.iter().map(|&url| url.to_owned()).collect::<Vec<_>>();
        assert_eq!(
            peer_urls(&list(&[
                " http://b:2 ",
                "HTTP://a:1",
                "unix://x:1",
                "https://[::1]:9"
            ])),
            Some(list(&[
                "http://a:1",
                "http://b:2",
                "https://[::1]:9",
                "unix://x:1"
            ]))
        );
        for wrong in [
            "",
            "a:1",
            "http://a",
            "http://a:1/",
            "http://a:1/members",
            "http://a:b",
            "ftp://a:1",
            "http://a:1?x",
            "http://u@a:1",
            "http://::1:9",
            "unix://",
            "http://a b:1",
        ] {
            assert_eq!(peer_urls(&list(&["http://ok:1", wrong])), None, "{wrong}");
        }
        assert_eq!(peer_urls(&[]), None);
    }

    #[test]
    fn listen_urls_are_read_in_every_form_served() {
        for (text, shown) in [
            ("http://127.0.0.1:2379", "http://127.0.0.1:2379"),
            ("http://localhost:0/", "http://localhost:0"),
            ("http://[::1]:2379", "http://[::1]:2379"),
            ("unix://socket:1", "unix://socket:1"),
        ] {
            assert_eq!(ListenUrl::parse(text).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn listen_urls_that_cannot_be_served_are_refused() {
        for text in [
            "127.0.0.1:2379",
            "http://127.0.0.1",
            "http://127.0.0.1:99999",
            "http://127.0.0.1:1/path",
            "http://::1:2379",
            "https://127.0.0.1:2379",
            "unixs://socket:1",
            "ftp://127.0.0.1:1",
            "unix://",
        ] {
            assert!(ListenUrl::parse(text).is_err(), "{text}");
        }
    }
}
