//! Stateless proof that a client receives at its address, in the manner of SYN cookies and of RFC 9147, §5.1.

use std::net::{IpAddr, SocketAddr};

use cellbed_link::{Duration, Time};

use crate::wire::{Cookie, Field};

use super::secret::CodeKey;

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

    /// Return the key of a time, and what its code covers: one form for an IPv4 address, mapped or not.
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
