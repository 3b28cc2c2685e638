//! Stateless proof that a client receives at its address, in the manner of SYN cookies and of RFC 9147, §5.1.

use std::net::{IpAddr, SocketAddr};

use cellbed_link::{Duration, Time};

use crate::wire::Cookie;

use super::keys::CodeKey;

/// A cookie is good for less than that.
pub const COOKIE_LIFE: Duration = Duration::from_secs(10);

/// The key changes as often.
const EPOCH_NS: u64 = 60_000_000_000;

/// Gives and checks cookies. Its keys come from a secret seed, so it stores nothing about the receivers.
pub struct Cookies {
    seed: CodeKey,
}

impl Cookies {
    /// With a random seed, which a server draws when it starts.
    pub fn new(seed: &[u8; 32]) -> Self {
        Self {
            seed: CodeKey::new(seed),
        }
    }

    /// A cookie for a client at this address.
    pub fn give(&self, now: Time, client: SocketAddr) -> Cookie {
        let given_ns = now.as_nanos().max(1);
        let (address, port) = bytes_of(client);
        let code = self
            .key(given_ns)
            .code(&[&address, &port, &given_ns.to_be_bytes()]);
        let mut cookie = Cookie {
            given_ns,
            code: [0; 16],
        };
        cookie.code.copy_from_slice(&code[..16]);
        cookie
    }

    /// Return whether this cookie was given to this address less than [`COOKIE_LIFE`] ago.
    pub fn knows(&self, cookie: &Cookie, now: Time, client: SocketAddr) -> bool {
        let given = Time::from_nanos(cookie.given_ns);
        let (address, port) = bytes_of(client);
        let fresh = given <= now.max(Time::from_nanos(1)) && now.since(given) < COOKIE_LIFE;
        let parts = [&address[..], &port, &cookie.given_ns.to_be_bytes()];
        fresh && self.key(cookie.given_ns).verifies(&parts, &cookie.code)
    }

    fn key(&self, given_ns: u64) -> CodeKey {
        CodeKey::new(
            &self
                .seed
                .code(&[b"cookies", &(given_ns / EPOCH_NS).to_be_bytes()]),
        )
    }
}

/// One form for an IPv4 address, mapped or not.
fn bytes_of(client: SocketAddr) -> ([u8; 16], [u8; 2]) {
    let address = match client.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    (address.octets(), client.port().to_be_bytes())
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
