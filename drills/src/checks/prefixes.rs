//! Each folder of keys holds as many as in the backup, as the member counts them.

use bytes::Bytes;
use holdfast_proto::etcd::rpc;

use super::{Finding, Subject, failed, keys_text};
use crate::client::answer;

pub(super) async fn check(subject: &Subject) -> Finding {
    let everything = Bytes::from_static(b"\0");
    let total = count(subject, everything.clone(), everything).await?;
    if total != subject.expected.count() {
        return failed(format!(
            "the member counts {}, the backup holds {}",
            keys_text(total),
            subject.expected.count()
        ));
    }
    let prefixes = subject.expected.prefixes();
    for (number, prefix) in (1..).zip(&prefixes) {
        let counted = count(subject, prefix.clone(), end_of(prefix)).await?;
        let wanted = subject.expected.count_with(prefix);
        if counted != wanted {
            let of = prefixes.len();
            return failed(format!(
                "prefix {number} of {of}: the member counts {counted}, the backup holds {wanted}"
            ));
        }
    }
    Ok(format!(
        "{} in all, {} prefixes alike",
        keys_text(total),
        prefixes.len()
    ))
}

async fn count(subject: &Subject, key: Bytes, range_end: Bytes) -> Result<u64, super::Doubt> {
    let request = rpc::RangeRequest {
        key,
        range_end,
        revision: subject.facts.revision_after,
        count_only: true,
        ..rpc::RangeRequest::default()
    };
    let counted = answer(subject.client.kv().range(request)).await?.count;
    match u64::try_from(counted) {
        Ok(counted) => Ok(counted),
        Err(_negative) => failed(format!("the member counts {counted} keys")),
    }
}

/// The end of the range of keys that begin with `prefix`, which ends with a slash.
fn end_of(prefix: &Bytes) -> Bytes {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end.into()
}
