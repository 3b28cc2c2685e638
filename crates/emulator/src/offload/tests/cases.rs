//! Super-packets drawn at random, far more than a property test sees: cut, dropped, marked, damaged, doubled, joined and
//! held against the plain code. Ten million take minutes:
//!
//! `CASES=10000000 cargo test --release -p cellbed-emulator random_super_packets -- --ignored --nocapture`
//!
//! `SEED` chooses other cases.

use cellbed_link::{Bytes, DropReason, Fate, Outcome, Time};

use super::draws::Draws;
use super::{Draft, Flow, build_all, mark, read_all, wire, written};
use crate::offload::VNET_BYTES;
use crate::offload::reference::check_unfinished;
use crate::outbox::Outbox;
use crate::pool::{Pool, Segment};

/// Super-packets, and what became of them.
#[derive(Debug, Default)]
struct Account {
    super_packets: u64,
    segments: u64,
    dropped: u64,
    marked: u64,
    damaged: u64,
    doubled: u64,
    written: u64,
    on_the_wire: u64,
}

fn flow(draws: &mut Draws) -> Flow {
    let (v6, tcp) = (draws.once_in(2), draws.once_in(2));
    let network_options = match draws.below(4) {
        0 if v6 => 8 * (1 + draws.below(10)),
        0 => 4 * (1 + draws.below(10)),
        _ => 0,
    };
    Flow {
        v6,
        tcp,
        network_options,
        tcp_options: 4 * draws.one_of(&[0, 3, 3, draws.0 as usize % 11]),
        ecn: draws.below(4) as u8,
        seed: draws.next(),
    }
}

/// The packets of a flow: mostly alike and one behind the other, so that they can be joined.
fn drafts(draws: &mut Draws) -> Vec<Draft> {
    let usual = match draws.below(4) {
        0 => 1 + draws.below(30),
        1 => 1 + draws.below(1460),
        _ => draws.one_of(&[1448, 1428, 1000]),
    };
    let most = 65_535 - 180;
    let draft = |draws: &mut Draws| {
        let segment = match draws.below(8) {
            0 => 1 + draws.below(1460),
            _ => usual,
        };
        let payload = match draws.below(64) {
            0 => most - draws.below(segment),
            1..4 => draws.below(most.min(50 * segment)),
            4..12 => segment * draws.below(8),
            12..16 => draws.below(segment + 1),
            _ => draws.below(6 * segment),
        };
        let flags = draws.one_of(&[0x10, 0x10, 0x10, 0x10, 0x10, 0x18, 0x90, draws.0 as u8]);
        Draft {
            payload: payload.min(most),
            segment,
            flags,
            gap: draws.one_of(&[0, 0, 0, 0, 0, 0, 1, draws.0 as u16]),
            window: draws.one_of(&[500, 500, 500, 501]),
            twist: match draws.below(8) {
                0 => draws.next(),
                _ => 0,
            },
        }
    };
    (0..1 + draws.below(6)).map(|_| draft(draws)).collect()
}

/// What a direction says of a segment.
fn outcome(
    segment: Segment,
    fate: Fate,
    marked: bool,
    corrupt_bit: Option<u32>,
) -> Outcome<Segment> {
    Outcome {
        packet: segment,
        size: Bytes(0),
        arrived: Time::ZERO,
        released: Time::ZERO,
        departed: Time::ZERO,
        fate,
        marked,
        corrupt_bit,
    }
}

/// The packets of one or two flows through the code under test and the plain code.
fn try_some(draws: &mut Draws, pool: &mut Pool, account: &mut Account) {
    let one = flow(draws);
    let mut packets = build_all(one, &drafts(draws));
    if draws.once_in(4) {
        let other = flow(draws);
        for packet in build_all(other, &drafts(draws)) {
            packets.insert(draws.below(packets.len() + 1), packet);
        }
    }
    account.super_packets += packets.len() as u64;
    let segments = read_all(pool, &packets);
    let whole: Vec<Vec<u8>> = packets.iter().flat_map(|packet| wire(packet)).collect();
    assert_eq!(segments.len(), whole.len());
    account.segments += segments.len() as u64;

    // How often something happens differs, so that there are short runs and long ones.
    let rarity = draws.one_of(&[4, 20, 200, usize::MAX]);
    let mut outbox = Outbox::default();
    let (mut expected, mut out) = (Vec::new(), Vec::new());
    for (segment, mut packet) in segments.into_iter().zip(whole) {
        if draws.once_in(rarity) {
            pool.settle(&outcome(
                segment,
                Fate::Dropped(DropReason::Loss),
                false,
                None,
            ));
            account.dropped += 1;
            continue;
        }
        let marked = draws.once_in(rarity);
        if marked {
            mark(&mut packet);
            account.marked += 1;
        }
        let bit = draws.once_in(rarity).then(|| draws.below(8 * packet.len()));
        let copies = if draws.once_in(rarity) { 2 } else { 1 };
        if copies == 2 {
            pool.settle(&outcome(segment, Fate::Doubled, false, None));
            account.doubled += 1;
        }
        for copy in 0..copies {
            let bit = bit.filter(|_| copy == 0);
            let gone = outcome(segment, Fate::Delivered, marked, bit.map(|bit| bit as u32));
            let left = pool.settle(&gone).expect("it was delivered");
            let mut packet = packet.clone();
            if let Some(bit) = bit {
                packet[bit / 8] ^= 0x80 >> (bit % 8);
                account.damaged += 1;
            }
            expected.push(packet);
            outbox.push(left, pool);
            if draws.once_in(rarity) {
                out.extend(written(&mut outbox, pool));
            }
        }
    }
    out.extend(written(&mut outbox, pool));
    account.written += out.len() as u64;
    account.on_the_wire += expected.len() as u64;
    out.iter().for_each(|packet| check_unfinished(packet));
    let mut expected = expected.into_iter();
    for packet in out.iter().flat_map(|packet| wire(packet)) {
        assert_eq!(Some(packet), expected.next());
    }
    assert_eq!(None, expected.next());
    assert!(packets.iter().all(|packet| packet.len() > VNET_BYTES));
}

fn try_until(super_packets: u64, seed: u64) -> Account {
    let (mut draws, mut account) = (Draws(seed), Account::default());
    // Room for one batch: a slot that is not given back is noticed.
    let mut pool = Pool::new(1 << 26);
    while account.super_packets < super_packets {
        let before = draws.clone();
        let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            try_some(&mut draws, &mut pool, &mut account);
        }));
        assert!(tried.is_ok(), "the packets drawn from {before:?}");
    }
    account
}

#[test]
fn a_few_super_packets() {
    let account = try_until(3_000, 1);
    assert!(account.written < account.on_the_wire);
    for happened in [
        account.dropped,
        account.marked,
        account.damaged,
        account.doubled,
    ] {
        assert!(happened > 100, "{account:?}");
    }
}

#[test]
#[ignore = "takes minutes"]
fn random_super_packets() {
    let number = |name: &str, usual| match std::env::var(name) {
        Ok(value) => value.parse().expect("a whole number"),
        Err(_) => usual,
    };
    let account = try_until(number("CASES", 1_000_000), number("SEED", 2));
    println!("all as the plain code has it: {account:?}");
}
