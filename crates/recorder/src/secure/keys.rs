//! Keys by HKDF-SHA-256 (RFC 5869), codes by HMAC-SHA-256 (RFC 2104).

use cellbed_seal::Seal;
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::wire::{Cookie, Hello, SessionId};

use super::Secret;

const CODE_BYTES: usize = 32;

/// A key for codes.
#[derive(Clone)]
pub(super) struct CodeKey(Hmac<Sha256>);

impl CodeKey {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self(KeyInit::new_from_slice(key).expect("HMAC takes keys of any length"))
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        parts.iter().for_each(|part| mac.update(part));
        mac
    }

    /// The code of the parts one after the other, whose lengths must be known from the context.
    pub(super) fn code(&self, parts: &[&[u8]]) -> [u8; CODE_BYTES] {
        self.mac(parts).finalize().into_bytes().into()
    }

    /// Compares in constant time with the code or its first half or more.
    pub(super) fn verifies(&self, parts: &[&[u8]], code: &[u8]) -> bool {
        code.len() >= CODE_BYTES / 2 && self.mac(parts).verify_truncated_left(code).is_ok()
    }
}

fn expand(extracted: &Hkdf<Sha256>, purpose: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    extracted
        .expand(purpose, &mut key)
        .expect("32 bytes are one block of HKDF");
    key
}

impl Secret {
    /// Bytes that nobody can know without the secret: others for each purpose and number.
    pub(crate) fn derive(&self, purpose: &[u8], number: u64) -> [u8; 32] {
        let extracted = Hkdf::<Sha256>::new(None, self.bytes());
        expand(&extracted, &[purpose, &number.to_be_bytes()].concat())
    }
}

/// Authenticates the messages of the handshake: what the client sends by one key, what the server sends by another.
#[derive(Clone)]
pub struct HandshakeKeys {
    client: CodeKey,
    server: CodeKey,
}

impl HandshakeKeys {
    /// Those of a secret.
    pub fn new(secret: &Secret) -> Self {
        let extracted = Hkdf::<Sha256>::new(None, secret.bytes());
        Self {
            client: CodeKey::new(&expand(
                &extracted,
                b"cellbed-recorder 1 handshake of client",
            )),
            server: CodeKey::new(&expand(
                &extracted,
                b"cellbed-recorder 1 handshake of server",
            )),
        }
    }

    /// Appends the client's code of the message that begins at `start`.
    pub fn sign_as_client(&self, message: &mut Vec<u8>, start: usize) {
        let code = self.client.code(&[&message[start..]]);
        message.extend_from_slice(&code);
    }

    /// Appends the server's code of the message that begins at `start`.
    pub fn sign_as_server(&self, message: &mut Vec<u8>, start: usize) {
        let code = self.server.code(&[&message[start..]]);
        message.extend_from_slice(&code);
    }

    /// The message without its code, if that is the client's.
    pub fn of_client<'a>(&self, datagram: &'a [u8]) -> Option<&'a [u8]> {
        signed(&self.client, datagram)
    }

    /// The message without its code, if that is the server's.
    pub fn of_server<'a>(&self, datagram: &'a [u8]) -> Option<&'a [u8]> {
        signed(&self.server, datagram)
    }
}

fn signed<'a>(key: &CodeKey, datagram: &'a [u8]) -> Option<&'a [u8]> {
    let (message, code) = datagram.split_last_chunk::<CODE_BYTES>()?;
    key.verifies(&[message], code).then_some(message)
}

/// The keys of one session: one a direction, and one that proves to whom the session belongs.
#[derive(Clone)]
pub struct SessionKeys {
    pub(super) uplink: Seal,
    pub(super) downlink: Seal,
    resumption: CodeKey,
}

impl SessionKeys {
    /// From the secret and both ends' random bytes. No two sessions share a key as long as one of the ends draws fresh bytes.
    pub fn new(
        secret: &Secret,
        client_random: &[u8; 32],
        server_random: &[u8; 32],
        session: SessionId,
    ) -> Self {
        let salt = [
            client_random.as_slice(),
            server_random,
            &session.0.to_be_bytes(),
        ]
        .concat();
        let extracted = Hkdf::<Sha256>::new(Some(&salt), secret.bytes());
        Self {
            uplink: Seal::new(&expand(&extracted, b"cellbed-recorder 1 uplink")),
            downlink: Seal::new(&expand(&extracted, b"cellbed-recorder 1 downlink")),
            resumption: CodeKey::new(&expand(&extracted, b"cellbed-recorder 1 resumption")),
        }
    }

    /// What only an end of this session can put into a hello that resumes it.
    pub fn resumption_proof(&self, client_random: &[u8; 32], cookie: Option<&Cookie>) -> [u8; 32] {
        let cookie = cookie.unwrap_or(&Cookie::NONE);
        self.resumption
            .code(&[client_random, &cookie.given_ns.to_be_bytes(), &cookie.code])
    }

    /// Whether the hello comes from an end of this session.
    pub fn proves(&self, hello: &Hello) -> bool {
        let cookie = hello.cookie.unwrap_or(Cookie::NONE);
        let parts = [
            &hello.client_random[..],
            &cookie.given_ns.to_be_bytes(),
            &cookie.code,
        ];
        hello
            .resumes
            .is_some_and(|resumption| self.resumption.verifies(&parts, &resumption.proof))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_of_one_secret_one_direction_and_one_message() {
        let keys = HandshakeKeys::new(&Secret::new([1; 32]));
        let mut datagram = b"before, hello".to_vec();
        keys.sign_as_client(&mut datagram, 8);
        let datagram = &datagram[8..];
        assert_eq!(keys.of_client(datagram), Some(&b"hello"[..]));
        assert_eq!(keys.of_server(datagram), None);
        assert_eq!(
            HandshakeKeys::new(&Secret::new([2; 32])).of_client(datagram),
            None
        );
        for bit in 0..datagram.len() * 8 {
            let mut changed = datagram.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(keys.of_client(&changed), None);
        }
        for length in 0..datagram.len() {
            assert_eq!(keys.of_client(&datagram[..length]), None);
        }
    }
}
