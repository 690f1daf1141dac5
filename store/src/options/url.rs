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
    /// `https://host:port`, served over TLS.
    Https {
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
    /// When the scheme is unknown or not served (`unixs`), or host or port are missing.
    pub fn parse(text: &str) -> Result<ListenUrl, UsageError> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(UsageError::new(format!(
                "URL scheme must be http, https, unix, or unixs: {text}"
            )));
        };
        match scheme {
            "http" => {
                let (host, port) = host_and_port(text, rest)?;
                Ok(ListenUrl::Http { host, port })
            }
            "https" => {
                let (host, port) = host_and_port(text, rest)?;
                Ok(ListenUrl::Https { host, port })
            }
            "unix" if rest.is_empty() => {
                Err(UsageError::new(format!("missing path in URL: {text}")))
            }
            "unix" => Ok(ListenUrl::Unix {
                path: PathBuf::from(rest),
            }),
            "unixs" => Err(UsageError::new(format!(
                "this version does not serve TLS on sockets of the file system: {text}"
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

    /// Whether it is served over TLS.
    pub fn is_secure(&self) -> bool {
        matches!(self, ListenUrl::Https { .. })
    }

    /// The host, when it has one.
    pub fn host(&self) -> Option<&str> {
        match self {
            ListenUrl::Http { host, .. } | ListenUrl::Https { host, .. } => Some(host),
            ListenUrl::Unix { .. } => None,
        }
    }
}

/// The host (an IPv6 address without its brackets) and port after the scheme of URL `text`.
fn host_and_port(text: &str, rest: &str) -> Result<(String, u16), UsageError> {
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
    Ok((host.to_owned(), port))
}

impl fmt::Display for ListenUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host, port) = match self {
            ListenUrl::Http { host, port } => ("http", host, port),
            ListenUrl::Https { host, port } => ("https", host, port),
            ListenUrl::Unix { path } => return write!(f, "unix://{}", path.display()),
        };
        if host.contains(':') {
            write!(f, "{scheme}://[{host}]:{port}")
        } else {
            write!(f, "{scheme}://{host}:{port}")
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
            host_and_port(text, rest).ok()?;
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
            ("https://[::1]:2380", "https://[::1]:2380"),
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
            "unixs://socket:1",
            "ftp://127.0.0.1:1",
            "unix://",
        ] {
            assert!(ListenUrl::parse(text).is_err(), "{text}");
        }
    }
}
