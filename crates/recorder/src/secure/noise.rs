//! The handshake of Noise (revision 34, pattern NNpsk0): fresh Diffie-Hellman keys of both ends, authenticated by the
//! secret.

use std::sync::LazyLock;

use snow::params::NoiseParams;
use snow::{Builder, HandshakeState};

use crate::wire::{Claim, Cookie, HELLO_BYTES, Hello, Kind, SessionId, VERSION, Welcome};

use super::keys::CodeKey;
use super::{Channel, HandshakeKeys};

static PARAMETERS: LazyLock<NoiseParams> = LazyLock::new(|| {
    "Noise_NNpsk0_25519_ChaChaPoly_SHA256"
        .parse()
        .expect("a protocol that snow has")
});

/// State that resumes a session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Resumption {
    /// Identifier of the session.
    pub session: SessionId,
    /// Of its welcome.
    pub key: [u8; 32],
}

impl Resumption {
    /// The proof of a hello with this cookie.
    fn claim(&self, cookie: Option<Cookie>) -> Claim {
        Claim {
            session: self.session,
            proof: CodeKey::new(&self.key).code(&[&Hello::prologue(cookie)]),
        }
    }

    /// Return whether a claim comes from the session's client, in a hello with this cookie.
    pub fn verifies(&self, claim: &Claim, cookie: Option<Cookie>) -> bool {
        CodeKey::new(&self.key).verifies(&[&Hello::prologue(cookie)], &claim.proof)
    }
}

/// One end of a handshake that waits for its next message.
pub struct Handshake(HandshakeState);

impl HandshakeKeys {
    fn begin(
        &self,
        cookie: Option<Cookie>,
        initiator: bool,
    ) -> Result<HandshakeState, snow::Error> {
        let prologue = Hello::prologue(cookie);
        let builder = Builder::new(PARAMETERS.clone())
            .psk(0, &self.psk)?
            .prologue(&prologue)?;
        if initiator {
            builder.build_initiator()
        } else {
            builder.build_responder()
        }
    }

    /// A fresh hello, and the client's end of its handshake. `None` if the system has no random bytes.
    pub fn greet(
        &self,
        cookie: Option<Cookie>,
        resumes: Option<&Resumption>,
    ) -> Option<(Handshake, Vec<u8>)> {
        let mut hello = Hello {
            cookie,
            noise: [0; Hello::NOISE_BYTES],
        };
        let claim = Claim::to_bytes(resumes.map(|resumption| resumption.claim(cookie)));
        let mut state = self.begin(cookie, true).ok()?;
        state.write_message(&claim, &mut hello.noise).ok()?;
        let mut datagram = Vec::with_capacity(HELLO_BYTES);
        hello.encode(&mut datagram);
        self.sign_hello(&mut datagram, 0);
        Some((Handshake(state), datagram))
    }

    /// The server's end of the handshake of a hello, and what the client claims. `None` for a hello that the secret did
    /// not make.
    pub fn accept(&self, hello: &Hello) -> Option<(Handshake, Option<Claim>)> {
        let (mut state, mut payload) = (self.begin(hello.cookie, false).ok()?, [0; Claim::BYTES]);
        state.read_message(&hello.noise, &mut payload).ok()?;
        Some((Handshake(state), Claim::decode(&payload).ok()?))
    }
}

impl Handshake {
    /// The datagram with the server's welcome, and the server's end of a new session. `None` if the system has no
    /// random bytes.
    pub fn welcome(mut self, welcome: &Welcome) -> Option<(Vec<u8>, Channel)> {
        let (mut payload, mut datagram) = (Vec::new(), vec![0; Welcome::DATAGRAM_BYTES]);
        welcome.encode(&mut payload);
        datagram[..2].copy_from_slice(&[Kind::Welcome as u8, VERSION]);
        self.0.write_message(&payload, &mut datagram[2..]).ok()?;
        Some((datagram, self.channel(welcome)?))
    }

    /// Reads the server's welcome. A datagram that is none changes nothing.
    pub fn read(&mut self, datagram: &[u8]) -> Option<Welcome> {
        let (noise, mut payload) = (Welcome::noise(datagram).ok()?, [0; Welcome::DATAGRAM_BYTES]);
        let length = self.0.read_message(noise, &mut payload).ok()?;
        Welcome::decode(&payload[..length]).ok()
    }

    /// This end of the session that the welcome begins.
    pub fn channel(self, welcome: &Welcome) -> Option<Channel> {
        let resumption = Resumption {
            session: welcome.session,
            key: welcome.resumption,
        };
        let noise = self.0.into_stateless_transport_mode().ok()?;
        Some(Channel::new(resumption, noise))
    }
}
