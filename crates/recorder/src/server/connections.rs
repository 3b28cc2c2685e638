//! TCP connections of clients: handshakes, control of sessions, files.
//!
//! A connection without an authentic first frame is a stranger: it gets no byte, has little time and memory, and gives
//! way to newer ones. The server reads from a connection only while its output is short and its session's budget is not
//! overdrawn: a slow reader stops nobody but itself.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use cellbed_link::{Bytes, Duration, Time};

use super::session::{Budget, Session, network};
use super::{Limits, Server};
use crate::secure::{Channel, Rejected};
use crate::wire::{
    Encode, FrameReader, Header, Kind, Refusal, Reply, Request, SessionId, VERSION, Welcome,
    put_frame,
};

/// Bytes of output at which a connection waits for its reader.
const FULL: usize = 1 << 16;

/// Bytes of a file that are charged together.
const PIECE: u64 = 1 << 14;

/// Time until another try of a connection whose budget is used up.
const BREATH: Duration = Duration::from_millis(5);

/// Maximum files under way of a session.
const FILES: usize = 2;

/// A connection of a client, as far as the server's core is concerned.
pub(super) struct Connection {
    from: SocketAddr,
    opened: Time,
    input: FrameReader,
    output: Vec<u8>,
    pub(super) state: State,
    /// Time of another try of a connection whose budget was used up.
    blocked: Option<Time>,
}

pub(super) enum State {
    /// No authentic frame has arrived.
    Stranger,
    /// The welcome was sent. Only the client's first sealed message begins the session: a replayed hello begins none.
    Greeted(Box<Channel>),
    /// Control of a session, which ends with the connection.
    Session(Box<Session>),
    /// A file of a session with this many bytes left.
    Sending(SessionId, u64),
    /// To be closed when its output is written.
    Closing,
}

impl Connection {
    /// Return when the connection is closed without further events.
    fn expiry(&self, limits: &Limits) -> Time {
        match &self.state {
            State::Session(session) => session.expiry(limits),
            State::Sending(..) => self.opened + limits.idle,
            _ => self.opened + limits.handshake,
        }
    }

    /// Return the time of the next event without arrivals.
    pub(super) fn next_event(&self, limits: &Limits) -> Time {
        let due = match &self.state {
            State::Session(session) => session.next_event(limits),
            _ => Time::MAX,
        };
        let blocked = self.blocked.unwrap_or(Time::MAX);
        due.min(blocked).min(self.expiry(limits))
    }

    /// Return the session whose control the connection carries.
    pub(super) fn session(&mut self) -> Option<&mut Session> {
        match &mut self.state {
            State::Session(session) => Some(session),
            _ => None,
        }
    }

    fn is_stranger(&self) -> bool {
        matches!(self.state, State::Stranger | State::Greeted(_))
    }
}

impl Server {
    /// Accept a connection. A stranger may have to make room.
    pub fn connect(&mut self, now: Time, from: SocketAddr) -> SessionId {
        let strangers = || self.connections.iter().filter(|(_, it)| it.is_stranger());
        let here = strangers().filter(|(_, it)| network(it.from) == network(from));
        let limits = &self.limits;
        let oldest = if here.clone().count() >= limits.strangers_per_address as usize {
            here.map(|(id, _)| *id).min()
        } else if strangers().count() >= limits.strangers as usize {
            strangers().map(|(id, _)| *id).min()
        } else {
            None
        };
        if let Some(oldest) = oldest {
            self.connections.remove(&oldest);
        }
        while self.next_id.0 == 0 || self.connections.contains_key(&self.next_id) {
            self.next_id.0 = self.next_id.0.wrapping_add(1);
        }
        self.counters.connections += 1;
        let connection = Connection {
            from,
            opened: now,
            input: FrameReader::default(),
            output: Vec::new(),
            state: State::Stranger,
            blocked: None,
        };
        let id = self.next_id;
        self.connections.insert(id, connection);
        self.next_id.0 = id.0.wrapping_add(1);
        id
    }

    /// Return whether the server reads from a connection now.
    pub fn reads(&self, id: SessionId) -> bool {
        let connection = self.connections.get(&id);
        connection.is_some_and(|it| it.output.len() < FULL && it.blocked.is_none())
    }

    /// Process bytes of a connection, as many as the caller likes to read at once.
    pub fn read(&mut self, now: Time, id: SessionId, bytes: &[u8]) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.input.push(bytes);
            self.advance(now, id);
        }
    }

    /// Return the bytes to be written to a connection; `None` if the connection must be closed. Remove written bytes
    /// and call this again.
    pub fn output(&mut self, now: Time, id: SessionId) -> Option<&mut Vec<u8>> {
        self.advance(now, id);
        let connection = self.connections.get(&id)?;
        let closes = matches!(connection.state, State::Closing | State::Sending(_, 0));
        if closes && connection.output.is_empty() {
            self.connections.remove(&id);
        }
        self.connections.get_mut(&id).map(|it| &mut it.output)
    }

    /// Forget a connection that its client has closed, or that is broken, with its session.
    pub fn disconnect(&mut self, id: SessionId) {
        self.connections.remove(&id);
    }

    /// Process received frames and fill the output, as far as limits permit.
    fn advance(&mut self, now: Time, id: SessionId) {
        // Taken out, to allow changes of a connection and its session together.
        let Some(mut connection) = self.connections.remove(&id) else {
            return;
        };
        connection.blocked = None;
        while connection.output.len() < FULL {
            match self.step_connection(now, &mut connection, id) {
                Ok(true) => {}
                Ok(false) => break,
                Err(reason) => return self.count(reason),
            }
        }
        self.connections.insert(id, connection);
    }

    /// Process a frame or fill the output; return `false` if there is nothing to do now. Errors: the connection must be
    /// closed.
    fn step_connection(
        &mut self,
        now: Time,
        connection: &mut Connection,
        id: SessionId,
    ) -> Result<bool, Rejected> {
        if let State::Sending(session, left) = connection.state {
            return self.send_file(now, connection, session, left);
        }
        if let State::Session(session) = &connection.state
            && Budget::is_overdrawn([&session.budget, &self.total], now)
        {
            connection.blocked = Some(now + BREATH);
            return Ok(false);
        }
        let Some(frame) = connection.input.take()? else {
            return Ok(false);
        };
        match std::mem::replace(&mut connection.state, State::Closing) {
            State::Stranger => self.first_frame(now, connection, id, &frame)?,
            State::Greeted(channel) => {
                // Another client may have been faster; this one tries again.
                if self.refusal(connection.from).is_some() {
                    return Err(Rejected::Malformed);
                }
                let session = Session::new(*channel, connection.from, now, &self.limits);
                connection.state = State::Session(Box::new(session));
                self.control(now, connection, &frame)?;
                self.counters.sessions += 1;
            }
            State::Session(session) => {
                connection.state = State::Session(session);
                self.control(now, connection, &frame)?;
            }
            State::Sending(..) | State::Closing => return Err(Rejected::Malformed),
        }
        Ok(true)
    }

    pub(super) fn count(&mut self, reason: Rejected) {
        *match reason {
            Rejected::Forged => &mut self.counters.forged,
            Rejected::Replayed => &mut self.counters.replayed,
            Rejected::Malformed => &mut self.counters.malformed,
        } += 1;
    }

    fn first_frame(
        &mut self,
        now: Time,
        connection: &mut Connection,
        id: SessionId,
        frame: &[u8],
    ) -> Result<(), Rejected> {
        let kind = Kind::of(frame)?;
        let (message, code) = self.handshake.of_client(frame).ok_or(Rejected::Forged)?;
        let refused = match (message.get(1), kind) {
            (Some(&VERSION), Kind::Hello) => self.greet(connection, id, &message[2..])?,
            (Some(&VERSION), Kind::Download) => {
                self.begin_file(now, connection, &message[2..])?;
                None
            }
            (Some(&VERSION), _) => return Err(Rejected::Malformed),
            _ => {
                self.counters.other_versions += 1;
                Some(Refusal::OtherVersion(VERSION))
            }
        };
        if let Some(reason) = refused {
            self.counters.refused += 1;
            let rejection = self.handshake.reject(reason, code);
            put_frame(&mut connection.output, |out| {
                out.extend_from_slice(&rejection)
            });
        }
        Ok(())
    }

    /// Answer an authentic hello of another version, over UDP, so that its client can print the reason.
    pub(super) fn old_hello(&mut self, datagram: &[u8]) -> Option<Vec<u8>> {
        let (_, code) = self.handshake.of_client(datagram)?;
        self.counters.other_versions += 1;
        let reason = Refusal::OtherVersion(VERSION);
        Some(self.handshake.reject(reason, code))
    }

    /// Return why a client at this address gets no session.
    fn refusal(&self, from: SocketAddr) -> Option<Refusal> {
        let (all, each) = (self.limits.sessions, self.limits.sessions_per_address);
        let all_sessions = self.connections.values();
        let (mut count, mut here) = (0, 0);
        for other in all_sessions.filter(|it| matches!(it.state, State::Session(_))) {
            count += 1;
            here += u32::from(network(other.from) == network(from));
        }
        if count >= all {
            Some(Refusal::SessionsFull(all.into()))
        } else if here >= each {
            Some(Refusal::AddressFull(each.into()))
        } else {
            None
        }
    }

    fn greet(
        &mut self,
        connection: &mut Connection,
        id: SessionId,
        noise: &[u8],
    ) -> Result<Option<Refusal>, Rejected> {
        let handshake = self.handshake.accept(noise).ok_or(Rejected::Forged)?;
        if let Some(refusal) = self.refusal(connection.from) {
            return Ok(Some(refusal));
        }
        let welcome = Welcome {
            session: id,
            offer: self.limits.offer(),
        };
        // Without random bytes of the system: the client tries again.
        let (frame, channel) = handshake.welcome(&welcome).ok_or(Rejected::Malformed)?;
        put_frame(&mut connection.output, |out| out.extend_from_slice(&frame));
        connection.state = State::Greeted(Box::new(channel));
        Ok(None)
    }

    /// Process a sealed frame of a session's control.
    fn control(
        &mut self,
        now: Time,
        connection: &mut Connection,
        frame: &[u8],
    ) -> Result<(), Rejected> {
        let session = connection.session().ok_or(Rejected::Malformed)?;
        let opened = session.channel.open(frame)?;
        let is_control = opened.header.kind == Kind::Control;
        let request = Request::decode(opened.body).ok().filter(|_| is_control);
        session.last_received = now;
        session.spend(Bytes(frame.len() as u64));
        self.request(now, connection, request.ok_or(Rejected::Malformed)?);
        Ok(())
    }

    /// Seal a reply into the output of a session's connection.
    pub(super) fn reply(&mut self, now: Time, connection: &mut Connection, reply: &Reply) {
        let Connection { state, output, .. } = connection;
        if let State::Session(session) = state {
            let start = output.len();
            put_frame(output, |out| {
                session.channel.seal(Kind::Control, &reply.encode(), out);
            });
            let length = Bytes((output.len() - start) as u64);
            Budget::charge([&mut session.budget, &mut self.total], now, length);
            session.spend(length);
        }
    }

    fn begin_file(
        &mut self,
        now: Time,
        connection: &mut Connection,
        sealed: &[u8],
    ) -> Result<(), Rejected> {
        let (header, _) = Header::split(sealed)?;
        let sends =
            |it: &&Connection| matches!(it.state, State::Sending(of, _) if of == header.session);
        let under_way = self.connections.values().filter(sends).count();
        let session = session_of(&mut self.connections, header.session)?;
        let bytes = u64::decode(session.channel.open(sealed)?.body)?;
        session.last_received = now;
        let may_probe = session.may_probe(&self.limits, now);
        if bytes > self.limits.file_bytes.0 || under_way >= FILES || !may_probe {
            self.counters.refused += 1;
        } else if header.kind == Kind::File {
            connection.state = State::Sending(header.session, bytes);
            self.counters.files += 1;
        }
        Ok(())
    }

    /// Append the next piece of a file to the output. Return `false` if there is none now.
    fn send_file(
        &mut self,
        now: Time,
        connection: &mut Connection,
        of: SessionId,
        left: u64,
    ) -> Result<bool, Rejected> {
        let session = session_of(&mut self.connections, of)?;
        let piece = left.min(PIECE);
        let budgets = [&mut session.budget, &mut self.total];
        if !Budget::take(budgets, now, Bytes(piece), Duration::ZERO) {
            connection.blocked = Some(now + BREATH);
            return Ok(false);
        }
        session.spend(Bytes(piece));
        self.filler
            .append(left, piece as usize, &mut connection.output);
        connection.state = State::Sending(of, left - piece);
        Ok(piece > 0)
    }

    /// Close the connections of removed sessions and those that are too slow; continue those that had to wait.
    pub(super) fn keep_connections(&mut self, now: Time) {
        self.connections
            .retain(|_, it| now < it.expiry(&self.limits));
        let sessions = self.connections.iter();
        let sessions = sessions.filter(|(_, it)| matches!(it.state, State::Session(_)));
        let sessions: Vec<SessionId> = sessions.map(|(id, _)| *id).collect();
        self.connections.retain(|_, it| match it.state {
            State::Sending(session, _) => sessions.contains(&session),
            _ => true,
        });
        let due = self.connections.iter();
        let due = due.filter(|(_, it)| it.blocked.is_some_and(|at| at <= now));
        for id in due.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.advance(now, id);
        }
    }

    /// Return the memory of the output of all connections.
    pub fn output_memory(&self) -> Bytes {
        self.connections
            .values()
            .map(|it| Bytes(it.output.len() as u64))
            .sum()
    }
}

/// Return the session of this number.
fn session_of(
    connections: &mut BTreeMap<SessionId, Connection>,
    id: SessionId,
) -> Result<&mut Session, Rejected> {
    let connection = connections.get_mut(&id);
    connection
        .and_then(Connection::session)
        .ok_or(Rejected::Malformed)
}
