//! What the answers to the store's own calls have in common: a value, or why there is none.

use holdfast_proto::peer::v1 as proto;

use super::refusal::{from_refusal, to_refusal};
use crate::error::Error;

/// The answer to a call.
pub(crate) trait Answer: Sized {
    /// What is asked for.
    type Value;

    /// The answer that says so.
    fn of(result: Result<Self::Value, Error>) -> Self;

    /// What it says; `None`: nothing that this version knows.
    fn read(self) -> Option<Result<Self::Value, Error>>;
}

macro_rules! answers {
    ($($message:ident, $module:ident: $variant:ident($value:ty);)+) => {$(
        impl Answer for proto::$message {
            type Value = $value;

            fn of(result: Result<$value, Error>) -> Self {
                use proto::$module::Result as Wire;
                let result = match result {
                    Ok(value) => Wire::$variant(value),
                    Err(error) => Wire::Refusal(to_refusal(&error).into()),
                };
                Self {
                    result: Some(result),
                }
            }

            fn read(self) -> Option<Result<$value, Error>> {
                use proto::$module::Result as Wire;
                Some(match self.result? {
                    Wire::$variant(value) => Ok(value),
                    Wire::Refusal(refusal) => Err(refused(refusal)),
                })
            }
        }
    )+};
}

answers! {
    Proposed, proposed: Position(proto::LogId);
    ReadIndexResponse, read_index_response: Position(proto::LogId);
    ReconfigureResponse, reconfigure_response: Position(proto::LogId);
    LeaseRenewResponse, lease_renew_response: Ttl(i64);
    LeaseTimeToLiveResponse, lease_time_to_live_response: Time(proto::LeaseTime);
    HashKvResponse, hash_kv_response: Hash(proto::HashKv);
}

fn refused(refusal: i32) -> Error {
    from_refusal(proto::Refusal::try_from(refusal).unwrap_or(proto::Refusal::Internal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_arrives_as_it_was_given() {
        let told = proto::LeaseRenewResponse::of(Ok(7)).read();
        assert!(matches!(told, Some(Ok(7))));
        let told = proto::LeaseRenewResponse::of(Err(Error::NoLeader)).read();
        assert!(matches!(told, Some(Err(Error::NoLeader))));
        let told = proto::LeaseRenewResponse { result: None }.read();
        assert!(told.is_none());
    }
}
