//! The handshake of Noise (revision 34, pattern NNpsk0): fresh Diffie-Hellman keys of both ends, authenticated by the
//! secret. Also the client's side until there is a session, and cookies: stateless proof that a client receives at its
//! address, like SYN cookies and RFC 9147, §5.1.

use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;

use cellbed_link::{Duration, Time};
use snow::params::NoiseParams;
use snow::{Builder, HandshakeState};

use super::secret::CodeKey;
use super::{Channel, Secret};
use crate::wire::{
    Answer, CODE_BYTES, Claim, Cookie, Field, Hello, Kind, Offer, Refusal, Resumption, Welcome,
};

static PARAMETERS: LazyLock<NoiseParams> = LazyLock::new(|| {
    "Noise_NNpsk0_25519_ChaChaPoly_SHA256"
        .parse()
        .expect("a protocol that snow has")
});

/// Time until the first hello is retransmitted. Each further interval doubles, up to [`REPEAT_AT_MOST`].
const REPEAT_FIRST: Duration = Duration::from_millis(250);
const REPEAT_AT_MOST: Duration = Duration::from_secs(2);

impl Resumption {
    /// Return the proof of a hello with this cookie.
    fn claim(&self, cookie: Option<Cookie>) -> Claim {
        Claim {
            session: self.session,
            proof: CodeKey::new(&self.key).code(&[&Hello::prologue(cookie)]),
        }
    }

    /// Return whether a claim is from the session's client, in a hello with this cookie.
    pub fn verifies(&self, claim: &Claim, cookie: Option<Cookie>) -> bool {
        CodeKey::new(&self.key).verifies(&[&Hello::prologue(cookie)], &claim.proof)
    }
}

/// The keys of a secret. Code keys authenticate hellos, and answers to hellos without a session. A sender without the
/// secret is ignored at the cost of one code, before any Noise. The keys do not depend on the protocol version.
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

    /// Append the code of a hello.
    pub fn sign_hello(&self, hello: &mut Vec<u8>) {
        let code = self.client.code(&[hello]);
        code.put(hello);
    }

    /// Split a hello and its code; `None` if the code is wrong.
    pub fn of_client<'a>(&self, datagram: &'a [u8]) -> Option<(&'a [u8], &'a [u8; CODE_BYTES])> {
        let (message, code) = datagram.split_last_chunk()?;
        let valid = self.client.verifies(&[message], code);
        valid.then_some((message, code))
    }

    /// Append the code of an answer to the hello with code `hello`.
    pub fn sign_answer(&self, answer: &mut Vec<u8>, hello: &[u8; CODE_BYTES]) {
        let code = self.server.code(&[answer, hello]);
        code.put(answer);
    }

    /// Return an answer to `hello` (with code) without the answer's code; `None` if that code is wrong.
    pub fn of_server<'a>(&self, datagram: &'a [u8], hello: &[u8]) -> Option<&'a [u8]> {
        let (message, code) = datagram.split_last_chunk::<CODE_BYTES>()?;
        let hello = hello.last_chunk::<CODE_BYTES>()?;
        let valid = self.server.verifies(&[message, hello], code);
        valid.then_some(message)
    }

    fn begin(&self, cookie: Option<Cookie>) -> Result<(Builder<'_>, Vec<u8>), snow::Error> {
        let builder = Builder::new(PARAMETERS.clone()).psk(0, &self.psk)?;
        Ok((builder, Hello::prologue(cookie)))
    }

    /// Return a fresh hello and the client's end of the handshake; `None` if the system has no random bytes.
    pub fn greet(
        &self,
        cookie: Option<Cookie>,
        resumes: Option<Resumption>,
    ) -> Option<(Handshake, Vec<u8>)> {
        let mut noise = [0; Hello::NOISE_BYTES];
        let claim = resumes.map(|resumption| resumption.claim(cookie));
        let (builder, prologue) = self.begin(cookie).ok()?;
        let mut state = builder.prologue(&prologue).ok()?.build_initiator().ok()?;
        state.write_message(&claim.encode(), &mut noise).ok()?;
        let mut datagram = Hello { cookie, noise }.encode();
        self.sign_hello(&mut datagram);
        Some((Handshake(state), datagram))
    }

    /// Return the server's end of the handshake of a hello, and the client's claim; `None` for a hello made without the
    /// secret.
    pub fn accept(&self, hello: &Hello) -> Option<(Handshake, Option<Claim>)> {
        let mut payload = [0; Claim::BYTES];
        let (builder, prologue) = self.begin(hello.cookie).ok()?;
        let mut state = builder.prologue(&prologue).ok()?.build_responder().ok()?;
        state.read_message(&hello.noise, &mut payload).ok()?;
        Some((Handshake(state), Field::decode(&payload).ok()?))
    }
}

impl Handshake {
    /// Return the datagram with the server's welcome, and the server's end of a new session; `None` if the system has
    /// no random bytes.
    pub fn welcome(mut self, welcome: &Welcome) -> Option<(Vec<u8>, Channel)> {
        let mut datagram = vec![0; Welcome::DATAGRAM_BYTES];
        datagram[..2].copy_from_slice(&Welcome::START);
        let noise = &mut datagram[2..];
        self.0.write_message(&welcome.encode(), noise).ok()?;
        Some((datagram, self.channel(welcome)?))
    }

    /// Read the server's welcome. Other datagrams change no state.
    pub fn read(&mut self, datagram: &[u8]) -> Option<Welcome> {
        let noise = datagram.strip_prefix(&Welcome::START)?;
        let mut payload = [0; Welcome::DATAGRAM_BYTES];
        let length = self.0.read_message(noise, &mut payload).ok()?;
        Welcome::decode(&payload[..length]).ok()
    }

    /// Return this end of the session that the welcome begins.
    pub fn channel(self, welcome: &Welcome) -> Option<Channel> {
        let noise = self.0.into_stateless_transport_mode().ok()?;
        Some(Channel::new(welcome.resumption, noise))
    }
}

/// A client's handshake that has begun. Call [`Opening::step`] at the due times and pass all received datagrams until
/// the handshake is over.
///
/// The handshake has no timeout: a server does not answer a client with another secret, so silence is the only sign.
pub struct Opening {
    keys: HandshakeKeys,
    resumes: Option<Resumption>,
    cookie: Option<Cookie>,
    /// The hello, retransmitted until answered, and its handshake.
    hello: Option<(Handshake, Vec<u8>)>,
    due: Time,
    pause: Duration,
}

/// Progress of a handshake.
pub enum Progress {
    /// Nothing yet: the datagram was unrelated, or requires another [`Opening::step`].
    Waiting,
    /// A new session began.
    Begun(Box<Channel>, Offer),
    /// The resumed session continues; its [`Channel`] stays valid.
    Resumed(Offer),
    /// The server refused.
    Rejected(Refusal),
}

impl Opening {
    /// Begin a handshake, for a new session or to resume one.
    pub fn new(secret: &Secret, resumes: Option<Resumption>, now: Time) -> Self {
        Self {
            keys: HandshakeKeys::new(secret),
            resumes,
            cookie: None,
            hello: None,
            due: now,
            pause: REPEAT_FIRST,
        }
    }

    /// Return the time when [`Opening::step`] has a datagram to send.
    pub fn next_event(&self) -> Time {
        self.due
    }

    /// Append the hello if one is due.
    pub fn step(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        if now < self.due {
            return false;
        }
        self.due = now + self.pause;
        self.pause = (self.pause + self.pause).min(REPEAT_AT_MOST);
        if self.hello.is_none() {
            self.hello = self.keys.greet(self.cookie, self.resumes);
        }
        let Some((_, hello)) = &self.hello else {
            return false; // no random bytes now; retry later
        };
        out.extend_from_slice(hello);
        true
    }

    /// Read a possible answer of the server.
    pub fn receive(&mut self, now: Time, datagram: &[u8]) -> Progress {
        let Some((handshake, hello)) = &mut self.hello else {
            return Progress::Waiting;
        };
        if Kind::of(datagram) == Ok(Kind::Welcome) {
            let welcome = handshake.read(datagram);
            return welcome
                .and_then(|welcome| self.begin(&welcome))
                .unwrap_or(Progress::Waiting);
        }
        match self.keys.of_server(datagram, hello).map(Answer::decode) {
            Some(Ok(Answer::Cookie(_, cookie))) => {
                (self.cookie, self.hello) = (Some(cookie), None);
                (self.due, self.pause) = (now, REPEAT_FIRST);
                Progress::Waiting
            }
            Some(Ok(Answer::Rejection(_, reason))) => Progress::Rejected(reason),
            _ => Progress::Waiting,
        }
    }

    /// Begin or resume the session named in a welcome.
    fn begin(&mut self, welcome: &Welcome) -> Option<Progress> {
        let (handshake, _) = self.hello.take()?;
        match self.resumes {
            Some(resumes) if resumes.session == welcome.resumption.session => {
                Some(Progress::Resumed(welcome.offer))
            }
            Some(_) => None,
            None => {
                let channel = Box::new(handshake.channel(welcome)?);
                Some(Progress::Begun(channel, welcome.offer))
            }
        }
    }
}

/// Lifetime of a cookie.
pub const COOKIE_LIFE: Duration = Duration::from_secs(10);

/// Interval of key changes, ns.
const EPOCH_NS: u64 = 60_000_000_000;

/// Creates and checks cookies. The keys come from a secret seed; nothing is stored per receiver.
pub struct Cookies {
    seed: CodeKey,
}

impl Cookies {
    /// Derive keys from a random seed, drawn at the server's start.
    pub fn new(seed: &[u8; 32]) -> Self {
        Self {
            seed: CodeKey::new(seed),
        }
    }

    /// Return a cookie for a client at this address.
    pub fn give(&self, now: Time, client: SocketAddr) -> Cookie {
        let given_ns = now.as_nanos().max(1);
        let (key, parts) = self.key(given_ns, client);
        let mut code = [0; 16];
        code.copy_from_slice(&key.code(&[&parts])[..16]);
        Cookie { given_ns, code }
    }

    /// Return whether this cookie was given to this address less than [`COOKIE_LIFE`] ago.
    pub fn knows(&self, cookie: &Cookie, now: Time, client: SocketAddr) -> bool {
        let given = Time::from_nanos(cookie.given_ns);
        let fresh = given <= now.max(Time::from_nanos(1)) && now.since(given) < COOKIE_LIFE;
        let (key, parts) = self.key(cookie.given_ns, client);
        fresh && key.verifies(&[&parts], &cookie.code)
    }

    /// Return the key of a time, and the data of its code: the same for an IPv4 address, mapped or not.
    fn key(&self, given_ns: u64, client: SocketAddr) -> (CodeKey, Vec<u8>) {
        let epoch = (given_ns / EPOCH_NS).to_be_bytes();
        let address = match client.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let mut parts = address.octets().to_vec();
        client.port().put(&mut parts);
        given_ns.put(&mut parts);
        (CodeKey::new(&self.seed.code(&[b"cookies", &epoch])), parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_good_for_one_address_and_ten_seconds() {
        let cookies = Cookies::new(&[1; 32]);
        let client: SocketAddr = "192.0.2.1:4000".parse().unwrap();
        let given = Time::from_millis(59_500); // the key changes half a second later
        let cookie = cookies.give(given, client);
        let good = |at, client: &str| cookies.knows(&cookie, at, client.parse().unwrap());
        assert!(good(given, "192.0.2.1:4000"));
        let last = given + COOKIE_LIFE - Duration::from_nanos(1);
        assert!(good(last, "[::ffff:192.0.2.1]:4000"));
        assert!(!good(given + COOKIE_LIFE, "192.0.2.1:4000"));
        assert!(!good(given - Duration::from_nanos(1), "192.0.2.1:4000"));
        assert!(!good(given, "192.0.2.1:4001"));
        assert!(!good(given, "192.0.2.2:4000"));
        assert!(!Cookies::new(&[2; 32]).knows(&cookie, given, client));
        let later = Cookie {
            given_ns: cookie.given_ns + 1,
            ..cookie
        };
        assert!(!cookies.knows(&later, given + Duration::from_millis(1), client));
    }
}
