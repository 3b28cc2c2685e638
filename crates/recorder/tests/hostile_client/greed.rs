//! Clients with the secret that exceed their limits.

use cellbed_link::{BitRate, Bytes, Duration};
use cellbed_recorder::server::Limits;
use cellbed_recorder::wire::{Refusal, Reply, Request, put_frame};

use crate::world::{ALICE, Client, MALLORY, World, bytes_of, saturation, started};

#[test]
fn a_client_is_told_its_limits_and_refused_what_is_over_them() {
    let limits = Limits {
        rate: BitRate(50_000_000),
        packet_bytes: 1400,
        runs: 2,
        ..Limits::default()
    };
    let mut world = World::new(limits);
    let mut alice = Client::open(&mut world, ALICE);
    assert_eq!(
        (alice.offer.rate_bps, alice.offer.answer_packets),
        (50_000_000, 1000)
    );
    alice.start(&mut world);
    let second = Duration::from_secs(1);
    let refused = alice.saturate(&mut world, 50_000_001, 1400, second);
    assert_eq!(refused, Err(Refusal::RateOverLimit(50_000_000)));
    for bytes in [0, 78, 1401, u16::MAX] {
        let refused = alice.saturate(&mut world, 1_000_000, bytes, second);
        assert_eq!(refused, Err(Refusal::PacketOutOfRange(79, 1400)));
    }
    for (request, reply) in [
        (Request::Start { run: 2 }, Ok(())),
        (Request::Start { run: 3 }, Err(Refusal::RunsFull(2))),
        (Request::Stop { run: 2 }, Ok(())),
        (Request::Start { run: 3 }, Ok(())), // a finished run makes room
        (Request::Stop { run: 9 }, Err(Refusal::NoSuchRun)),
    ] {
        assert_eq!(alice.asks(&mut world, &request), reply, "{request:?}");
    }
    assert!(world.wait(second).is_empty());
}

#[test]
fn too_long_an_answer_is_not_given_and_the_client_can_see_it() {
    let (mut world, mut alice) = started(Limits {
        answer_packets: 100,
        packet_bytes: 1400,
        ..Limits::default()
    });
    let wishes = [
        (101, 1400),
        (u16::MAX, 1400),
        (1, 1401),
        (1, u16::MAX),
        (1, 78),
        (1, 0),
    ];
    for (train, (packets, bytes)) in wishes.into_iter().enumerate() {
        let probe = alice.probe(train as u32, 0, packets, bytes);
        assert!(world.hears(ALICE, &probe).is_empty(), "{packets} × {bytes}");
    }
    assert_eq!(world.counters().refused, 6);
    let replies = alice.ask(&mut world, &Request::Reports { run: 1 });
    let [Reply::Report(report), Reply::Done] = &replies[..] else {
        panic!("{replies:?}")
    };
    assert_eq!(
        (report.counts.withheld, report.arrivals.iter().count()),
        (101 + 65_535 + 4, 6)
    );
    let probe = alice.probe(100, 0, 100, 1400);
    assert_eq!(world.hears(ALICE, &probe).len(), 100);
}

#[test]
fn saturations_and_answers_and_reports_together_keep_to_the_rate() {
    let limits = Limits {
        rate: BitRate(8_000_000),
        answer_packets: 50,
        ..Limits::default()
    };
    let mut world = World::new(limits);
    let mut alice = Client::open(&mut world, ALICE);
    for run in 1..=8 {
        alice.asks(&mut world, &Request::Start { run }).unwrap();
        let request = saturation(run, 8_000_000, 1400, Duration::MAX);
        alice.asks(&mut world, &request).unwrap();
    }
    let file = world.connect(ALICE);
    let request = alice.file_request(10_000_000);
    let mut bytes = world
        .says_raw(file, &request)
        .map_or(0, |first| first.len());
    for train in 0..200 {
        let probe = alice.probe(train, 0, 50, 1400);
        bytes += bytes_of(&world.hears(ALICE, &probe));
        let request = alice.sealed(&Request::Reports { run: 1 });
        let mut frame = Vec::new();
        put_frame(&mut frame, |out| out.extend_from_slice(&request));
        world.server.read(world.now, alice.connection, &frame);
        bytes += bytes_of(&world.wait(Duration::from_millis(50)));
        bytes += world.bytes(alice.connection).map_or(0, |it| it.len());
        bytes += world.bytes(file).map_or(0, |it| it.len());
    }
    // 10 s at 1 MB/s, the longest answer at once, a second of overdraft, and the last reports.
    assert!(
        (9_000_000..=10_000_000 + 50 * 1500 + 1_000_000 + 10_000).contains(&bytes),
        "{bytes}"
    );
}

#[test]
fn a_reader_that_reads_nothing_takes_bounded_memory_and_stops_nobody() {
    let (mut world, mut alice) = started(Limits::default());
    for index in 0..20_000 {
        let probe = alice.probe(1, index, 0, 0);
        world.hears(ALICE, &probe);
    }
    let mut frames = Vec::new();
    for _ in 0..1_000 {
        let request = alice.sealed(&Request::Reports { run: 1 });
        put_frame(&mut frames, |out| out.extend_from_slice(&request));
    }
    let file = world.connect(ALICE);
    let request = alice.file_request(50_000_000);
    for piece in frames.chunks(1 << 14) {
        if world.server.reads(alice.connection) {
            world.server.read(world.now, alice.connection, piece);
        }
    }
    let mut frame = Vec::new();
    put_frame(&mut frame, |out| out.extend_from_slice(&request));
    world.server.read(world.now, file, &frame);
    assert!(!world.server.reads(alice.connection) && !world.server.reads(file));
    let memory = world.server.output_memory().0;
    assert!((100_000..800_000).contains(&memory), "{memory}");
    Client::open(&mut world, ALICE).start(&mut world);
    world.wait(Duration::from_secs(61));
    assert_eq!(
        (world.server.sessions(), world.server.output_memory().0),
        (0, 0)
    );
}

#[test]
fn files_are_sent_whole_to_sessions_alone_and_within_limits() {
    let (mut world, mut alice) = started(Limits {
        file_bytes: Bytes(3_000_000),
        ..Limits::default()
    });
    let fetch = |world: &mut World, request: &[u8]| {
        let connection = world.connect(MALLORY);
        let first = world.says_raw(connection, request)?;
        Some(first.len() + world.bytes(connection).map_or(0, |more| more.len()))
    };
    let request = alice.file_request(1_000_000);
    assert_eq!(fetch(&mut world, &request), Some(1_000_000));
    assert_eq!(fetch(&mut world, &request), None, "replayed");
    let mut forged = alice.file_request(1_000);
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(fetch(&mut world, &forged), None);
    let request = alice.file_request(3_000_001);
    assert_eq!(fetch(&mut world, &request), None);
    let (mut other, mut elsewhere) = started(Limits::default());
    let request = elsewhere.file_request(1_000);
    assert_eq!(fetch(&mut world, &request), None, "of a session elsewhere");
    assert_eq!(fetch(&mut other, &request), Some(1_000));
    assert_eq!(world.counters().files, 1);
}

#[test]
fn all_sessions_together_keep_to_the_total_rate() {
    let limits = Limits {
        total_rate: BitRate(8_000_000),
        ..Limits::default()
    };
    let mut world = World::new(limits);
    let mut clients: Vec<_> = (1..=8).map(|_| Client::open(&mut world, ALICE)).collect();
    for client in &mut clients {
        client.start(&mut world);
        client
            .saturate(&mut world, 100_000_000, 1400, Duration::from_secs(100))
            .unwrap();
    }
    let bytes = bytes_of(&world.wait(Duration::from_secs(10)));
    assert!(bytes <= 10_000_000 + 1000 * 1500 + 1_000_000, "{bytes}");
}

#[test]
fn a_session_ends_its_service_when_its_bytes_are_used_up() {
    let (mut world, mut alice) = started(Limits {
        bytes: Bytes(1_000_000),
        ..Limits::default()
    });
    alice
        .saturate(&mut world, 100_000_000, 1400, Duration::from_secs(10))
        .unwrap();
    let bytes = bytes_of(&world.wait(Duration::from_secs(10)));
    assert!((900_000..1_100_000).contains(&bytes), "{bytes}");
    let refused = alice.saturate(&mut world, 1_000_000, 1400, Duration::from_secs(10));
    assert_eq!(refused, Err(Refusal::BytesSpent(1_000_000)));
    let probe = alice.probe(1, 0, 10, 1400);
    assert!(world.hears(ALICE, &probe).is_empty());
}

#[test]
fn time_is_limited_however_lively_a_client_is() {
    let (mut world, mut alice) = started(Limits {
        duration: Duration::from_secs(100),
        ..Limits::default()
    });
    alice
        .saturate(&mut world, 1_000_000, 1400, Duration::MAX)
        .unwrap();
    let probe = alice.probe(1, 0, 1, 1400);
    world.hears(ALICE, &probe);
    for second in 0..159 {
        alice.echoes(&mut world, ALICE, 0);
        let sent = world.wait(Duration::from_secs(1));
        assert_eq!(sent.is_empty(), second >= 100, "second {second}");
    }
    let refused = alice.saturate(&mut world, 1_000_000, 1400, Duration::MAX);
    assert_eq!(refused, Err(Refusal::TimeSpent(100_000_000_000)));
    assert_eq!(
        alice.arrivals(&mut world).len(),
        1,
        "what was recorded can be fetched for a while"
    );
    world.wait(Duration::from_secs(2));
    assert_eq!(world.server.sessions(), 0);
}

#[test]
fn saturation_pauses_when_its_client_falls_silent() {
    let (mut world, mut alice) = started(Limits {
        silence: Duration::from_secs(15),
        ..Limits::default()
    });
    alice
        .saturate(&mut world, 1_120_000, 1400, Duration::MAX)
        .unwrap(); // 100 packets per second
    let sent = world.wait(Duration::from_secs(50)).len();
    assert!((1490..=1510).contains(&sent), "{sent}");
    alice.echoes(&mut world, ALICE, 0);
    let sent = world.wait(Duration::from_secs(1)).len();
    assert!(
        (99..=102).contains(&sent),
        "it goes on without making up for the pause: {sent}"
    );
}

#[test]
fn sessions_are_limited_per_address_and_in_all() {
    let mut world = World::new(Limits {
        sessions: 10,
        sessions_per_address: 3,
        ..Limits::default()
    });
    let open = |world: &mut World, address: String| Client::try_open(world, &address).map(|_| ());
    for port in 0..3 {
        assert_eq!(
            open(&mut world, format!("192.0.2.9:{}", 1000 + port)),
            Ok(())
        );
        assert_eq!(open(&mut world, format!("[2001:db8::{port}]:1000")), Ok(()));
    }
    assert_eq!(
        open(&mut world, "192.0.2.9:2000".into()),
        Err(Refusal::AddressFull(3))
    );
    assert_eq!(
        open(&mut world, "[2001:db8::ffff:1]:2000".into()),
        Err(Refusal::AddressFull(3))
    );
    for host in 0..4 {
        assert_eq!(open(&mut world, format!("192.0.2.{host}:1000")), Ok(()));
    }
    assert_eq!(
        open(&mut world, "192.0.2.100:1000".into()),
        Err(Refusal::SessionsFull(10))
    );
    assert_eq!(world.counters().refused, 3);
    world.wait(Duration::from_secs(60));
    assert_eq!(world.server.sessions(), 0, "who stays away makes room");
    assert_eq!(open(&mut world, "192.0.2.100:1000".into()), Ok(()));
}

#[test]
fn arrivals_that_nobody_fetches_take_bounded_memory_and_the_loss_is_told() {
    let limits = Limits {
        report_bytes: Bytes(8_000),
        ..Limits::default()
    };
    let (mut world, mut alice) = started(limits);
    for index in 0..10_000 {
        let probe = alice.probe(1, index, 0, 0);
        world.hears(ALICE, &probe);
        assert!(world.server.report_memory() <= Bytes(8_000 + 1500));
    }
    let counters = world.counters();
    assert_eq!(counters.recorded + counters.unrecorded, 10_000);
    assert!(counters.unrecorded > 5_000);
    assert_eq!(
        alice.arrivals(&mut world).len() as u64,
        counters.recorded,
        "nothing that was recorded is lost"
    );
    assert_eq!(world.server.report_memory(), Bytes(0));
    let probe = alice.probe(1, 10_000, 0, 0);
    world.hears(ALICE, &probe);
    assert_eq!(alice.arrivals(&mut world).len(), 1, "there is room again");
}
