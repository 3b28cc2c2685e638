//! Clients without the secret, and floods.

use cellbed_link::{Duration, Time};
use cellbed_recorder::secure::{HandshakeKeys, Opening, Progress, Secret};
use cellbed_recorder::server::Limits;
use cellbed_recorder::wire::{Answer, CODE_BYTES, Field, HELLO_BYTES, Refusal, Request, VERSION};

use crate::world::{ALICE, Client, MALLORY, VICTIM, World, at, bytes_of, greet, handshake, secret};

#[test]
fn no_bytes_of_any_length_and_kind_are_answered() {
    let mut world = World::new(Limits::default());
    let mut datagrams = 0;
    for kind in 0..=255 {
        for length in (0..64).chain([90, 1199, 1200, 1201, 1472]) {
            let datagram: Vec<u8> = (0..length)
                .map(|at| if at == 0 { kind } else { at as u8 })
                .collect();
            assert!(
                world.hears(MALLORY, &datagram).is_empty(),
                "kind {kind}, {length} bytes"
            );
            datagrams += 1;
        }
    }
    let counters = world.counters();
    assert_eq!(counters.sent, 0);
    assert_eq!(
        counters.malformed + counters.forged + counters.strangers + counters.other_versions,
        datagrams
    );
    assert_eq!(world.server.sessions(), 0);
}

#[test]
fn another_secret_is_not_answered() {
    let mut world = World::new(Limits::default());
    let mut opening = Opening::new(&Secret::new([43; 32]), None, world.now);
    for _ in 0..10 {
        world.now = opening.next_event();
        let hello = greet(&mut opening, world.now);
        assert!(world.hears(MALLORY, &hello).is_empty());
    }
    assert_eq!(world.counters().forged, 10);
}

#[test]
fn a_client_of_another_version_learns_it_from_who_knows_the_secret_only() {
    let mut world = World::new(Limits::default());
    let mut opening = Opening::new(&secret(), None, world.now);
    let mut hello = greet(&mut opening, world.now);
    let unsigned = hello.len() - CODE_BYTES;
    hello[1] += 1;
    assert!(world.hears(ALICE, &hello).is_empty(), "its code is wrong");
    hello.truncate(unsigned);
    HandshakeKeys::new(&secret()).sign_hello(&mut hello);
    let answers = world.hears(ALICE, &hello);
    assert!(bytes_of(&answers) * 10 < HELLO_BYTES);
    let answer = HandshakeKeys::new(&secret()).of_server(&answers[0].1, &hello);
    let reason = Refusal::OtherVersion(VERSION.into());
    assert_eq!(
        Answer::decode(answer.unwrap()),
        Ok(Answer::Rejection(VERSION, reason))
    );
    assert_eq!(
        (world.counters().other_versions, world.server.sessions()),
        (2, 0)
    );
}

#[test]
fn a_client_of_a_server_of_another_version_learns_it() {
    let mut opening = Opening::new(&secret(), None, Time::ZERO);
    let hello = greet(&mut opening, Time::ZERO);
    let reason = Refusal::OtherVersion(u64::from(VERSION) + 1);
    let mut answer = Answer::Rejection(VERSION + 1, reason).encode();
    let code = hello.last_chunk().unwrap();
    HandshakeKeys::new(&secret()).sign_answer(&mut answer, code);
    let Progress::Rejected(refusal) = opening.receive(Time::ZERO, &answer) else {
        panic!("not understood")
    };
    assert!(refusal.to_string().contains("version 3 "), "{refusal}");
}

#[test]
fn a_hello_with_any_byte_changed_or_missing_is_not_answered() {
    let mut world = World::new(Limits::default());
    let hello = greet(&mut Opening::new(&secret(), None, world.now), world.now);
    // At least one bit of each byte.
    for bit in (0..hello.len() * 8).step_by(7) {
        let mut changed = hello.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(world.hears(ALICE, &changed).is_empty(), "bit {bit}");
    }
    for length in 0..hello.len() {
        assert!(
            world.hears(ALICE, &hello[..length]).is_empty(),
            "{length} bytes"
        );
    }
    assert_eq!(
        world.hears(ALICE, &hello).len(),
        1,
        "the unchanged one still is"
    );
}

#[test]
fn a_flood_of_hellos_leaves_no_state_and_makes_less_traffic_than_it_is() {
    let mut world = World::new(Limits::default());
    let (mut came, mut went) = (0, 0);
    for number in 0..500u32 {
        let hello = greet(&mut Opening::new(&secret(), None, world.now), world.now);
        let from = format!("10.0.{}.{}:{}", number / 256, number % 256, 1024 + number);
        let answers = world.hears(&from, &hello);
        assert!(answers.iter().all(|(to, _)| *to == at(&from)));
        (came, went) = (came + hello.len(), went + bytes_of(&answers));
    }
    assert_eq!(came, 500 * HELLO_BYTES);
    assert!(went * 10 < came, "{went} bytes out for {came} in");
    assert_eq!(
        (world.server.sessions(), world.server.next_event()),
        (0, None)
    );
    Client::open(&mut world, ALICE); // others are served
}

#[test]
fn a_spoofed_address_gets_at_most_a_cookie_however_the_attacker_goes_on() {
    let mut world = World::new(Limits::default());
    // Mallory has even the secret, sends from the victim's address and cannot read the answers.
    let mut opening = Opening::new(&secret(), None, world.now);
    let (mut came, mut went) = (0, 0);
    for _ in 0..10 {
        world.now = opening.next_event();
        let hello = greet(&mut opening, world.now);
        let answers = world.hears(VICTIM, &hello);
        (came, went) = (came + hello.len(), went + bytes_of(&answers));
    }
    assert!(went * 10 < came);
    // The cookie for Mallory's address is invalid for the victim's.
    let mallory = handshake(&mut world, MALLORY, None);
    assert!(matches!(mallory.outcome, Progress::Begun(..)));
    let answers = world.hears(VICTIM, &mallory.hello_with_cookie);
    assert!(bytes_of(&answers) * 10 < mallory.hello_with_cookie.len());
    assert_eq!(world.server.sessions(), 1);
    // A session does not help: messages from the victim's address get no answer.
    let mut mallory = Client::open(&mut world, MALLORY);
    mallory.start(&mut world);
    let probe = mallory.probe(1, 0, 1000, 1400);
    assert!(world.hears(VICTIM, &probe).is_empty());
    for request in [
        Request::ClockPing { client_ns: 0 },
        mallory.reports(0, 256),
        mallory.saturation(1, 1_000_000_000, 1400, Duration::MAX),
        Request::Bye,
    ] {
        let datagram = mallory.sealed(&request);
        assert!(world.hears(VICTIM, &datagram).is_empty(), "{request:?}");
    }
    assert!(world.wait(Duration::from_secs(1)).is_empty());
    assert_eq!(world.counters().unproved, 5);
    assert_eq!(
        world.server.sessions(),
        2,
        "and the session has not ended by it"
    );
}

#[test]
fn a_cookie_of_another_time_is_answered_by_another_cookie_only() {
    let mut world = World::new(Limits::default());
    let mut opening = Opening::new(&secret(), None, world.now);
    let hello = greet(&mut opening, world.now);
    let answers = world.hears(ALICE, &hello);
    opening.receive(world.now, &answers[0].1);
    world.wait(Duration::from_secs(10));
    let late = greet(&mut opening, world.now);
    let answers = world.hears(ALICE, &late);
    assert_eq!(
        (world.server.sessions(), world.counters().unproved_hellos),
        (0, 2)
    );
    // With the new cookie, a delayed honest client continues.
    assert!(matches!(
        opening.receive(world.now, &answers[0].1),
        Progress::Waiting
    ));
    let again = greet(&mut opening, world.now);
    let answers = world.hears(ALICE, &again);
    assert!(matches!(
        opening.receive(world.now, &answers[0].1),
        Progress::Begun(..)
    ));
}
