//! The digest an etcd snapshot ends in, checked while the bytes pass by.

use crate::digest::{DIGEST_LEN, Digest, Digester};

/// bbolt's smallest page: database sizes are multiples of it.
const SECTOR_BYTES: u64 = 512;

/// Checks that the last 32 bytes are the SHA-256 of all before them.
#[derive(Debug, Default)]
pub(crate) struct TrailerCheck {
    digester: Digester,
    held: Vec<u8>,
    bytes: u64,
}

impl TrailerCheck {
    /// Takes the next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(crate::part::length(bytes));
        if let Some(settled) = bytes.len().checked_sub(DIGEST_LEN) {
            let (before, last) = bytes.split_at(settled);
            self.digester.update(&self.held);
            self.digester.update(before);
            self.held.clear();
            self.held.extend_from_slice(last);
            return;
        }
        self.held.extend_from_slice(bytes);
        if let Some(settled) = self.held.len().checked_sub(DIGEST_LEN) {
            let held = self.held.split_off(settled);
            self.digester.update(&self.held);
            self.held = held;
        }
    }

    /// Plain bytes taken so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The digest of all bytes taken so far, the trailer included.
    pub(crate) fn whole(&self) -> Digest {
        let mut whole = self.digester.clone();
        whole.update(&self.held);
        whole.finish()
    }

    /// The verdict at the end; `Err` says what is wrong.
    pub(crate) fn finish(self) -> Result<(), String> {
        let trailer = u64::try_from(DIGEST_LEN).unwrap_or(u64::MAX);
        let Some(database) = self.bytes.checked_sub(trailer).filter(|bytes| *bytes > 0) else {
            return Err(format!("{} bytes are too few for a snapshot", self.bytes));
        };
        if database % SECTOR_BYTES != 0 {
            return Err(format!(
                "{} bytes: a database and a digest have another size",
                self.bytes
            ));
        }
        let computed = self.digester.finish();
        if computed.as_bytes().as_slice() != self.held.as_slice() {
            let sent = <[u8; DIGEST_LEN]>::try_from(self.held.as_slice()).map(Digest::from_bytes);
            return Err(match sent {
                Ok(sent) => format!("digest of the bytes is {computed}, the trailer says {sent}"),
                Err(_) => "no whole digest at the end".to_owned(),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(len: usize) -> Vec<u8> {
        let mut bytes = vec![7_u8; len];
        let digest = Digest::of(&bytes);
        bytes.extend_from_slice(digest.as_bytes());
        bytes
    }

    fn verdict(bytes: &[u8], chunk: usize) -> Result<(), String> {
        let mut check = TrailerCheck::default();
        for piece in bytes.chunks(chunk) {
            check.update(piece);
        }
        check.finish()
    }

    #[test]
    fn a_whole_snapshot_passes_however_it_is_cut() {
        let bytes = snapshot(4096);
        for chunk in [1, 5, 31, 32, 33, 100, 4095, 4096, 5000] {
            assert_eq!(verdict(&bytes, chunk), Ok(()), "chunks of {chunk}");
        }
    }

    #[test]
    fn the_digest_of_the_whole_is_that_of_all_bytes() {
        let bytes = snapshot(4096);
        let mut check = TrailerCheck::default();
        for (taken, piece) in bytes.chunks(1000).enumerate() {
            assert_eq!(check.whole(), Digest::of(&bytes[..taken * 1000]));
            check.update(piece);
        }
        assert_eq!(check.whole(), Digest::of(&bytes));
    }

    #[test]
    fn every_shortened_or_lengthened_snapshot_is_refused() {
        let bytes = snapshot(1024);
        for len in 0..bytes.len() {
            assert!(verdict(&bytes[..len], 100).is_err(), "{len} bytes");
        }
        for more in [1, 31, 32, 512] {
            let mut longer = bytes.clone();
            longer.extend(vec![0; more]);
            assert!(verdict(&longer, 100).is_err(), "{more} more");
        }
    }

    #[test]
    fn a_flipped_duplicated_or_exchanged_chunk_is_refused() {
        let mut bytes = snapshot(2048);
        for (index, byte) in bytes.iter_mut().enumerate().take(2048) {
            *byte = u8::try_from(index / 512).unwrap();
        }
        let digest = Digest::of(&bytes[..2048]);
        bytes[2048..].copy_from_slice(digest.as_bytes());
        assert_eq!(verdict(&bytes, 512), Ok(()));
        let mut flipped = bytes.clone();
        flipped[700] ^= 1;
        assert!(verdict(&flipped, 512).is_err());
        let mut exchanged = bytes.clone();
        exchanged[..1024].rotate_left(512);
        assert!(verdict(&exchanged, 512).is_err());
        let mut twice = bytes[..512].to_vec();
        twice.extend_from_slice(&bytes);
        assert!(verdict(&twice, 512).is_err());
    }
}
