//! Any datagrams, from strangers and from clients with the secret, leave a server within its limits.
//!
//! `cd crates/recorder && mkdir -p fuzz/corpus/server && cargo +nightly fuzz run server fuzz/corpus/server
//! fuzz/seeds/server`
#![no_main]

use std::net::SocketAddr;
use std::sync::LazyLock;

use cellbed_link::{BitRate, Bytes, Duration, Time};
use cellbed_recorder::secure::{Channel, Filler, Opening, Progress, Secret};
use cellbed_recorder::server::{Limits, Server};
use cellbed_recorder::socket::Outbox;
use cellbed_recorder::wire::{Field, Kind, Probe};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits {
    sessions: 3,
    sessions_per_address: 2,
    rate: BitRate(100_000_000),
    total_rate: BitRate(150_000_000),
    bytes: Bytes(50_000_000),
    duration: Duration::from_secs(100),
    idle: Duration::from_secs(20),
    silence: Duration::from_secs(1),
    answer_packets: 20,
    packet_bytes: 1500,
    runs: 3,
    report_bytes: Bytes(3000),
};

static FILLER: LazyLock<Filler> = LazyLock::new(|| Filler::new(&[3; 32]));

/// Return a source address of datagrams; only the clients of the first addresses read what they receive.
fn address(of: u8) -> SocketAddr {
    SocketAddr::new([192, 0, 2, of % 4].into(), u16::from(of / 4 % 8) * 1000)
}

struct World {
    server: Server,
    secret: Secret,
    now: Time,
    opening: Option<(SocketAddr, Opening)>,
    channels: Vec<(SocketAddr, Channel)>,
    last: Vec<u8>,
}

impl World {
    /// Pass a datagram to the server; clients read the answers.
    fn hears(&mut self, from: SocketAddr, datagram: &[u8]) {
        let before = self.server.counters();
        let mut out = Outbox::default();
        self.server
            .receive(self.now, self.now, from, datagram, &mut out);
        let after = self.server.counters();
        let sent: usize = out.packets().map(|(_, bytes)| bytes.len()).sum();
        assert_eq!(after.sent_bytes - before.sent_bytes, sent as u64);
        let authentic =
            after.hellos > before.hellos || self.channels.iter().any(|(at, _)| *at == from);
        assert!(
            authentic || out.is_empty(),
            "who is a stranger is not answered"
        );
        if Kind::of(datagram) == Ok(Kind::Hello) {
            assert!(sent * 4 < datagram.len().max(1), "no amplification");
        }
        let answers: Vec<_> = out
            .packets()
            .map(|(to, bytes)| (to, bytes.to_vec()))
            .collect();
        for (to, answer) in answers {
            if let Some((client, opening)) = &mut self.opening
                && *client == to
                && let Progress::Begun(channel, _) = opening.receive(self.now, &answer)
            {
                self.channels.push((to, *channel));
                self.channels.truncate(8);
                self.opening = None;
            }
        }
        self.last = datagram.to_vec();
    }

    fn wait(&mut self, span: Duration) {
        let end = self.now + span;
        let begun = self.now;
        let mut bytes = 0;
        while let Some(due) = self.server.next_event().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            let mut out = Outbox::default();
            self.server.step(self.now, &mut out);
            bytes += out.payload();
            assert!(
                self.server.next_event().is_none_or(|next| next > self.now),
                "what is due is done"
            );
        }
        self.now = end;
        let seconds = end.since(begun).as_secs_f64();
        assert!(
            bytes as f64 <= 200_000.0 + 150e6 / 8.0 * seconds,
            "the total rate holds"
        );
    }

    fn bounded(&self) {
        assert!(self.server.sessions() <= 3);
        assert!(self.server.report_memory() <= Bytes(3 * (3000 + 3 * 1300)));
    }
}

fuzz_target!(|script: &[u8]| {
    let secret = Secret::new([1; 32]);
    let mut world = World {
        server: Server::new(&secret, LIMITS, &[2; 32]),
        secret,
        now: Time::from_millis(60_000),
        opening: None,
        channels: Vec::new(),
        last: Vec::new(),
    };
    let mut rest = script;
    for _ in 0..200 {
        let Some((&[action, who, length], after)) = rest.split_first_chunk() else {
            break;
        };
        let (piece, after) = after.split_at(usize::from(length).min(after.len()));
        rest = after;
        let from = address(who);
        let client = usize::from(who) % world.channels.len().max(1);
        match action % 8 {
            0 => world.hears(from, piece),
            1 => {
                // Begin a handshake, possibly to resume.
                let resumes = world
                    .channels
                    .get(client)
                    .filter(|_| action & 8 != 0)
                    .map(|(_, channel)| channel.resumption());
                let opening = Opening::new(&world.secret, resumes, world.now);
                world.opening = Some((from, opening));
            }
            2 => {
                // Continue the handshake, possibly from another address.
                let Some((client, opening)) = &mut world.opening else {
                    continue;
                };
                let from = if action & 8 != 0 { from } else { *client };
                world.now = world.now.max(opening.next_event());
                let mut hello = Vec::new();
                opening.step(world.now, &mut hello);
                world.hears(from, &hello);
            }
            3 => {
                // A client with the secret sends an arbitrary message.
                let Some((at, channel)) = world.channels.get_mut(client) else {
                    continue;
                };
                let from = if action & 8 != 0 { from } else { *at };
                let mut body = piece.to_vec();
                if action & 16 != 0 && body.len() > 5 {
                    // The client's own session, since sessions cannot be guessed.
                    body[1..5].copy_from_slice(&channel.session().0.to_be_bytes());
                }
                let mut datagram = Vec::new();
                channel.seal_control(&body, &mut datagram);
                world.hears(from, &datagram);
            }
            4 => {
                let Some((at, channel)) = world.channels.get_mut(client) else {
                    continue;
                };
                let (from, mut head) = (if action & 8 != 0 { from } else { *at }, [0; 24]);
                let given = piece.len().min(24);
                head[..given].copy_from_slice(&piece[..given]);
                let Ok(probe) = Probe::decode(&head) else {
                    continue;
                };
                let kind = if action & 16 != 0 {
                    Kind::Train
                } else {
                    Kind::Saturation
                };
                let mut datagram = Vec::new();
                let payload = usize::from(length) * 8;
                channel.seal_probe(kind, &probe, payload, &FILLER, &mut datagram);
                world.hears(from, &datagram);
            }
            5 => {
                // Replay the last datagram, possibly changed.
                let mut datagram = world.last.clone();
                if let (true, Some(byte)) = (action & 8 != 0, piece.first()) {
                    let place = usize::from(*byte) % datagram.len().max(1);
                    if let Some(byte) = datagram.get_mut(place) {
                        *byte ^= piece.get(1).copied().unwrap_or(1);
                    }
                }
                world.hears(from, &datagram);
            }
            6 => world.wait(Duration::from_millis(u64::from(length))),
            _ => world.wait(Duration::from_secs(u64::from(length) / 8)),
        }
        world.bounded();
    }
});
