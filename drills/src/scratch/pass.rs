//! A way into a scratch etcd that has authentication on, without anybody's password.
//!
//! etcd can be told to believe tokens that are signed with a given key. The drill makes such a key,
//! for this one member only, gives it to the scratch etcd, and signs one token for a user that the
//! backup gives the root role. The restored data stays exactly as it was restored, and
//! authentication stays in force.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use holdfast_restore::UniqueId;
use holdfast_store::etcd_file::Auth;
use sha2::{Digest as _, Sha256};
use tonic::metadata::{Ascii, MetadataValue};

use crate::error::{Error, Result};

/// Where the key lies, in the scratch directory.
const KEY_FILE: &str = "token.key";

/// Bytes of SHA-256's block.
const BLOCK_BYTES: usize = 64;

/// The role that may do everything.
const ROOT: &str = "root";

/// The member's flag, and the token that opens it.
#[derive(Debug, Clone)]
pub(crate) struct Pass {
    /// The value of etcd's `--auth-token`; the path in it starts at the scratch directory.
    pub(crate) flag: String,
    /// What the client sends.
    pub(crate) token: MetadataValue<Ascii>,
}

impl Pass {
    /// Makes a key in `scratch` and a token for the root of `auth`.
    pub(crate) fn create(scratch: &Path, auth: &Auth) -> Result<Self> {
        let key = format!("{}{}", UniqueId::generate(), UniqueId::generate());
        let path = scratch.join(KEY_FILE);
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| file.write_all(key.as_bytes()))
            .map_err(Error::io("create", &path))?;
        let is_root =
            |user: &&holdfast_proto::etcd::auth::User| user.roles.iter().any(|role| role == ROOT);
        let user = auth.users.iter().find(is_root).ok_or_else(|| {
            Error::member("cannot be asked: authentication is on and no user has the root role")
        })?;
        let name = String::from_utf8_lossy(&user.name);
        let token = token(key.as_bytes(), &name, auth.revision);
        Ok(Self {
            flag: format!("jwt,priv-key={KEY_FILE},sign-method=HS256,ttl=24h"),
            token: token
                .parse()
                .map_err(|_invalid| Error::member("cannot be asked: the token is no header"))?,
        })
    }
}

/// A JSON web token (RFC 7519) with the claims that etcd reads, signed with HMAC-SHA-256.
fn token(key: &[u8], user: &str, revision: u64) -> String {
    let head = serde_json::json!({"alg": "HS256", "typ": "JWT"});
    let claims = serde_json::json!({"username": user, "revision": revision});
    let [head, claims] = [head, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    let signed = format!("{head}.{claims}");
    let signature = URL_SAFE_NO_PAD.encode(hmac(key, signed.as_bytes()));
    format!("{signed}.{signature}")
}

/// HMAC-SHA-256 (RFC 2104).
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let short: Vec<u8> = if key.len() > BLOCK_BYTES {
        Sha256::digest(key).to_vec()
    } else {
        key.to_vec()
    };
    let padded = |with: u8| -> Vec<u8> {
        let zeros = std::iter::repeat(0);
        let block = short.iter().copied().chain(zeros).take(BLOCK_BYTES);
        block.map(|byte| byte ^ with).collect()
    };
    let inner = Sha256::new()
        .chain_update(padded(0x36))
        .chain_update(message)
        .finalize();
    Sha256::new()
        .chain_update(padded(0x5c))
        .chain_update(inner)
        .finalize()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes
            .iter()
            .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
    }

    /// Test cases 1, 2 and 6 of RFC 4231.
    #[test]
    fn the_code_is_that_of_the_standard() {
        assert_eq!(
            hex(&hmac(&[0x0b; 20], b"Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
        assert_eq!(
            hex(&hmac(b"Jefe", b"what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        let text = b"Test Using Larger Than Block-Size Key - Hash Key First";
        assert_eq!(
            hex(&hmac(&[0xaa; 131], text)),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn without_a_root_user_there_is_no_pass() {
        let folder = tempfile::tempdir().unwrap();
        let auth = Auth {
            is_enabled: true,
            revision: 3,
            users: Vec::new(),
            roles: Vec::new(),
        };
        assert!(Pass::create(folder.path(), &auth).is_err());
    }
}
