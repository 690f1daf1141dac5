//! Who calls: requests by kind and by the API version that the client says it speaks.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::Exposition;

/// Versions told apart; a client may say anything.
const VERSIONS_MAX: usize = 32;
/// Longest version kept.
const VERSION_LEN_MAX: usize = 32;
/// What stands for all further ones.
const OTHER: &str = "other";

/// Requests since the start, by version: unary ones, then streams.
#[derive(Debug, Default)]
pub(crate) struct ClientRequests(Mutex<BTreeMap<String, [u64; 2]>>);

impl ClientRequests {
    /// Counts a request of a client that says `version`.
    pub(crate) fn count(&self, is_stream: bool, version: Option<&str>) {
        let version = match version {
            None => "unknown",
            Some(version) if version.len() > VERSION_LEN_MAX => OTHER,
            Some(version) => version,
        };
        let mut counts = self.0.lock();
        let is_known = counts.contains_key(version);
        let version = if is_known || counts.len() < VERSIONS_MAX {
            version
        } else {
            OTHER
        };
        if !counts.contains_key(version) {
            counts.insert(version.to_owned(), [0; 2]);
        }
        if let Some([unary, stream]) = counts.get_mut(version) {
            *(if is_stream { stream } else { unary }) += 1;
        }
    }

    /// Writes the kinds of requests that there were.
    pub(crate) fn write(&self, out: &mut Exposition) {
        const NAME: &str = "etcd_server_client_requests_total";
        out.family(NAME);
        for (version, [unary, stream]) in &*self.0.lock() {
            for (kind, count) in [("stream", *stream), ("unary", *unary)] {
                if count > 0 {
                    let labels = [("client_api_version", version.as_str()), ("type", kind)];
                    out.sample(NAME, &labels, count);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_told_apart_up_to_a_limit() {
        let requests = ClientRequests::default();
        requests.count(false, Some("3.7"));
        requests.count(false, Some("3.7"));
        requests.count(true, None);
        requests.count(true, Some(&"9".repeat(100)));
        for number in 0..100 {
            requests.count(false, Some(&format!("0.{number}")));
        }
        let mut out = Exposition::default();
        requests.write(&mut out);
        let page = out.into_text();
        let line = "etcd_server_client_requests_total{client_api_version=\"3.7\",type=\"unary\"} 2";
        assert!(page.lines().any(|found| found == line), "{page}");
        assert!(page.contains("client_api_version=\"unknown\",type=\"stream\"} 1"));
        assert!(page.contains("client_api_version=\"other\",type=\"stream\"} 1"));
        assert!(page.lines().count() <= VERSIONS_MAX + 4, "{page}");
    }
}
