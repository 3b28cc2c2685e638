//! Clients that know the secret and want what is another's.

use cellbed_link::Duration;
use cellbed_recorder::secure::Progress;
use cellbed_recorder::server::Limits;
use cellbed_recorder::wire::{Refusal, Request};

use crate::world::{ALICE, Client, MALLORY, VICTIM, World, at, handshake};

const ELSEWHERE: &str = "192.0.2.77:7000";

#[test]
fn a_session_goes_on_at_another_address_with_its_reports_still_there() {
    let mut world = World::new(Limits::default());
    let mut alice = Client::open(&mut world, ALICE, 1);
    alice.start(&mut world);
    alice
        .saturate(&mut world, 1_000_000, 1400, Duration::from_secs(100))
        .unwrap();
    for index in 0..5 {
        let probe = alice.probe(1, index, 0, 0);
        world.hears(ALICE, &probe);
    }
    world.wait(Duration::from_secs(10)); // an outage
    let lost = alice.probe(2, 0, 1, 1400);
    assert!(
        world.hears(ELSEWHERE, &lost).is_empty(),
        "no answer to where nobody has proved to be"
    );
    let outcome = handshake(&mut world, ELSEWHERE, 2, Some(&alice.channel)).outcome;
    assert!(matches!(outcome, Progress::Resumed(_)));
    alice.address = ELSEWHERE.into();
    let sent = world.wait(Duration::from_secs(1));
    assert!(
        !sent.is_empty() && sent.iter().all(|(to, _)| *to == at(ELSEWHERE)),
        "saturation has moved, too"
    );
    assert_eq!(alice.arrivals(&mut world).len(), 6);
    assert_eq!((world.server.sessions(), world.counters().resumed), (1, 1));
}

#[test]
fn who_has_the_secret_but_not_the_session_cannot_resume_it() {
    let mut world = World::new(Limits::default());
    let alice = Client::open(&mut world, ALICE, 1);
    // Mallory names Alice's session, with keys of its own.
    let other = &mut World::new(Limits::default());
    let own = Client::open(other, MALLORY, 9).channel;
    let keys = own.keys().clone();
    let pretended = cellbed_recorder::secure::Channel::new(
        cellbed_recorder::secure::End::Client,
        alice.id(),
        keys,
    );
    let outcome = handshake(&mut world, MALLORY, 3, Some(&pretended)).outcome;
    assert!(matches!(outcome, Progress::Waiting), "no answer");
    assert_eq!((world.counters().forged, world.counters().resumed), (1, 0));
    let mut alice = alice;
    alice.start(&mut world); // still answered at her address
}

#[test]
fn a_replayed_resumption_does_not_move_the_session_back() {
    let mut world = World::new(Limits::default());
    let mut alice = Client::open(&mut world, ALICE, 1);
    world.wait(Duration::from_secs(1));
    let first = handshake(&mut world, VICTIM, 2, Some(&alice.channel));
    world.wait(Duration::from_secs(1));
    handshake(&mut world, ELSEWHERE, 3, Some(&alice.channel));
    alice.address = ELSEWHERE.into();
    for _ in 0..10 {
        assert!(world.hears(VICTIM, &first.hello_with_cookie).is_empty());
    }
    assert_eq!(world.counters().replayed, 10);
    alice.start(&mut world);
}

#[test]
fn a_session_that_is_gone_is_told_to_who_proves_its_address_only() {
    let mut world = World::new(Limits::default());
    let alice = Client::open(&mut world, ALICE, 1);
    world.wait(Duration::from_secs(61));
    let outcome = handshake(&mut world, ALICE, 2, Some(&alice.channel)).outcome;
    assert!(matches!(
        outcome,
        Progress::Rejected(Refusal::NoSuchSession)
    ));
}

#[test]
fn reports_and_steering_of_others_runs_are_refused() {
    let mut world = World::new(Limits::default());
    let mut alice = Client::open(&mut world, ALICE, 1);
    alice.start(&mut world);
    let probe = alice.probe(1, 0, 0, 0);
    world.hears(ALICE, &probe);
    let mut mallory = Client::open(&mut world, MALLORY, 2);
    let of = alice.id();
    let attempts = [
        Request::Reports {
            of,
            run: 1,
            from: 1000,
            most: 256,
        },
        Request::Stop { of, run: 1 },
        Request::Start { of, run: 2 },
        Request::Saturate {
            of,
            run: 1,
            rate_bps: 1_000_000,
            bytes: 1400,
            for_ns: u64::MAX,
        },
    ];
    for token in [None, Some([0; 16])] {
        if let Some(token) = token {
            mallory.asks(&mut world, &Request::Group { token }).unwrap();
        }
        for request in &attempts {
            assert_eq!(
                mallory.asks(&mut world, request),
                Err(Refusal::NoSuchRun),
                "{request:?}"
            );
        }
        alice
            .asks(&mut world, &Request::Group { token: [77; 16] })
            .unwrap();
    }
    assert_eq!(
        alice.arrivals(&mut world).len(),
        1,
        "nor has Mallory acknowledged it"
    );
    assert!(world.wait(Duration::from_secs(1)).is_empty());
}

#[test]
fn a_device_of_the_same_client_may_fetch_and_steer_for_another() {
    let mut world = World::new(Limits::default());
    let mut heavy = Client::open(&mut world, ALICE, 1);
    let mut light = Client::open(&mut world, ELSEWHERE, 2);
    let of = heavy.id();
    let token = [77; 16];
    heavy.asks(&mut world, &Request::Group { token }).unwrap();
    light.asks(&mut world, &Request::Group { token }).unwrap();
    heavy.start(&mut world);
    let for_ns = Duration::from_secs(10).as_nanos();
    light
        .asks(
            &mut world,
            &Request::Saturate {
                of,
                run: 1,
                rate_bps: 1_000_000,
                bytes: 1400,
                for_ns,
            },
        )
        .unwrap();
    let sent = world.wait(Duration::from_secs(1));
    assert!(
        !sent.is_empty() && sent.iter().all(|(to, _)| *to == at(ALICE)),
        "to the device whose run it is"
    );
    let probe = heavy.probe(0, 0, 0, 0);
    world.hears(ALICE, &probe);
    let replies = light.ask(
        &mut world,
        &Request::Reports {
            of,
            run: 1,
            from: 0,
            most: 4,
        },
    );
    assert!(
        matches!(&replies[..], [cellbed_recorder::wire::Reply::Report(report)] if report.arrivals.len() == 1)
    );
}

#[test]
fn an_end_of_one_session_is_no_end_of_another() {
    let mut world = World::new(Limits::default());
    let mut alice = Client::open(&mut world, ALICE, 1);
    alice.start(&mut world);
    let mut mallory = Client::open(&mut world, MALLORY, 2);
    mallory.asks(&mut world, &Request::Bye).unwrap();
    let silent = mallory.sealed(&Request::ClockPing { client_ns: 0 });
    assert!(world.hears(MALLORY, &silent).is_empty());
    let probe = alice.probe(1, 0, 3, 1400);
    assert_eq!(world.hears(ALICE, &probe).len(), 3);
}
