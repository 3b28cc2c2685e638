//! Recorded messages that an attacker sends again.

use cellbed_link::Duration;
use cellbed_recorder::server::Limits;
use cellbed_recorder::wire::Request;

use crate::world::{ALICE, Client, MALLORY, World, bytes_of, started};

#[test]
fn replayed_hellos_begin_no_session_and_disturb_none() {
    let mut world = World::new(Limits::default());
    let mut alice = Client::open(&mut world, ALICE);
    for _ in 0..100 {
        let connection = world.connect(MALLORY);
        let welcome = world.says(connection, &alice.hello).unwrap();
        assert_eq!(welcome.len(), 1, "which Mallory cannot read");
        assert_eq!(world.says(connection, &alice.hello), None);
    }
    alice.start(&mut world);
    let bye = alice.sealed(&Request::Bye);
    assert_eq!(world.says(alice.connection, &bye), None);
    assert_eq!((world.server.sessions(), world.counters().sessions), (0, 1));
}

#[test]
fn a_replayed_request_is_done_once() {
    let mut world = World::new(Limits::default());
    let mut alice = Client::open(&mut world, ALICE);
    let echo = alice.echo(0);
    assert_eq!(world.hears(ALICE, &echo).len(), 1);
    for from in [ALICE, MALLORY] {
        assert!(world.hears(from, &echo).is_empty());
    }
    let start = alice.sealed(&Request::Start { run: 1 });
    assert_eq!(world.says(alice.connection, &start).unwrap().len(), 1);
    assert_eq!(world.says(alice.connection, &start), None);
    assert_eq!(world.counters().replayed, 3);
}

#[test]
fn a_replayed_probe_gets_no_answer_and_cannot_fill_the_memory() {
    let (mut world, mut alice) = started(Limits::default());
    let probe = alice.probe(1, 0, 1000, 1400);
    assert_eq!(world.hears(ALICE, &probe).len(), 1000);
    for _ in 0..1_000 {
        assert_eq!(bytes_of(&world.hears(ALICE, &probe)), 0);
    }
    world.wait(Duration::from_secs(1));
    assert_eq!(world.counters().replayed, 1_000);
    assert_eq!(
        alice.arrivals(&mut world).len(),
        2,
        "as many copies are recorded as there were packets, at most"
    );
}
