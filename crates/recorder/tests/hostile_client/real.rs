//! Attacks over real sockets of the loopback.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cellbed_link::Time;
use cellbed_recorder::secure::{Opening, Progress};
use cellbed_recorder::server::{Limits, Serving, Statistics};
use cellbed_recorder::socket::{Local, now};

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
        .set_read_timeout(Some(Duration::from_millis(100)))
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
fn open(socket: &UdpSocket) {
    let mut opening = Opening::new(&secret(), None, Time::ZERO);
    loop {
        let mut hello = Vec::new();
        if opening.step(now(), &mut hello) {
            socket.send(&hello).unwrap();
        }
        if let Some(answer) = heard(socket)
            && let Progress::Begun(..) = opening.receive(now(), &answer)
        {
            return;
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
            open(&alice);
            assert_eq!(heard(&mallory), None);
        });
        let counters = statistics.counters;
        assert!(counters.malformed + counters.forged + counters.strangers > 0);
        assert_eq!((counters.sessions, statistics.sessions), (1, 1));
    }
}
