//! Attacks over real sockets of the loopback.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration as StdDuration;

use cellbed_link::{Duration, Time};
use cellbed_recorder::secure::{Channel, Filler, Opening, Progress};
use cellbed_recorder::server::{Limits, Serving, Statistics};
use cellbed_recorder::socket::{Local, now};
use cellbed_recorder::wire::{Field, Kind, Probe, Reply, Request};

use crate::world::secret;

/// Serves during `attack`; returns the statistics.
fn serving(local: &str, attack: impl FnOnce(SocketAddr)) -> Statistics {
    let local = Local {
        address: local.parse().unwrap(),
        interface: None,
    };
    let mut server = Serving::bind(&local, &secret(), Limits::default()).unwrap();
    let (address, stopped) = (server.local(), AtomicBool::new(false));
    thread::scope(|scope| {
        let stop = || stopped.load(Ordering::Relaxed);
        let thread = scope.spawn(move || server.run(|_| (), stop).unwrap());
        // A failing attack must not leave the server running.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| attack(address)));
        stopped.store(true, Ordering::Relaxed);
        let statistics = thread.join().unwrap();
        assert!(statistics.to_string().contains("Mbit/s"));
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        statistics
    })
}

fn client(server: SocketAddr) -> UdpSocket {
    let any = if server.is_ipv4() {
        "127.0.0.1:0"
    } else {
        "[::1]:0"
    };
    let socket = UdpSocket::bind(any).unwrap();
    socket.connect(server).unwrap();
    socket
        .set_read_timeout(Some(StdDuration::from_millis(100)))
        .unwrap();
    socket
}

fn heard(socket: &UdpSocket) -> Option<Vec<u8>> {
    let mut buffer = [0; 2048];
    socket
        .recv(&mut buffer)
        .ok()
        .map(|length| buffer[..length].to_vec())
}

/// Opens a session, however long the machine takes.
fn open(socket: &UdpSocket) -> Channel {
    let mut opening = Opening::new(&secret(), None, Time::ZERO);
    loop {
        let mut hello = Vec::new();
        if opening.step(now(), &mut hello) {
            socket.send(&hello).unwrap();
        }
        if let Some(answer) = heard(socket)
            && let Progress::Begun(channel, _) = opening.receive(now(), &answer)
        {
            return *channel;
        }
    }
}

/// Repeats a request until it is answered.
fn ask(socket: &UdpSocket, channel: &mut Channel, request: &Request) -> Reply {
    loop {
        let mut datagram = Vec::new();
        channel.seal_control(&request.encode(), &mut datagram);
        socket.send(&datagram).unwrap();
        while let Some(answer) = heard(socket) {
            if let Ok(opened) = channel.open(&answer)
                && opened.header.kind == Kind::Control
            {
                return Reply::decode(opened.body).unwrap();
            }
        }
    }
}

#[test]
fn rubbish_is_silence_and_a_client_beside_it_is_served() {
    for local in ["127.0.0.1:0", "[::1]:0"] {
        if UdpSocket::bind(local).is_err() {
            eprintln!("skipped: this machine has no {local}");
            continue;
        }
        let statistics = serving(local, |server| {
            let (mallory, alice) = (client(server), client(server));
            for length in 0..1500 {
                let rubbish: Vec<u8> = (0..length).map(|at| (at * 7 + length) as u8).collect();
                mallory.send(&rubbish).unwrap();
            }
            let mut channel = open(&alice);
            let of = channel.session();
            assert!(matches!(
                ask(&alice, &mut channel, &Request::Start { of, run: 1 }),
                Reply::Done { .. }
            ));
            assert_eq!(heard(&mallory), None);
        });
        let counters = statistics.counters;
        assert!(counters.malformed + counters.forged + counters.strangers > 0);
        assert_eq!((counters.sessions, statistics.sessions), (1, 1));
    }
}

#[test]
fn arrivals_carry_the_kernels_stamps_and_an_answer_follows() {
    serving("127.0.0.1:0", |server| {
        let alice = client(server);
        let mut channel = open(&alice);
        let of = channel.session();
        ask(&alice, &mut channel, &Request::Start { of, run: 7 });
        let filler = Filler::new(&[1; 32]);
        let probe = Probe {
            run: 7,
            train: 1,
            index: 0,
            answer_packets: 5,
            answer_bytes: 500,
            sent_ns: 0,
        };
        // The stamp is converted from the wall clock to the monotonic clock, by two readings between which a loaded
        // machine may run other programs.
        let before = (now() - Duration::from_secs(1)).as_nanos();
        let mut datagram = Vec::new();
        channel.seal_probe(Kind::Train, &probe, 1372, &filler, &mut datagram);
        alice.send(&datagram).unwrap();
        let mut answers = 0;
        while answers < 5 {
            let Some(answer) = heard(&alice) else {
                continue;
            };
            assert_eq!(answer.len(), 500 - 28);
            let opened = channel.open(&answer).unwrap();
            let answer = Probe::decode(opened.body).unwrap();
            assert_eq!((answer.run, answer.train, answer.index), (7, 1, answers));
            answers += 1;
        }
        let after = now().as_nanos();
        let reply = ask(
            &alice,
            &mut channel,
            &Request::Reports {
                of,
                run: 7,
                from: 0,
                most: 1,
            },
        );
        let Reply::Report(report) = reply else {
            panic!("{reply:?}")
        };
        let arrival = report.arrivals.iter().next().unwrap();
        assert_eq!((arrival.train, arrival.index, arrival.bytes), (1, 0, 1400));
        assert!((before..=after).contains(&arrival.arrived_ns));
    });
}
