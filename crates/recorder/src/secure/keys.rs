//! Codes and derived keys, by HMAC-SHA-256 (RFC 2104).

use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::wire::CODE_BYTES;

use super::Secret;

/// A key for codes.
#[derive(Clone)]
pub(crate) struct CodeKey(Hmac<Sha256>);

impl CodeKey {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        Self(Mac::new_from_slice(key).expect("HMAC takes keys of any length"))
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        parts.iter().for_each(|part| mac.update(part));
        mac
    }

    /// The code of the concatenated parts, whose lengths must be known from the context.
    pub(crate) fn code(&self, parts: &[&[u8]]) -> [u8; CODE_BYTES] {
        self.mac(parts).finalize().into_bytes().into()
    }

    /// Compares in constant time with the code or its first half or more.
    pub(crate) fn verifies(&self, parts: &[&[u8]], code: &[u8]) -> bool {
        code.len() >= CODE_BYTES / 2 && self.mac(parts).verify_truncated_left(code).is_ok()
    }
}

impl Secret {
    /// Bytes that nobody can know without the secret: different ones for each purpose and number.
    pub(crate) fn derive(&self, purpose: &[u8], number: u64) -> [u8; 32] {
        let context = b"cellbed-recorder ";
        CodeKey::new(self.bytes()).code(&[context, purpose, &number.to_be_bytes()])
    }
}

/// The keys of a secret. The code keys authenticate hellos and the answers to them that need no session; a sender
/// without the secret is ignored at the cost of one code, before any Noise. They do not depend on the version of the
/// protocol.
#[derive(Clone)]
pub struct HandshakeKeys {
    client: CodeKey,
    server: CodeKey,
    pub(super) psk: [u8; 32],
}

impl HandshakeKeys {
    /// The keys of a secret.
    pub fn new(secret: &Secret) -> Self {
        Self {
            client: CodeKey::new(&secret.derive(b"codes of client", 0)),
            server: CodeKey::new(&secret.derive(b"codes of server", 0)),
            psk: secret.derive(b"pre-shared key of Noise", 0),
        }
    }

    /// Appends the code of the hello that begins at `start`.
    pub fn sign_hello(&self, hello: &mut Vec<u8>, start: usize) {
        let code = self.client.code(&[&hello[start..]]);
        hello.extend_from_slice(&code);
    }

    /// A hello without its code, and its code, if that is right.
    pub fn of_client<'a>(&self, datagram: &'a [u8]) -> Option<(&'a [u8], &'a [u8; CODE_BYTES])> {
        let (message, code) = datagram.split_last_chunk()?;
        let valid = self.client.verifies(&[message], code);
        valid.then_some((message, code))
    }

    /// Appends the code of the answer that begins at `start` to the hello with this code.
    pub fn sign_answer(&self, answer: &mut Vec<u8>, start: usize, hello: &[u8; CODE_BYTES]) {
        let code = self.server.code(&[&answer[start..], hello]);
        answer.extend_from_slice(&code);
    }

    /// An answer without its code, if that is right and of an answer to this hello, which ends with its own code.
    pub fn of_server<'a>(&self, datagram: &'a [u8], hello: &[u8]) -> Option<&'a [u8]> {
        let (message, code) = datagram.split_last_chunk::<CODE_BYTES>()?;
        let hello = hello.last_chunk::<CODE_BYTES>()?;
        let valid = self.server.verifies(&[message, hello], code);
        valid.then_some(message)
    }
}
