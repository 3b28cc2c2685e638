//! Clients with the secret that attack others' sessions.

use cellbed_link::Duration;
use cellbed_recorder::secure::Rejected;
use cellbed_recorder::server::Limits;
use cellbed_recorder::wire::{Kind, Refusal, Request, Welcome};

use crate::world::{ALICE, Client, MALLORY, World, at, keys, saturation, started};

const ELSEWHERE: &str = "192.0.2.77:7000";

#[test]
fn probes_follow_a_client_to_another_address_and_end_with_its_connection() {
    let (mut world, mut alice) = started(Limits::default());
    alice
        .saturate(&mut world, 1_000_000, 1400, Duration::from_secs(100))
        .unwrap();
    world.wait(Duration::from_secs(10)); // an outage
    let lost = alice.probe(2, 0, 1, 1400);
    assert!(
        world.hears(ELSEWHERE, &lost).is_empty(),
        "no answer to where nobody has proved to be"
    );
    assert!(alice.proves(&mut world, ELSEWHERE));
    let sent = world.wait(Duration::from_secs(1));
    assert!(
        !sent.is_empty() && sent.iter().all(|(to, _)| *to == at(ELSEWHERE)),
        "saturation has moved, too"
    );
    assert_eq!(alice.arrivals(&mut world).len(), 1);
    world.server.disconnect(alice.connection);
    assert_eq!(world.server.sessions(), 0);
    assert!(world.wait(Duration::from_secs(1)).is_empty());
}

#[test]
fn who_learns_the_secret_later_cannot_open_what_was_recorded() {
    let mut world = World::new(Limits::default());
    let mut alice = Client::open(&mut world, ALICE);
    let mut sealed = Vec::new();
    alice.channel.seal(Kind::Control, b"private", &mut sealed);
    // Mallory has the secret and both handshake messages, but no private key.
    let connection = world.connect(ALICE);
    let welcome = world.says(connection, &alice.hello).unwrap();
    let (mut as_client, _) = keys().greet().unwrap();
    assert!(as_client.read(&welcome[0]).is_none());
    let welcome = Welcome {
        session: alice.id(),
        offer: alice.offer,
    };
    let as_server = keys().accept(&alice.hello[2..50]).unwrap();
    let (_, mut pretended) = as_server.welcome(&welcome).unwrap();
    assert_eq!(pretended.open(&sealed), Err(Rejected::Forged));
}

#[test]
fn runs_of_others_are_out_of_reach() {
    let (mut world, mut alice) = started(Limits::default());
    let probe = alice.probe(1, 0, 0, 0);
    world.hears(ALICE, &probe);
    let mut mallory = Client::open(&mut world, MALLORY);
    for request in [
        Request::Reports { run: 1 },
        Request::Stop { run: 1 },
        saturation(1, 1_000_000, 1400, Duration::MAX),
    ] {
        assert_eq!(mallory.asks(&mut world, &request), Err(Refusal::NoSuchRun));
    }
    mallory
        .asks(&mut world, &Request::Start { run: 1 })
        .unwrap();
    assert_eq!(mallory.arrivals(&mut world), []);
    assert_eq!(alice.arrivals(&mut world).len(), 1);
}
