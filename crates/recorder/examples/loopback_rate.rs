//! Measures the rates of a server's saturated downlink and of a saturated uplink over the loopback, with one thread at
//! each end. On a machine that does other things as well, look at the time on the processor: an end can keep up with a
//! rate as long as that allows.
//!
//! `cargo run --release -p cellbed-recorder --example loopback_rate -- 2000` (Mbit/s asked of each direction in turn).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use cellbed_link::{BitRate, Bytes, Duration, Time};
use cellbed_recorder::secure::{Channel, Filler, Opening, Progress, Secret};
use cellbed_recorder::server::{Limits, ServeConfig, Serving};
use cellbed_recorder::socket::{Inbox, Local, Outbox, Socket, now, sharpen_timers};
use cellbed_recorder::wire::{Kind, Probe, Reply, Request};
use cellbed_recorder::workload::FixedRateSaturator;

/// Time that the server's thread has had on a processor, ns.
static SERVER_BUSY: AtomicU64 = AtomicU64::new(0);

const PACKET: u16 = 1400;
const SPAN: Duration = Duration::from_secs(5);

fn main() -> cellbed_recorder::Result<()> {
    let megabits = std::env::args()
        .nth(1)
        .and_then(|argument| argument.parse().ok());
    let rate = BitRate(megabits.unwrap_or(2000) * 1_000_000);
    let secret = Secret::new([1; 32]);
    let loopback = Local {
        address: "127.0.0.1:0".parse().expect("an address"),
        interface: None,
    };
    let limits = Limits {
        rate: BitRate(100_000_000_000),
        total_rate: BitRate(100_000_000_000),
        ..Limits::default()
    };
    let config = ServeConfig {
        local: loopback.clone(),
        limits,
        statistics_every: Duration::from_millis(50),
    };
    let mut server = Serving::bind(&config, &secret, &[2; 32])?;
    let (address, stopped) = (server.local(), AtomicBool::new(false));
    thread::scope(|scope| {
        let stop = || stopped.load(Ordering::Relaxed);
        let serving =
            scope.spawn(move || server.run(|_| SERVER_BUSY.store(busy(), Ordering::Relaxed), stop));
        let outcome = Client::open(&loopback, address, &secret).and_then(|mut client| {
            client.downlink(rate)?;
            client.uplink(rate)
        });
        stopped.store(true, Ordering::Relaxed);
        serving.join().expect("the server")?;
        outcome
    })
}

struct Client {
    socket: Socket,
    server: SocketAddr,
    channel: Channel,
    inbox: Inbox,
    outbox: Outbox,
}

impl Client {
    fn open(local: &Local, server: SocketAddr, secret: &Secret) -> cellbed_recorder::Result<Self> {
        sharpen_timers();
        let (socket, mut inbox, mut outbox) = (Socket::bind(local)?, Inbox::new(), Outbox::new());
        let mut opening = Opening::new(secret, None, now());
        loop {
            outbox.push(server, |bytes| {
                opening.step(now(), bytes);
            });
            socket.send(&mut outbox)?;
            socket.wait(Some(opening.next_event()))?;
            socket.receive(&mut inbox)?;
            let begun =
                inbox
                    .packets()
                    .find_map(|packet| match opening.receive(now(), packet.bytes) {
                        Progress::Begun(channel, _) => Some(*channel),
                        _ => None,
                    });
            if let Some(channel) = begun {
                return Ok(Self {
                    socket,
                    server,
                    channel,
                    inbox,
                    outbox,
                });
            }
        }
    }

    fn send(&mut self, request: &Request) -> cellbed_recorder::Result<()> {
        let mut body = Vec::new();
        request.encode(&mut body);
        self.outbox.push(self.server, |bytes| {
            let _ = self.channel.seal_control(&body, bytes);
        });
        self.socket.send(&mut self.outbox).map(drop)
    }

    fn downlink(&mut self, rate: BitRate) -> cellbed_recorder::Result<()> {
        let of = self.channel.session();
        self.send(&Request::Start { of, run: 1 })?;
        let for_ns = SPAN.as_nanos();
        self.send(&Request::Saturate {
            of,
            run: 1,
            rate_bps: rate.0,
            bytes: PACKET,
            for_ns,
        })?;
        let before = Before::now();
        let (mut packets, mut first, mut last) = (0u64, Time::ZERO, Time::ZERO);
        let end = now() + SPAN + Duration::from_millis(200);
        while now() < end {
            self.socket.wait(Some(end))?;
            self.socket.receive(&mut self.inbox)?;
            for packet in self.inbox.packets() {
                let arrived = packet.arrived;
                if self
                    .channel
                    .open(packet.bytes)
                    .is_ok_and(|opened| opened.header.kind == Kind::Saturation)
                {
                    if packets == 0 {
                        first = arrived;
                    }
                    (packets, last) = (packets + 1, arrived);
                }
            }
        }
        before.tell(
            "downlink",
            [packets, packets + self.inbox.overflows()],
            packets,
            last.since(first),
        );
        Ok(())
    }

    fn uplink(&mut self, rate: BitRate) -> cellbed_recorder::Result<()> {
        let of = self.channel.session();
        self.send(&Request::Start { of, run: 2 })?;
        let before = Before::now();
        let filler = Filler::new(&[4; 32]);
        let begun = now();
        let mut pace = FixedRateSaturator::new(rate, Bytes(PACKET.into()), begun, begun + SPAN);
        let (mut from, mut sent, mut arrived, mut unrecorded) = (0, 0u64, Vec::new(), 0);
        let mut fetch_at = begun;
        let end = begun + SPAN + Duration::from_secs(1);
        while now() < end {
            while let Some(index) = pace.emit(now()) {
                let probe = Probe {
                    run: 2,
                    train: 0,
                    index,
                    answer_packets: 0,
                    answer_bytes: 0,
                    sent_ns: now().as_nanos(),
                };
                self.outbox.push(self.server, |bytes| {
                    let _ = self.channel.seal_probe(
                        Kind::Saturation,
                        &probe,
                        usize::from(PACKET) - 28,
                        &filler,
                        bytes,
                    );
                });
                sent += 1;
            }
            self.socket.send(&mut self.outbox)?;
            if now() >= fetch_at {
                self.send(&Request::Reports {
                    of,
                    run: 2,
                    from,
                    most: 256,
                })?;
                fetch_at = now() + Duration::from_millis(50);
            }
            self.socket.wait(Some(now() + Duration::from_micros(200)))?;
            self.socket.receive(&mut self.inbox)?;
            for packet in self.inbox.packets() {
                let Ok(opened) = self.channel.open(packet.bytes) else {
                    continue;
                };
                if let Ok(Reply::Report(report)) = Reply::decode(opened.body)
                    && report.chunk == from
                    && report.chunk < report.chunks
                {
                    from += 1;
                    unrecorded = report.unrecorded;
                    arrived.extend(report.arrivals);
                }
            }
        }
        let span = arrived.last().map_or(0, |last| last.arrived_ns)
            - arrived.first().map_or(0, |first| first.arrived_ns);
        eprintln!("{sent} packets sent, {unrecorded} unrecorded");
        before.tell(
            "uplink",
            [sent, arrived.len() as u64],
            arrived.len() as u64,
            Duration::from_nanos(span),
        );
        Ok(())
    }
}

/// Processor time of this thread so far, ns.
fn busy() -> u64 {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    statistics
        .split(' ')
        .next()
        .and_then(|nanos| nanos.parse().ok())
        .unwrap_or(0)
}

struct Before {
    client: u64,
    server: u64,
}

impl Before {
    fn now() -> Self {
        Self {
            client: busy(),
            server: SERVER_BUSY.load(Ordering::Relaxed),
        }
    }

    /// `handled`: how many packets the client and the server had to do with.
    fn tell(&self, way: &str, handled: [u64; 2], arrived: u64, span: Duration) {
        let seconds = span.as_secs_f64();
        let rate = arrived as f64 * f64::from(PACKET) * 8.0 / seconds.max(1e-9) / 1e6;
        println!("{way}: {arrived} packets of {PACKET} bytes in {seconds:.3} s: {rate:.0} Mbit/s");
        let [client, server] = [
            (busy() - self.client) as f64 / handled[0].max(1) as f64,
            (SERVER_BUSY.load(Ordering::Relaxed) - self.server) as f64 / handled[1].max(1) as f64,
        ];
        let most = |nanos: f64| f64::from(PACKET) * 8.0 / nanos;
        println!(
            "    client {client:.0} ns a packet: up to {:.1} Gbit/s; server {server:.0} ns: up to {:.1} Gbit/s",
            most(client),
            most(server)
        );
    }
}
