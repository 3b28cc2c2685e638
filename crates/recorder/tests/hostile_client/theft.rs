//! Clients with the secret that attack others' sessions.

use cellbed_link::Duration;
use cellbed_recorder::secure::{HandshakeKeys, Progress, Rejected};
use cellbed_recorder::server::Limits;
use cellbed_recorder::wire::{Field, Hello, Refusal, Reply, Request, Resumption, Welcome};

use crate::world::{ALICE, Client, MALLORY, World, at, handshake, secret, started};

const ELSEWHERE: &str = "192.0.2.77:7000";

#[test]
fn a_session_goes_on_at_another_address_with_its_reports_still_there() {
    let (mut world, mut alice) = started(Limits::default());
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
    let outcome = handshake(&mut world, ELSEWHERE, Some(alice.channel.resumption())).outcome;
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
    let alice = Client::open(&mut world, ALICE);
    // Mallory names Alice's session with the key of Mallory's own session.
    let own = Client::open(&mut world, MALLORY).channel;
    let pretended = Resumption {
        session: alice.id(),
        ..own.resumption()
    };
    let outcome = handshake(&mut world, MALLORY, Some(pretended)).outcome;
    assert!(matches!(outcome, Progress::Waiting), "no answer");
    assert_eq!((world.counters().forged, world.counters().resumed), (1, 0));
    let mut alice = alice;
    alice.start(&mut world); // still answered at Alice's address
}

#[test]
fn who_learns_the_secret_later_cannot_open_what_was_recorded() {
    let mut world = World::new(Limits::default());
    let recorded = handshake(&mut world, ALICE, None);
    let Progress::Begun(mut alice, _) = recorded.outcome else {
        panic!("no session")
    };
    let mut sealed = Vec::new();
    alice.seal_control(b"private", &mut sealed);
    // Mallory has the secret and both handshake messages, but no private key.
    let keys = HandshakeKeys::new(&secret());
    let (hello, _) = keys.of_client(&recorded.hello_with_cookie).unwrap();
    let hello = Hello::decode(hello).unwrap();
    let (as_server, claim) = keys.accept(&hello).unwrap();
    assert_eq!(claim, None, "the first message is open to it");
    let (mut as_client, _) = keys.greet(hello.cookie, None).unwrap();
    let welcome = world.hears(ALICE, &recorded.hello_with_cookie);
    assert!(as_client.read(&welcome[0].1).is_none());
    let welcome = Welcome {
        resumption: alice.resumption(),
        offer: Client::open(&mut world, MALLORY).offer,
    };
    let (_, mut pretended) = as_server.welcome(&welcome).unwrap();
    assert_eq!(pretended.open(&sealed), Err(Rejected::Forged));
}

#[test]
fn reports_and_steering_of_others_runs_are_refused() {
    let (mut world, mut alice) = started(Limits::default());
    let probe = alice.probe(1, 0, 0, 0);
    world.hears(ALICE, &probe);
    let mut mallory = Client::open(&mut world, MALLORY);
    let of = alice.id();
    let attempts = [
        alice.reports(1000, 256),
        Request::Stop { of, run: 1 },
        Request::Start { of, run: 2 },
        alice.saturation(1, 1_000_000, 1400, Duration::MAX),
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
    let mut heavy = Client::open(&mut world, ALICE);
    let mut light = Client::open(&mut world, ELSEWHERE);
    let token = [77; 16];
    heavy.asks(&mut world, &Request::Group { token }).unwrap();
    light.asks(&mut world, &Request::Group { token }).unwrap();
    heavy.start(&mut world);
    let saturation = heavy.saturation(1, 1_000_000, 1400, Duration::MAX);
    light.asks(&mut world, &saturation).unwrap();
    let sent = world.wait(Duration::from_secs(1));
    assert!(
        !sent.is_empty() && sent.iter().all(|(to, _)| *to == at(ALICE)),
        "to the device whose run it is"
    );
    let probe = heavy.probe(0, 0, 0, 0);
    world.hears(ALICE, &probe);
    let replies = light.ask(&mut world, &heavy.reports(0, 4));
    assert!(matches!(&replies[..], [Reply::Report(report)] if report.arrivals.iter().count() == 1));
}
