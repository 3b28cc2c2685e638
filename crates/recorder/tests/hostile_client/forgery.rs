//! Messages of a session that an attacker makes or changes.

use cellbed_link::Duration;
use cellbed_recorder::server::Limits;
use cellbed_recorder::wire::{HEADER_BYTES, Kind, PROBE_BYTES, Request, TAG_BYTES};

use crate::world::{ALICE, Client, MALLORY, World, saturation, started};

#[test]
fn any_changed_bit_and_any_missing_byte_of_a_datagram_makes_it_nothing() {
    let (mut world, mut alice) = started(Limits::default());
    let echo = alice.echo(0);
    let probe = alice.probe(1, 0, 1, 1400);
    for (message, vouched) in [
        (&echo, echo.len()),
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
fn a_changed_frame_ends_its_connection_and_its_session() {
    let mut world = World::new(Limits::default());
    let request = saturation(1, 1_000_000, 1400, Duration::MAX);
    for bit in (0..).step_by(5) {
        let mut alice = Client::open(&mut world, ALICE);
        alice.start(&mut world);
        let mut changed = alice.sealed(&request);
        let Some(byte) = changed.get_mut(bit / 8) else {
            break;
        };
        *byte ^= 1 << (bit % 8);
        assert_eq!(world.says(alice.connection, &changed), None, "bit {bit}");
        assert_eq!(world.server.sessions(), 0);
    }
    assert!(world.wait(Duration::from_secs(1)).is_empty());
}

#[test]
fn forged_session_numbers_are_silence() {
    let mut world = World::new(Limits::default());
    let mut alice = Client::open(&mut world, ALICE);
    let mut mallory = Client::open(&mut world, MALLORY);
    // Mallory has a session and puts Alice's session number on its messages.
    let mut forged = mallory.echo(0);
    forged[1..5].copy_from_slice(&alice.id().0.to_be_bytes());
    assert!(world.hears(MALLORY, &forged).is_empty());
    assert!(world.hears(ALICE, &forged).is_empty());
    assert_eq!(world.counters().forged, 2);
    for number in 0..500u32 {
        forged[1..5].copy_from_slice(&(number * 8_589_933).to_be_bytes());
        assert!(world.hears(MALLORY, &forged).is_empty());
    }
    let mut bye = mallory.sealed(&Request::Bye);
    bye[1..5].copy_from_slice(&alice.id().0.to_be_bytes());
    assert_eq!(world.says(mallory.connection, &bye), None);
    assert_eq!(world.server.sessions(), 1, "Mallory's has ended");
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
fn authentic_messages_that_say_nothing_known_end_their_session_only() {
    let mut world = World::new(Limits::default());
    let mut bystander = Client::open(&mut world, ALICE);
    for length in 0..40 {
        for code in [6, 7, 8, 99, 255] {
            let mut alice = Client::open(&mut world, ALICE);
            let mut body = vec![0; length];
            body.iter_mut().take(1).for_each(|first| *first = code);
            let mut frame = Vec::new();
            alice.channel.seal(Kind::Control, &body, &mut frame);
            assert_eq!(world.says(alice.connection, &frame), None);
        }
    }
    assert_eq!(
        (world.counters().malformed, world.server.sessions()),
        (200, 1)
    );
    bystander.start(&mut world);
}

#[test]
fn forgeries_do_not_keep_a_session_alive() {
    let mut world = World::new(Limits::default());
    let mut alice = Client::open(&mut world, ALICE);
    let mut forged = alice.echo(0);
    let replayed = alice.probe(1, 0, 0, 0);
    world.hears(ALICE, &replayed);
    *forged.last_mut().unwrap() ^= 1;
    for _ in 0..61 {
        world.hears(ALICE, &forged);
        world.hears(ALICE, &replayed);
        world.wait(Duration::from_secs(1));
    }
    assert_eq!(world.server.sessions(), 0);
    assert_eq!(world.bytes(alice.connection), None);
}
