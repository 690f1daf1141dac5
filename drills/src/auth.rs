//! Users and roles in a few words, to compare them across processes without telling them.

use holdfast_restore::Digest;
use holdfast_store::etcd_file::Auth;
use serde::{Deserialize, Serialize};

/// What is told of the authentication records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuthFacts {
    pub(crate) is_enabled: bool,
    pub(crate) users: usize,
    pub(crate) roles: usize,
    /// Of all records, as this program prints them: passwords' hashes and permissions included.
    digest: Digest,
}

impl AuthFacts {
    pub(crate) fn of(auth: &Auth) -> Self {
        Self {
            is_enabled: auth.is_enabled,
            users: auth.users.len(),
            roles: auth.roles.len(),
            digest: Digest::of(format!("{auth:?}").as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_proto::etcd::auth::User;

    use super::*;

    #[test]
    fn any_difference_of_the_records_shows() {
        let user = |name: &str, password: &str| User {
            name: name.to_owned().into_bytes().into(),
            password: password.to_owned().into_bytes().into(),
            ..User::default()
        };
        let of = |user| {
            AuthFacts::of(&Auth {
                users: vec![user],
                ..Auth::default()
            })
        };
        assert_eq!(of(user("root", "a")), of(user("root", "a")));
        assert_ne!(of(user("root", "a")), of(user("root", "b")));
        assert_ne!(of(user("root", "a")), of(user("toor", "a")));
        assert_ne!(of(User::default()), AuthFacts::of(&Auth::default()));
    }
}
