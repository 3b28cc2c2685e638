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
        for _ in 0..5 {
            let answers = world.hears(from, &recorded.hello);
            assert!(bytes_of(&answers) * 10 < recorded.hello.len());
        }
    }
    for _ in 0..5 {
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
    assert!(world.hears(ALICE, &bye).is_empty());
    for _ in 0..40 {
        world.wait(Duration::from_millis(500));
        let answers = world.hears(ALICE, &recorded.hello_with_cookie);
        assert!(bytes_of(&answers) * 5 < recorded.hello_with_cookie.len());
    }
    assert_eq!((world.server.sessions(), world.counters().sessions), (0, 1));
}

#[test]
fn a_replayed_handshake_makes_no_session_and_does_not_move_one_back() {
    let mut world = World::new(Limits::default());
    let begun = handshake(&mut world, ALICE, None);
    let Progress::Begun(channel, _) = begun.outcome else {
        panic!("no session")
    };
    let mut resume = |from| {
        world.wait(Duration::from_secs(1));
        let resumed = handshake(&mut world, from, Some(channel.resumption()));
        assert!(matches!(resumed.outcome, Progress::Resumed(_)));
        resumed.hello_with_cookie
    };
    let (first, last) = (resume(VICTIM), resume(MALLORY));
    for (from, hello) in [(ALICE, &begun.hello_with_cookie), (VICTIM, &first)] {
        assert!(world.hears(from, hello).is_empty());
    }
    assert_eq!(world.hears(MALLORY, &last).len(), 1);
    assert_eq!((world.server.sessions(), world.counters().sessions), (1, 1));
    assert_eq!(world.counters().replayed, 2);
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
    for _ in 0..1_000 {
        assert!(world.hears(ALICE, &probe).is_empty());
    }
    assert_eq!(world.counters().replayed, 1_000);
    assert_eq!(
        alice.arrivals(&mut world).len(),
        2,
        "as many copies are recorded as there were packets, at most"
    );
}

#[test]
fn an_overtaken_change_of_rate_does_not_undo_the_later_one() {
    let (mut world, mut alice) = started(Limits::default());
    let [fast, silence] = [100_000_000, 0].map(|rate| {
        let request = alice.saturation(1, rate, 1400, Duration::MAX);
        alice.sealed(&request)
    });
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
