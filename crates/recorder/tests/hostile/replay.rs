//! Recorded messages that an attacker sends again.

use cellbed_link::Duration;
use cellbed_recorder::secure::Progress;
use cellbed_recorder::server::Limits;
use cellbed_recorder::wire::{Field, Request};

use crate::world::{ALICE, Client, MALLORY, VICTIM, World, at, bytes_of, handshake, started};

#[test]
fn replayed_hellos_make_no_second_session_even_after_the_first_said_goodbye() {
    let mut world = World::new(Limits::default());
    let recorded = handshake(&mut world, ALICE, None);
    let Progress::Begun(channel, _) = recorded.outcome else {
        panic!("no session")
    };
    for from in [ALICE, VICTIM] {
        for _ in 0..50 {
            let answers = world.hears(from, &recorded.hello);
            assert!(bytes_of(&answers) * 10 < recorded.hello.len());
        }
    }
    for _ in 0..50 {
        // The session's client gets the welcome again: the first may have been lost.
        let answers = world.hears(ALICE, &recorded.hello_with_cookie);
        assert!(bytes_of(&answers) * 5 < recorded.hello_with_cookie.len());
        let answers = world.hears(VICTIM, &recorded.hello_with_cookie);
        assert!(bytes_of(&answers) * 10 < recorded.hello_with_cookie.len());
    }
    assert_eq!((world.server.sessions(), world.counters().sessions), (1, 1));

    let (mut channel, mut bye) = (*channel, Vec::new());
    channel.seal_control(&Request::Bye.encode(), &mut bye);
    world.hears(ALICE, &bye);
    for _ in 0..40 {
        world.wait(Duration::from_millis(500));
        let answers = world.hears(ALICE, &recorded.hello_with_cookie);
        assert!(bytes_of(&answers) * 5 < recorded.hello_with_cookie.len());
    }
    assert_eq!((world.server.sessions(), world.counters().sessions), (0, 1));
}

#[test]
fn a_replay_of_the_first_handshake_makes_no_session_after_a_later_one() {
    let mut world = World::new(Limits::default());
    let first = handshake(&mut world, ALICE, None);
    let Progress::Begun(channel, _) = first.outcome else {
        panic!("no session")
    };
    world.wait(Duration::from_secs(1));
    let second = handshake(&mut world, ALICE, Some(channel.resumption()));
    assert!(matches!(second.outcome, Progress::Resumed(_)));
    assert!(world.hears(ALICE, &first.hello_with_cookie).is_empty());
    assert_eq!(world.hears(ALICE, &second.hello_with_cookie).len(), 1);
    assert_eq!((world.server.sessions(), world.counters().sessions), (1, 1));
    assert_eq!(world.counters().replayed, 1);
}

#[test]
fn a_replayed_request_is_done_once() {
    let mut world = World::new(Limits::default());
    let mut alice = Client::open(&mut world, ALICE);
    let ping = alice.sealed(&Request::ClockPing { client_ns: 1 });
    let of = alice.id();
    let start = alice.sealed(&Request::Start { of, run: 1 });
    assert_eq!(world.hears(ALICE, &ping).len(), 1);
    assert_eq!(world.hears(ALICE, &start).len(), 1);
    for from in [ALICE, MALLORY] {
        for message in [&ping, &start] {
            assert!(world.hears(from, message).is_empty());
        }
    }
    assert_eq!(world.counters().replayed, 4);
}

#[test]
fn a_replayed_probe_gets_no_answer_and_cannot_fill_the_memory() {
    let (mut world, mut alice) = started(Limits::default());
    let probe = alice.probe(1, 0, 1000, 1400);
    assert_eq!(world.hears(ALICE, &probe).len(), 1000);
    for _ in 0..10_000 {
        assert!(world.hears(ALICE, &probe).is_empty());
    }
    assert_eq!(world.counters().replayed, 10_000);
    assert_eq!(
        alice.arrivals(&mut world).len(),
        2,
        "as many copies are recorded as there were packets, at most"
    );
}

#[test]
fn copies_by_the_network_are_recorded_as_such() {
    let (mut world, mut alice) = started(Limits::default());
    let probes: Vec<_> = (0..10).map(|index| alice.probe(1, index, 1, 100)).collect();
    let mut answers = 0;
    for index in [0, 1, 2, 2, 4, 3, 5, 9, 9, 6] {
        answers += world.hears(ALICE, &probes[index]).len();
    }
    assert_eq!(answers, 1, "one train, one answer");
    let arrivals: Vec<_> = alice
        .arrivals(&mut world)
        .iter()
        .map(|arrival| arrival.index)
        .collect();
    assert_eq!(arrivals, [0, 1, 2, 2, 4, 3, 5, 9, 9, 6]);
}

#[test]
fn reordered_messages_are_all_accepted_and_ancient_ones_are_not() {
    let (mut world, mut alice) = started(Limits::default());
    let ancient = alice.probe(1, 0, 1, 1400);
    let mut probes: Vec<_> = (0..9000).map(|index| alice.probe(2, index, 0, 0)).collect();
    probes.chunks_mut(100).for_each(<[_]>::reverse);
    for probe in &probes {
        world.hears(ALICE, probe);
    }
    assert_eq!(
        (world.counters().recorded, world.counters().replayed),
        (9000, 0)
    );
    assert!(world.hears(ALICE, &ancient).is_empty());
    assert_eq!(
        (world.counters().recorded, world.counters().replayed),
        (9000, 1)
    );
}

#[test]
fn an_overtaken_change_of_rate_does_not_undo_the_later_one() {
    let (mut world, mut alice) = started(Limits::default());
    let fast = alice.sealed(&alice.saturation(100_000_000));
    let silence = alice.sealed(&alice.saturation(0));
    assert_eq!(world.hears(ALICE, &silence).len(), 1);
    assert_eq!(
        world.hears(ALICE, &fast).len(),
        1,
        "it is answered, for it is not wrong, only late"
    );
    assert!(
        world
            .wait(Duration::from_secs(1))
            .iter()
            .all(|(to, _)| *to != at(ALICE))
    );
}
