//! Addresses of a shell's two ends, chosen so that nested and parallel shells do not collide.
//!
//! A shell of cellbed uses four consecutive addresses of 100.127.0.0/17, in the shared address space that no network
//! outside a provider uses (RFC 6598). A nested shell sees only the pair of the enclosing shell. Nested shells take the
//! pair after the highest visible one, so their pairs differ. A shell of Mahimahi uses the original's addresses, two of
//! 100.64.0.0/24, or a pair of ours if none are free.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::error::{Error, Result};

/// First address of cellbed's pairs.
const PAIRS: u32 = u32::from_be_bytes([100, 127, 0, 0]);
const PAIR_COUNT: u32 = 1 << 13;
/// First address of Mahimahi's pairs.
const MAHIMAHI: u32 = u32::from_be_bytes([100, 64, 0, 0]);
const IPV6: u128 = 0xfd63_656c_6c62_ff00 << 64;
const MAHIMAHI_IPV6: u128 = 0xfd63_656c_6c62_fd00 << 64;

const NO_ADDRESS: &str =
    "no address is free for the shell: all of 100.127.0.0/17 is routed elsewhere";

/// The two ends of a shell's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The outer end.
    pub gateway: Ipv4Addr,
    /// The inner end, where the command is.
    pub inside: Ipv4Addr,
    pub gateway_ipv6: Ipv6Addr,
    pub inside_ipv6: Ipv6Addr,
}

/// An IPv4 network in use: its first address and the length of its prefix.
pub type Network = (Ipv4Addr, u8);

impl Pair {
    fn at(gateway: u32, inside: u32, base: u32, base_ipv6: u128) -> Self {
        Self {
            gateway: gateway.into(),
            inside: inside.into(),
            gateway_ipv6: (base_ipv6 + u128::from(gateway - base)).into(),
            inside_ipv6: (base_ipv6 + u128::from(inside - base)).into(),
        }
    }

    /// Return the pair after the highest one that overlaps a network in use; if none is left, continue from the first.
    pub fn choose(used: &[Network]) -> Result<Self> {
        let taken = numbers(used, PAIRS, PAIR_COUNT * 4, 4);
        let above = taken.last().map_or(0, |highest| highest + 1);
        (above..PAIR_COUNT)
            .chain(0..above)
            .find(|number| taken.binary_search(number).is_err())
            .map(|number| Self::at(PAIRS + 4 * number + 1, PAIRS + 4 * number + 2, PAIRS, IPV6))
            .map_or_else(|| Error::refused(NO_ADDRESS), Ok)
    }

    /// Return the first two free addresses of 100.64.0.0/24; in a nested shell, after the highest in use. If none are
    /// free, use [`Pair::choose`].
    pub fn choose_mahimahi(used: &[Network], nested: bool) -> Result<Self> {
        let taken = numbers(used, MAHIMAHI, 256, 1);
        let first = match taken.last() {
            Some(highest) if nested => highest + 1,
            _ => 1,
        };
        let mut free = (first..255).filter(|number| taken.binary_search(number).is_err());
        match (free.next(), free.next()) {
            (Some(gateway), Some(inside)) => Ok(Self::at(
                MAHIMAHI + gateway,
                MAHIMAHI + inside,
                MAHIMAHI,
                MAHIMAHI_IPV6,
            )),
            _ => Self::choose(used),
        }
    }
}

/// Return the numbers of the blocks of `size` addresses from `first` on that overlap a network in use, in order.
fn numbers(used: &[Network], first: u32, count: u32, size: u32) -> Vec<u32> {
    let last = first + count - 1;
    let mut numbers: Vec<u32> = used
        .iter()
        // A route to the whole shared address space, as of some providers and overlay networks, would leave no choice.
        .filter(|(_, length)| (11..=32).contains(length))
        .flat_map(|(address, length)| {
            let mask = u32::MAX << (32 - length);
            let low = u32::from(*address) & mask;
            let high = low | !mask;
            match (low.max(first), high.min(last)) {
                (low, high) if low <= high => (low - first) / size..(high - first) / size + 1,
                _ => 0..0,
            }
        })
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Return whether an address belongs to a network in use.
pub fn is_in_sight(address: Ipv4Addr, used: &[Network]) -> bool {
    !numbers(used, address.into(), 1, 1).is_empty()
}

/// Return the networks in `/proc/net/fib_trie` without default routes. Format: a line `|-- ADDRESS`, then `/PREFIX
/// SCOPE TYPE` per entry.
pub fn networks_in_sight(trie: &str) -> Vec<Network> {
    let mut networks = Vec::new();
    let mut address = Ipv4Addr::UNSPECIFIED;
    for line in trie.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("|--") => {
                if let Some(Ok(next)) = words.next().map(str::parse) {
                    address = next;
                }
            }
            Some(word) => {
                if let Some(Ok(length)) = word.strip_prefix('/').map(str::parse::<u8>)
                    && (1..=32).contains(&length)
                {
                    networks.push((address, length));
                }
            }
            None => {}
        }
    }
    networks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn network(text: &str) -> Network {
        let (address, length) = text.split_once('/').unwrap();
        (address.parse().unwrap(), length.parse().unwrap())
    }

    fn ends(pair: Pair) -> [String; 2] {
        [pair.gateway.to_string(), pair.inside.to_string()]
    }

    #[test]
    fn pairs_along_a_nest_differ_though_each_level_sees_only_the_one_around_it() {
        let mut pairs = vec![Pair::choose(&[]).unwrap()];
        let mut mahimahi = vec![Pair::choose_mahimahi(&[], false).unwrap()];
        for _ in 0..10 {
            let around = [
                pairs[pairs.len() - 1].inside,
                mahimahi[mahimahi.len() - 1].inside,
            ];
            pairs.push(Pair::choose(&[(around[0], 32)]).unwrap());
            mahimahi.push(Pair::choose_mahimahi(&[(around[1], 32)], true).unwrap());
        }
        let mut all: Vec<_> = pairs
            .iter()
            .chain(&mahimahi)
            .flat_map(|it| [it.gateway, it.inside])
            .collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 44);
        assert_eq!(pairs[0].gateway_ipv6.to_string(), "fd63:656c:6c62:ff00::1");
        assert_eq!(pairs[0].inside_ipv6.to_string(), "fd63:656c:6c62:ff00::2");
        assert_eq!(ends(mahimahi[0]), ["100.64.0.1", "100.64.0.2"]);
        assert_eq!(ends(mahimahi[1]), ["100.64.0.3", "100.64.0.4"]);
    }

    #[test]
    fn what_somebody_uses_is_left_out() {
        // The last pairs are taken: the search continues from the first.
        let holes = ["100.127.0.0/29", "100.127.0.12/30", "100.127.64.0/18"].map(network);
        let pair = Pair::choose(&holes).unwrap();
        assert_eq!(ends(pair), ["100.127.0.9", "100.127.0.10"]);
        assert!(Pair::choose(&[network("100.127.0.0/17")]).is_err());
        let beside = [network("100.64.0.1/32"), network("100.64.0.2/32")];
        let pair = Pair::choose_mahimahi(&beside, false).unwrap();
        assert_eq!(ends(pair), ["100.64.0.3", "100.64.0.4"]);
        let pair = Pair::choose_mahimahi(&[network("100.64.0.0/16")], false).unwrap();
        assert_eq!(ends(pair), ["100.127.0.1", "100.127.0.2"]);
        // A route to all of the shared address space does not exclude its use.
        let pair = Pair::choose(&[network("100.64.0.0/10")]).unwrap();
        assert_eq!(ends(pair), ["100.127.0.1", "100.127.0.2"]);
    }

    #[test]
    fn routes_and_addresses_of_the_kernel_are_read() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     +-- 10.0.0.0/24 2 0 2\n\
                    \x20       |-- 10.0.0.0\n           /24 link UNICAST\n        |-- 10.0.0.5\n           /32 host LOCAL\n";
        let networks = networks_in_sight(trie);
        assert_eq!(networks, [network("10.0.0.0/24"), network("10.0.0.5/32")]);
        assert!(is_in_sight(Ipv4Addr::new(10, 0, 0, 1), &networks));
        assert!(!is_in_sight(Ipv4Addr::new(10, 0, 1, 1), &networks));
    }

    proptest! {
        #[test]
        fn a_chosen_pair_is_free(used in prop::collection::vec((any::<u32>(), 11u8..=32), 0..40), nested: bool) {
            let used: Vec<Network> = used
                .into_iter()
                // Mostly near the pairs.
                .map(|(address, length)| ((PAIRS & 0xffc0_0000 | address & 0x003f_ffff).into(), length))
                .collect();
            for pair in [Pair::choose(&used), Pair::choose_mahimahi(&used, nested)].into_iter().flatten() {
                prop_assert!(!is_in_sight(pair.gateway, &used) && !is_in_sight(pair.inside, &used));
            }
        }
    }
}
