//! Clients without the secret, and floods.

use cellbed_link::Duration;
use cellbed_recorder::secure::{HandshakeKeys, Secret};
use cellbed_recorder::server::Limits;
use cellbed_recorder::wire::{
    CODE_BYTES, OLD_HELLO_BYTES, Refusal, Request, SessionId, VERSION, put_frame,
};

use crate::world::{ALICE, Client, MALLORY, VICTIM, World, bytes_of, keys, saturation};

#[test]
fn no_bytes_of_any_length_and_kind_are_answered() {
    let mut world = World::new(Limits::default());
    let mut messages = 0;
    for kind in 0..=255 {
        for length in (0..64).chain([90, 1199, 1200, 1201, 1472]) {
            let message: Vec<u8> = (0..length)
                .map(|at| if at == 0 { kind } else { at as u8 })
                .collect();
            assert!(
                world.hears(MALLORY, &message).is_empty(),
                "kind {kind}, {length} bytes"
            );
            let connection = world.connect(MALLORY);
            assert_eq!(
                world.says(connection, &message),
                None,
                "kind {kind}, {length} bytes"
            );
            messages += 2;
        }
    }
    let counters = world.counters();
    assert_eq!(
        counters.malformed + counters.forged + counters.strangers,
        messages
    );
    assert_eq!((world.server.sessions(), counters.sent), (0, 0));
}

#[test]
fn another_secret_is_not_answered() {
    let mut world = World::new(Limits::default());
    let (_, hello) = HandshakeKeys::new(&Secret::new([43; 32])).greet().unwrap();
    let connection = world.connect(MALLORY);
    assert_eq!(world.says(connection, &hello), None);
    assert_eq!(world.counters().forged, 1);
}

#[test]
fn a_client_of_another_version_learns_it_from_who_knows_the_secret_only() {
    let mut world = World::new(Limits::default());
    let reason = Refusal::OtherVersion(VERSION);
    let (_, mut hello) = keys().greet().unwrap();
    let unsigned = hello.len() - CODE_BYTES;
    hello[1] += 1;
    let connection = world.connect(ALICE);
    assert_eq!(world.says(connection, &hello), None, "its code is wrong");
    hello.truncate(unsigned);
    keys().sign(&mut hello);
    let connection = world.connect(ALICE);
    let answers = world.says(connection, &hello).unwrap();
    assert_eq!(keys().rejection(&answers[0], &hello), Some(reason));
    assert_eq!(world.bytes(connection), None, "closed");
    // A client of version 2 begins over UDP.
    let mut old = vec![0; OLD_HELLO_BYTES - CODE_BYTES];
    old[..2].copy_from_slice(&[1, 2]);
    keys().sign(&mut old);
    let answers = world.hears(ALICE, &old);
    assert!(bytes_of(&answers) * 10 < OLD_HELLO_BYTES);
    assert_eq!(keys().rejection(&answers[0].1, &old), Some(reason));
    assert!(world.hears(ALICE, &old[1..]).is_empty());
    assert_eq!(
        (world.counters().other_versions, world.server.sessions()),
        (2, 0)
    );
}

#[test]
fn a_client_of_a_server_of_another_version_learns_it() {
    let (_, hello) = keys().greet().unwrap();
    let newer = Refusal::OtherVersion(VERSION + 1);
    let code = hello.last_chunk().unwrap();
    let answer = keys().reject(newer, code);
    let refusal = keys().rejection(&answer, &hello).unwrap();
    assert!(
        refusal
            .to_string()
            .contains(&format!("version {} ", VERSION + 1)),
        "{refusal}"
    );
}

#[test]
fn a_hello_with_any_byte_changed_or_missing_is_not_answered() {
    let mut world = World::new(Limits::default());
    let (_, hello) = keys().greet().unwrap();
    let mut answer = |hello: &[u8]| {
        let connection = world.connect(ALICE);
        world.says(connection, hello).map(|answers| answers.len())
    };
    for bit in 0..hello.len() * 8 {
        let mut changed = hello.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(answer(&changed), None, "bit {bit}");
    }
    for length in 0..hello.len() {
        assert_eq!(answer(&hello[..length]), None, "{length} bytes");
    }
    assert_eq!(answer(&hello), Some(1), "the unchanged one still is");
}

#[test]
fn frames_of_impossible_lengths_end_a_connection() {
    for start in [[0, 0], [8, 1], [255, 255]] {
        let mut world = World::new(Limits::default());
        let connection = world.connect(MALLORY);
        world.server.read(world.now, connection, &start);
        assert_eq!(world.bytes(connection), None);
    }
}

#[test]
fn idle_strangers_are_few_and_lose_their_connections_and_others_are_served() {
    let mut world = World::new(Limits::default());
    let mut connections = Vec::new();
    for number in 0..200u32 {
        let from = format!("10.0.{}.{}:1024", number % 3, number % 100);
        connections.push(world.connect(&from));
        let half = [0, 90, 1]; // a frame that never ends
        world
            .server
            .read(world.now, connections[number as usize], &half);
    }
    let open = |world: &mut World| {
        let is_open = |it: &&SessionId| world.bytes(**it).is_some();
        connections.iter().filter(is_open).count()
    };
    let limits = Limits::default();
    assert_eq!(open(&mut world), limits.strangers as usize);
    Client::open(&mut world, ALICE);
    for _ in 0..50 {
        world.connect(VICTIM);
    }
    Client::open(&mut world, VICTIM);
    world.wait(limits.handshake);
    assert_eq!(open(&mut world), 0);
    assert_eq!(world.server.sessions(), 2);
}

#[test]
fn a_spoofed_address_gets_no_more_than_was_sent_from_it() {
    let mut world = World::new(Limits::default());
    // Mallory has a session, sends from the victim's address and cannot read the answers.
    let mut mallory = Client::open(&mut world, MALLORY);
    mallory.start(&mut world);
    let (mut came, mut went) = (0, 0);
    for _ in 0..10 {
        let echo = mallory.echo(0);
        (came, went) = (
            came + echo.len() + 28,
            went + bytes_of(&world.hears(VICTIM, &echo)),
        );
    }
    assert_eq!(came, went);
    let own = mallory.echoes(&mut world, MALLORY, 0).challenge;
    assert!(
        !mallory.echoes(&mut world, VICTIM, own).proved,
        "of another address"
    );
    let probe = mallory.probe(1, 0, 1000, 1400);
    assert!(world.hears(VICTIM, &probe).is_empty());
    let request = saturation(1, 1_000_000, 1400, Duration::MAX);
    mallory.asks(&mut world, &request).unwrap();
    let sent = world.wait(Duration::from_secs(1));
    assert!(sent.iter().all(|(to, _)| *to == MALLORY.parse().unwrap()));
    assert_eq!(world.counters().unproved, 1);
}

#[test]
fn a_former_challenge_proves_nothing() {
    let mut world = World::new(Limits::default());
    let mut alice = Client::open(&mut world, ALICE);
    let former = alice.echoes(&mut world, VICTIM, 0).challenge;
    alice.echoes(&mut world, MALLORY, 0);
    let answer = alice.echoes(&mut world, VICTIM, former);
    assert!(!answer.proved);
    assert!(alice.echoes(&mut world, VICTIM, answer.challenge).proved);
}

#[test]
fn a_session_that_has_not_proved_where_it_receives_gets_no_saturation() {
    let mut world = World::new(Limits::default());
    let connection = world.connect(ALICE);
    let (mut handshake, hello) = keys().greet().unwrap();
    let answers = world.says(connection, &hello).unwrap();
    let welcome = handshake.read(&answers[0]).unwrap();
    let mut channel = handshake.channel(&welcome).unwrap();
    let mut frames = Vec::new();
    for request in [
        Request::Check,
        Request::Start { run: 1 },
        saturation(1, 1_000_000, 1400, Duration::MAX),
    ] {
        use cellbed_recorder::wire::{Encode, Kind};
        put_frame(&mut frames, |out| {
            channel.seal(Kind::Control, &request.encode(), out);
        });
    }
    world.server.read(world.now, connection, &frames);
    assert_eq!(world.counters().refused, 0);
    assert!(world.wait(Duration::from_secs(1)).is_empty());
}
