//! The handshake of Noise (revision 34, pattern NNpsk0): fresh Diffie-Hellman keys of both ends, authenticated by the
//! secret.

use std::sync::LazyLock;

use snow::params::NoiseParams;
use snow::{Builder, HandshakeState};

use super::secret::CodeKey;
use super::{Channel, Secret};
use crate::wire::{CODE_BYTES, Encode, FRAME_BYTES, Kind, NOISE_BYTES, Refusal, Welcome, start};

/// Code of [`Refusal::OtherVersion`] in all versions, before two numbers of 8 and 2 bytes. No reason of this version.
const OTHER_VERSION: u8 = 10;

static PARAMETERS: LazyLock<NoiseParams> = LazyLock::new(|| {
    "Noise_NNpsk0_25519_ChaChaPoly_SHA256"
        .parse()
        .expect("a protocol that snow has")
});

/// The keys of a secret. Code keys authenticate the first frame of a connection, and a rejection of it. A peer without
/// the secret is ignored at the cost of one code, before any Noise. The keys do not depend on the protocol version.
#[derive(Clone)]
pub struct HandshakeKeys {
    client: CodeKey,
    server: CodeKey,
    psk: [u8; 32],
}

/// One end of a handshake that waits for the other end's message.
pub struct Handshake(HandshakeState);

impl HandshakeKeys {
    /// Derive the keys of a secret.
    pub fn new(secret: &Secret) -> Self {
        Self {
            client: CodeKey::new(&secret.derive(b"codes of client", 0)),
            server: CodeKey::new(&secret.derive(b"codes of server", 0)),
            psk: secret.derive(b"pre-shared key of Noise", 0),
        }
    }

    /// Append the code of a first frame.
    pub fn sign(&self, frame: &mut Vec<u8>) {
        let code = self.client.code(&[frame]);
        frame.extend_from_slice(&code);
    }

    /// Split a first frame and its code; `None` if the code is wrong.
    pub fn of_client<'a>(&self, frame: &'a [u8]) -> Option<(&'a [u8], &'a [u8; CODE_BYTES])> {
        let (message, code) = frame.split_last_chunk()?;
        let valid = self.client.verifies(&[message], code);
        valid.then_some((message, code))
    }

    /// Return the rejection, with its code, of the first frame with code `first`.
    pub fn reject(&self, reason: Refusal, first: &[u8; CODE_BYTES]) -> Vec<u8> {
        let mut frame = start(Kind::Rejection).to_vec();
        match reason {
            Refusal::OtherVersion(version) => {
                frame[1] = version;
                frame.push(OTHER_VERSION);
                frame.extend_from_slice(&u64::from(version).to_be_bytes());
                frame.extend_from_slice(&[0; 2]);
            }
            reason => reason.put(&mut frame),
        }
        let code = self.server.code(&[&frame, first]);
        frame.extend_from_slice(&code);
        frame
    }

    /// Return the reason of a rejection of `first` (with code), by a server of any version; `None` for anything else.
    pub fn rejection(&self, frame: &[u8], first: &[u8]) -> Option<Refusal> {
        let (message, code) = frame.split_last_chunk::<CODE_BYTES>()?;
        let first = first.last_chunk::<CODE_BYTES>()?;
        let valid = self.server.verifies(&[message, first], code);
        match message {
            [kind, ..] if !valid || *kind != Kind::Rejection as u8 => None,
            [_, version, OTHER_VERSION, ..] => Some(Refusal::OtherVersion(*version)),
            [_, _, reason @ ..] => Refusal::decode(reason).ok(),
            _ => None,
        }
    }

    fn begin(&self) -> Result<Builder<'_>, snow::Error> {
        const PROLOGUE: [u8; 2] = start(Kind::Hello);
        Builder::new(PARAMETERS.clone())
            .psk(0, &self.psk)?
            .prologue(&PROLOGUE)
    }

    /// Return a fresh hello, with code, and the client's end of the handshake; `None` if the system has no random
    /// bytes.
    pub fn greet(&self) -> Option<(Handshake, Vec<u8>)> {
        let mut frame = start(Kind::Hello).to_vec();
        frame.resize(2 + NOISE_BYTES, 0);
        let mut state = self.begin().ok()?.build_initiator().ok()?;
        state.write_message(&[], &mut frame[2..]).ok()?;
        self.sign(&mut frame);
        Some((Handshake(state), frame))
    }

    /// Return the server's end of the handshake of a hello, without its first two bytes and code; `None` for a hello
    /// made without the secret.
    pub fn accept(&self, noise: &[u8]) -> Option<Handshake> {
        let mut state = self.begin().ok()?.build_responder().ok()?;
        state.read_message(noise, &mut []).ok()?;
        Some(Handshake(state))
    }
}

impl Handshake {
    /// Return the frame with the server's welcome, and the server's end of a new session; `None` if the system has no
    /// random bytes.
    pub fn welcome(mut self, welcome: &Welcome) -> Option<(Vec<u8>, Channel)> {
        let mut frame = vec![0; welcome.frame_bytes()];
        frame[..2].copy_from_slice(&start(Kind::Welcome));
        let noise = &mut frame[2..];
        self.0.write_message(&welcome.encode(), noise).ok()?;
        Some((frame, self.channel(welcome)?))
    }

    /// Read the server's welcome. Other frames change no state.
    pub fn read(&mut self, frame: &[u8]) -> Option<Welcome> {
        let noise = frame.strip_prefix(&start(Kind::Welcome))?;
        let mut payload = [0; FRAME_BYTES];
        let length = self.0.read_message(noise, &mut payload).ok()?;
        Welcome::decode(&payload[..length]).ok()
    }

    /// Return this end of the session that the welcome begins.
    pub fn channel(self, welcome: &Welcome) -> Option<Channel> {
        let noise = self.0.into_stateless_transport_mode().ok()?;
        Some(Channel::new(welcome.session, noise))
    }
}
