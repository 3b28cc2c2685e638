//! Any datagrams and connections, from strangers and from clients with the secret, leave a server within its limits.
//!
//! `cd crates/recorder && mkdir -p fuzz/corpus/server && cargo +nightly fuzz run server fuzz/corpus/server
//! fuzz/seeds/server`
#![no_main]

use std::net::SocketAddr;
use std::sync::LazyLock;

use cellbed_link::{BitRate, Bytes, Duration, Time};
use cellbed_recorder::secure::{Channel, Filler, HandshakeKeys, Secret};
use cellbed_recorder::server::{Limits, Server};
use cellbed_recorder::socket::Outbox;
use cellbed_recorder::wire::{
    Echo, Encode, FrameReader, Kind, Probe, Request, SessionId, put_frame, start,
};
use libfuzzer_sys::fuzz_target;

static FILLER: LazyLock<Filler> = LazyLock::new(|| Filler::new(&[3; 32]));
static KEYS: LazyLock<HandshakeKeys> = LazyLock::new(|| HandshakeKeys::new(&Secret::new([1; 32])));

fn limits() -> Limits {
    Limits {
        sessions: 3,
        sessions_per_address: 2,
        strangers: 4,
        strangers_per_address: 3,
        rate: BitRate(100_000_000),
        total_rate: BitRate(150_000_000),
        bytes: Bytes(50_000_000),
        duration: Duration::from_secs(100),
        idle: Duration::from_secs(20),
        silence: Duration::from_secs(1),
        answer_packets: 20,
        runs: 3,
        report_bytes: Bytes(3000),
        ..Limits::default()
    }
}

/// Return a source address of a client.
fn address(of: u8) -> SocketAddr {
    SocketAddr::new([192, 0, 2, of % 4].into(), u16::from(of / 4 % 8) * 1000)
}

struct Client {
    from: SocketAddr,
    connection: SessionId,
    channel: Channel,
    challenge: u64,
}

struct World {
    server: Server,
    now: Time,
    clients: Vec<Client>,
    strangers: Vec<SessionId>,
    last: Vec<u8>,
}

impl World {
    /// Pass a datagram to the server; the client, if any, reads the answers.
    fn hears(&mut self, from: SocketAddr, datagram: &[u8], client: Option<usize>) {
        let mut out = Outbox::default();
        self.server
            .receive(self.now, self.now, from, datagram, &mut out);
        let sealed = Kind::of(datagram).is_ok_and(Kind::is_datagram);
        assert!(
            sealed || out.is_empty(),
            "who is a stranger is not answered"
        );
        for (to, answer) in out.packets() {
            let known = self.clients.iter().any(|it| it.from == to);
            assert!(known || answer.len() <= datagram.len(), "no amplification");
            if let Some(client) = client.and_then(|it| self.clients.get_mut(it))
                && let Ok(opened) = client.channel.open(answer)
                && let Ok(echo) = Echo::decode(opened.body)
            {
                client.challenge = echo.challenge;
            }
        }
        self.last = datagram.to_vec();
    }

    /// Send bytes over a connection; returns what the server has to say.
    fn says(&mut self, connection: SessionId, bytes: &[u8]) -> Vec<u8> {
        if self.server.reads(connection) {
            self.server.read(self.now, connection, bytes);
        }
        let output = self.server.output(self.now, connection);
        output.map(std::mem::take).unwrap_or_default()
    }

    fn open(&mut self, from: SocketAddr) {
        let connection = self.server.connect(self.now, from);
        let (mut handshake, hello) = KEYS.greet().unwrap();
        let mut frame = Vec::new();
        put_frame(&mut frame, |out| out.extend_from_slice(&hello));
        let mut reader = FrameReader::default();
        reader.push(&self.says(connection, &frame));
        let answer = reader.take().unwrap().unwrap_or_default();
        let Some(welcome) = handshake.read(&answer) else {
            return;
        };
        let client = Client {
            from,
            connection,
            channel: handshake.channel(&welcome).unwrap(),
            challenge: 0,
        };
        self.clients.truncate(7);
        self.clients.push(client);
        self.request(self.clients.len() - 1, &Request::Check.encode());
    }

    fn request(&mut self, client: usize, body: &[u8]) {
        let client = &mut self.clients[client];
        let (connection, mut frame) = (client.connection, Vec::new());
        put_frame(&mut frame, |out| {
            client.channel.seal(Kind::Control, body, out);
        });
        self.says(connection, &frame);
    }

    fn wait(&mut self, span: Duration) {
        let (end, begun) = (self.now + span, self.now);
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
        assert!(self.server.output_memory() <= Bytes(20 << 20));
    }
}

fuzz_target!(|script: &[u8]| {
    let mut world = World {
        server: Server::new(&Secret::new([1; 32]), limits(), &[2; 32]),
        now: Time::from_millis(60_000),
        clients: Vec::new(),
        strangers: Vec::new(),
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
        let client = usize::from(who) % world.clients.len().max(1);
        let known = (client < world.clients.len()).then_some(client);
        match (action % 8, known) {
            (0, _) => world.hears(from, piece, None),
            (1, _) => world.open(from),
            (2, _) => {
                // A stranger's bytes, over a new or an old connection.
                if action & 8 != 0 || world.strangers.is_empty() {
                    world.strangers.push(world.server.connect(world.now, from));
                }
                let connection = world.strangers[usize::from(who) % world.strangers.len()];
                world.says(connection, piece);
            }
            (3, Some(client)) => world.request(client, piece),
            (4, Some(at)) => {
                let (client, mut head) = (&mut world.clients[at], [0; 24]);
                let given = piece.len().min(24);
                head[..given].copy_from_slice(&piece[..given]);
                let (mut datagram, payload) = (Vec::new(), usize::from(length) * 8);
                match Probe::decode(&head) {
                    _ if action & 32 != 0 => {
                        let echo = Echo {
                            challenge: client.challenge,
                            ..Echo::default()
                        };
                        client
                            .channel
                            .seal(Kind::Echo, &echo.encode(), &mut datagram);
                    }
                    Ok(probe) => {
                        let kind = [Kind::Saturation, Kind::Train][usize::from(action & 16 != 0)];
                        let channel = &mut client.channel;
                        channel.seal_probe(kind, &probe, payload, &FILLER, &mut datagram);
                    }
                    Err(_) => continue,
                }
                let from = if action & 8 != 0 { from } else { client.from };
                world.hears(from, &datagram, Some(at));
            }
            (5, Some(at)) => {
                // Another connection, for a file.
                let client = &mut world.clients[at];
                let mut frame = start(Kind::Download).to_vec();
                let sealed = [Kind::Control, Kind::File][usize::from(action & 8 != 0)];
                client.channel.seal(sealed, piece, &mut frame);
                KEYS.sign(&mut frame);
                let connection = world.server.connect(world.now, from);
                let mut framed = Vec::new();
                put_frame(&mut framed, |out| out.extend_from_slice(&frame));
                world.says(connection, &framed);
            }
            (6, _) => {
                // Replay the last datagram, possibly changed.
                let mut datagram = world.last.clone();
                if let (true, Some(byte)) = (action & 8 != 0, piece.first()) {
                    let place = usize::from(*byte) % datagram.len().max(1);
                    if let Some(byte) = datagram.get_mut(place) {
                        *byte ^= piece.get(1).copied().unwrap_or(1);
                    }
                }
                world.hears(from, &datagram, None);
            }
            _ if action & 8 != 0 => world.wait(Duration::from_secs(u64::from(length) / 8)),
            _ => world.wait(Duration::from_millis(u64::from(length))),
        }
        world.bounded();
    }
});
