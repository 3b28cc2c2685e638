//! Messages sealed in place by ChaCha20-Poly1305 (RFC 8439), under keys and nonces of the caller's.
//!
//! A crate of its own because the cipher is generic: it is compiled with what calls it, and as that is. Here it is optimised even where
//! the rest is built for its checks, as in tests.
#![forbid(unsafe_code)]

use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit};

/// Length of a key, bytes.
pub const KEY_BYTES: usize = 32;
/// Length of a nonce, bytes.
pub const NONCE_BYTES: usize = 12;
/// Length of what vouches for a message, bytes.
pub const TAG_BYTES: usize = 16;

/// A message of more than 256 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of more than 256 GiB cannot be encrypted")]
pub struct TooLong;

/// A message that nobody sealed with this key, nonce and header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message was not encrypted with this key")]
pub struct Forged;

/// A key, ready to seal and to open.
#[derive(Clone)]
pub struct Seal(ChaCha20Poly1305);

impl Seal {
    /// With this key.
    pub fn new(key: &[u8; KEY_BYTES]) -> Self {
        Self(ChaCha20Poly1305::new(key.into()))
    }

    /// Encrypts `body` in place. The tag vouches for it and for `header`. A nonce must never come again under one key.
    pub fn seal(
        &self,
        nonce: &[u8; NONCE_BYTES],
        header: &[u8],
        body: &mut [u8],
    ) -> Result<[u8; TAG_BYTES], TooLong> {
        let tag = self
            .0
            .encrypt_inout_detached(nonce.into(), header, body.into());
        tag.map(Into::into).map_err(|_| TooLong)
    }

    /// Decrypts `body` in place; leaves it as it is if the tag does not vouch for it and for `header`.
    pub fn open(
        &self,
        nonce: &[u8; NONCE_BYTES],
        header: &[u8],
        body: &mut [u8],
        tag: &[u8; TAG_BYTES],
    ) -> Result<(), Forged> {
        let opened = self
            .0
            .decrypt_inout_detached(nonce.into(), header, body.into(), tag.into());
        opened.map_err(|_| Forged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_is_opened_and_nothing_else() {
        let seal = Seal::new(&[7; KEY_BYTES]);
        let (nonce, mut body) = ([1; NONCE_BYTES], *b"a message");
        let tag = seal.seal(&nonce, b"header", &mut body).unwrap();
        assert_ne!(&body, b"a message");
        let sealed = body;
        for (nonce, header) in [([2; NONCE_BYTES], &b"header"[..]), (nonce, b"leader")] {
            assert_eq!(seal.open(&nonce, header, &mut body, &tag), Err(Forged));
            assert_eq!(body, sealed);
        }
        let other = Seal::new(&[8; KEY_BYTES]);
        assert_eq!(other.open(&nonce, b"header", &mut body, &tag), Err(Forged));
        assert_eq!(seal.open(&nonce, b"header", &mut body, &tag), Ok(()));
        assert_eq!(&body, b"a message");
    }

    /// The example of RFC 8439, §2.8.2.
    #[test]
    fn the_tag_is_that_of_the_rfc() {
        let mut key = [0; KEY_BYTES];
        (0x80..)
            .zip(&mut key)
            .for_each(|(byte, place)| *place = byte);
        let nonce = [7, 0, 0, 0, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47];
        let header = [
            0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7,
        ];
        let mut body = *b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it.";
        let tag = Seal::new(&key).seal(&nonce, &header, &mut body).unwrap();
        assert_eq!(body[..4], [0xd3, 0x1a, 0x8d, 0x34]);
        assert_eq!(
            tag,
            [
                0x1a, 0xe1, 0x0b, 0x59, 0x4f, 0x09, 0xe2, 0x6a, 0x7e, 0x90, 0x2e, 0xcb, 0xd0, 0x60,
                0x06, 0x91
            ]
        );
    }
}
