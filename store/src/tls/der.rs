//! As much of DER as certificates need: values one inside another, read and written.

pub(super) const BOOLEAN: u8 = 0x01;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OBJECT: u8 = 0x06;
pub(super) const UTF8_STRING: u8 = 0x0c;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const GENERALIZED_TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;

/// Most bytes that say a length.
const LENGTH_BYTES_MAX: usize = 4;

/// The values of one level, in their order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Values<'a>(pub(super) &'a [u8]);

impl<'a> Values<'a> {
    /// The next value with its tag; `None` at the end, and where the bytes make no sense.
    pub(super) fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            let count = usize::from(first & 0x7f);
            if !(1..=LENGTH_BYTES_MAX).contains(&count) {
                return None;
            }
            let (digits, rest) = rest.split_at_checked(count)?;
            let length = digits
                .iter()
                .fold(0_usize, |length, digit| (length << 8) | usize::from(*digit));
            (length, rest)
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, value))
    }

    /// The next value, which must have `tag`.
    pub(super) fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (found, value) = self.next()?;
        (found == tag).then_some(value)
    }

    /// The next value if it has `tag`; else nothing is taken.
    pub(super) fn take_if(&mut self, tag: u8) -> Option<&'a [u8]> {
        (self.0.first() == Some(&tag))
            .then(|| self.next())?
            .map(|(_, value)| value)
    }
}

/// One value.
pub(super) fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    let length = content.len();
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => bytes.push(short),
        _ => {
            let digits = length.to_be_bytes();
            let zeros = digits.iter().take_while(|digit| **digit == 0).count();
            let digits = digits.get(zeros..).unwrap_or_default();
            bytes.push(0x80 | u8::try_from(digits.len()).unwrap_or(0));
            bytes.extend_from_slice(digits);
        }
    }
    bytes.extend_from_slice(content);
    bytes
}

/// Values after one another, as one.
pub(super) fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    value(SEQUENCE, &parts.concat())
}

/// A whole number of any size, not negative.
pub(super) fn integer(digits: &[u8]) -> Vec<u8> {
    let zeros = digits.iter().take_while(|digit| **digit == 0).count();
    let mut content = vec![0];
    content.extend_from_slice(digits.get(zeros..).unwrap_or_default());
    // The leading zero stays only where the number would look negative without it.
    if content.get(1).is_some_and(|first| *first < 0x80) {
        content.remove(0);
    }
    value(INTEGER, &content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_were_written() {
        for length in [0, 1, 127, 128, 255, 256, 70_000] {
            let content = vec![7; length];
            let bytes = sequence(&[value(OCTET_STRING, &content), integer(&[0, 0x80])]);
            let mut values = Values(Values(&bytes).take(SEQUENCE).unwrap());
            assert_eq!(values.take_if(INTEGER), None);
            assert_eq!(values.take(OCTET_STRING), Some(content.as_slice()));
            assert_eq!(values.take(INTEGER), Some([0, 0x80].as_slice()));
            assert_eq!(values.next(), None);
        }
        assert_eq!(integer(&[0, 5]), [INTEGER, 1, 5]);
        assert_eq!(integer(&[]), [INTEGER, 1, 0]);
    }

    #[test]
    fn bytes_that_make_no_sense_are_no_values() {
        for bytes in [
            &[SEQUENCE][..],
            &[SEQUENCE, 2, 0],
            &[SEQUENCE, 0x80],
            &[SEQUENCE, 0x85, 0, 0, 0, 0, 0],
            &[SEQUENCE, 0x84, 0xff, 0xff, 0xff, 0xff, 0],
        ] {
            assert_eq!(Values(bytes).next(), None, "{bytes:?}");
        }
    }
}
