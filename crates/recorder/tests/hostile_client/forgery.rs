//! Messages of a session that an attacker makes or changes.

use cellbed_link::Duration;
use cellbed_recorder::server::Limits;
use cellbed_recorder::wire::{HEADER_BYTES, PROBE_BYTES, Request, TAG_BYTES};

use crate::world::{ALICE, Client, MALLORY, World, started};

#[test]
fn any_changed_bit_and_any_missing_byte_of_a_message_makes_it_nothing() {
    let (mut world, mut alice) = started(Limits::default());
    let request = alice.saturation(1, 1_000_000, 1400, Duration::MAX);
    let request = alice.sealed(&request);
    let probe = alice.probe(1, 0, 1, 1400);
    for (message, vouched) in [
        (&request, request.len()),
        (&probe, HEADER_BYTES + PROBE_BYTES + TAG_BYTES),
    ] {
        for bit in 0..vouched * 8 {
            let mut changed = message.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(world.hears(ALICE, &changed).is_empty(), "bit {bit}");
        }
        for length in 0..vouched {
            assert!(
                world.hears(ALICE, &message[..length]).is_empty(),
                "{length} bytes"
            );
        }
    }
    assert!(
        world.wait(Duration::from_secs(1)).is_empty(),
        "no saturation"
    );
    let counters = world.counters();
    assert_eq!(
        (counters.recorded, counters.answered, counters.replayed),
        (0, 0, 0)
    );
    assert!(
        counters.forged > 700 && counters.strangers >= 64 && counters.malformed > 0,
        "{counters:?}"
    );
    assert_eq!(
        world.hears(ALICE, &probe).len(),
        1,
        "the unchanged one is answered"
    );
}

#[test]
fn forged_session_numbers_are_silence() {
    let mut world = World::new(Limits::default());
    let mut alice = Client::open(&mut world, ALICE);
    let mut mallory = Client::open(&mut world, MALLORY);
    // Mallory has a session and puts Alice's session number on its messages.
    let mut forged = mallory.sealed(&Request::Bye);
    forged[1..5].copy_from_slice(&alice.id().0.to_be_bytes());
    assert!(world.hears(MALLORY, &forged).is_empty());
    assert!(world.hears(ALICE, &forged).is_empty());
    assert_eq!(world.counters().forged, 2);
    for number in 0..500u32 {
        forged[1..5].copy_from_slice(&(number * 8_589_933).to_be_bytes());
        assert!(world.hears(MALLORY, &forged).is_empty());
    }
    assert_eq!(world.server.sessions(), 2);
    alice.start(&mut world);
}

#[test]
fn the_servers_own_messages_sent_back_to_it_are_forged() {
    let (mut world, mut alice) = started(Limits::default());
    let probe = alice.probe(1, 0, 20, 1400);
    let answers = world.hears(ALICE, &probe);
    assert_eq!(answers.len(), 20);
    for (_, answer) in answers {
        assert!(world.hears(ALICE, &answer).is_empty());
    }
    assert_eq!(world.counters().forged, 20);
}

#[test]
fn authentic_messages_that_say_nothing_known_are_malformed() {
    let mut world = World::new(Limits::default());
    let mut alice = Client::open(&mut world, ALICE);
    for length in 0..80 {
        for code in [0, 1, 2, 3, 4, 5, 6, 8, 99, 255] {
            let body: Vec<u8> = (0..length)
                .map(|at| if at == 0 { code } else { 0 })
                .collect();
            let mut datagram = Vec::new();
            alice.channel.seal_control(&body, &mut datagram);
            let answers = world.hears(ALICE, &datagram);
            assert!(answers.len() <= 1, "a request may be right by chance");
        }
    }
    assert!(world.counters().malformed > 700);
}

#[test]
fn forgeries_do_not_keep_a_session_alive() {
    let mut world = World::new(Limits::default());
    let mut alice = Client::open(&mut world, ALICE);
    let mut forged = alice.sealed(&Request::ClockPing { client_ns: 0 });
    let replayed = alice.probe(1, 0, 0, 0);
    world.hears(ALICE, &replayed);
    *forged.last_mut().unwrap() ^= 1;
    for _ in 0..61 {
        world.hears(ALICE, &forged);
        world.hears(ALICE, &replayed);
        world.wait(Duration::from_secs(1));
    }
    assert_eq!(world.server.sessions(), 0);
}
