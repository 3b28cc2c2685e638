//! Requests of clients.

use cellbed_link::{BitRate, Bytes, Duration};

use crate::socket::Outbox;
use crate::wire::{
    HEADER_BYTES, Refusal, Reply, Request, SessionId, TAG_BYTES, ip_overhead, least_probe_bytes,
};

use super::budget::Budgets;
use super::run::Run;
use super::saturator::Saturator;
use super::session::Session;
use super::{Received, Server};

/// Of one request.
const REPORTS_AT_MOST: u16 = 256;

impl Server {
    /// Does what a client asks for, if it may, and answers.
    pub(super) fn request(&mut self, received: &Received, request: Request, out: &mut Outbox) {
        let done = match request {
            Request::Reports {
                of,
                run,
                from,
                most,
            } => match self.reports(received, of, run, from, most, out) {
                Ok(()) => return,
                Err(reason) => Err(reason),
            },
            Request::ClockPing { client_ns } => {
                let pong = Reply::ClockPong {
                    to: received.sequence,
                    client_ns,
                    received_ns: received.arrived.as_nanos(),
                    sent_ns: received.now.as_nanos(),
                };
                return self.reply(received, &pong, out);
            }
            Request::Group { token } => {
                if let Some(session) = self.sessions.get_mut(&received.session) {
                    session.group = Some(token);
                }
                Ok(())
            }
            Request::Start { of, run } => self.start(received, of, run),
            Request::Stop { of, run } => self.run_of(received, of, run).map(Run::stop),
            Request::Saturate {
                of,
                run,
                rate_bps,
                bytes,
                for_ns,
            } => {
                let rate = BitRate(rate_bps);
                self.set_saturation(received, of, run, rate, bytes, Duration::from_nanos(for_ns))
            }
            Request::Bye => {
                let done = Reply::Done {
                    to: received.sequence,
                };
                self.reply(received, &done, out);
                if let Some(session) = self.sessions.get_mut(&received.session) {
                    session.end();
                }
                return;
            }
        };
        let reply = match done {
            Ok(()) => Reply::Done {
                to: received.sequence,
            },
            Err(reason) => {
                self.counters.refused += 1;
                Reply::Refused {
                    to: received.sequence,
                    reason,
                }
            }
        };
        self.reply(received, &reply, out);
    }

    fn reply(&mut self, received: &Received, reply: &Reply, out: &mut Outbox) {
        let mut body = Vec::new();
        reply.encode(&mut body);
        self.send(received, &body, out);
    }

    /// Seals and sends a message unless the budgets are overdrawn. Returns whether it is sent.
    fn send(&mut self, received: &Received, body: &[u8], out: &mut Outbox) -> bool {
        let Some(session) = self.sessions.get_mut(&received.session) else {
            return false;
        };
        let overhead = usize::from(ip_overhead(session.address.ip()));
        let length = Bytes((overhead + HEADER_BYTES + body.len() + TAG_BYTES) as u64);
        let mut budgets = Budgets {
            session: &mut session.budget,
            total: &mut self.total,
        };
        if !budgets.take_for_report(received.now, length) {
            return false;
        }
        session.spend(length);
        out.push(session.address, |bytes| {
            let _ = session.channel.seal_control(body, bytes);
        });
        true
    }

    /// The session that the request speaks of, if it is its sender's own or in the same group.
    fn session_of(&mut self, received: &Received, of: SessionId) -> Result<&mut Session, Refusal> {
        let group = self
            .sessions
            .get(&received.session)
            .and_then(|session| session.group);
        let session = self.sessions.get_mut(&of).filter(|session| !session.ended);
        session
            .filter(|session| of == received.session || (group.is_some() && session.group == group))
            .ok_or(Refusal::NoSuchRun)
    }

    fn run_of(
        &mut self,
        received: &Received,
        of: SessionId,
        run: u32,
    ) -> Result<&mut Run, Refusal> {
        self.session_of(received, of)?
            .run(run)
            .ok_or(Refusal::NoSuchRun)
    }

    fn start(&mut self, received: &Received, of: SessionId, number: u32) -> Result<(), Refusal> {
        let limits = self.limits;
        let session = self.session_of(received, of)?;
        if session.run(number).is_some() {
            return Ok(());
        }
        if received.now >= session.probing_ends(&limits) {
            return Err(Refusal::TimeSpent {
                duration_ns: limits.duration.as_nanos(),
            });
        }
        if session.runs.len() >= limits.runs as usize {
            let over = session
                .runs
                .iter()
                .position(|run| run.stopped && run.log.is_fetched());
            session
                .runs
                .remove(over.ok_or(Refusal::RunsFull { most: limits.runs })?);
        }
        session.runs.push(Run::new(number));
        Ok(())
    }

    fn set_saturation(
        &mut self,
        received: &Received,
        of: SessionId,
        number: u32,
        rate: BitRate,
        bytes: u16,
        span: Duration,
    ) -> Result<(), Refusal> {
        let limits = self.limits;
        let session = self.session_of(received, of)?;
        let least = least_probe_bytes(session.address.ip());
        let (ends, spent) = (session.probing_ends(&limits), session.bytes >= limits.bytes);
        let run = session
            .run(number)
            .filter(|run| !run.stopped)
            .ok_or(Refusal::NoSuchRun)?;
        if rate.0 > limits.rate.0 {
            return Err(Refusal::RateOverLimit {
                rate_bps: limits.rate.0,
            });
        }
        if !(least..=limits.packet_bytes).contains(&bytes) {
            return Err(Refusal::PacketOutOfRange {
                least,
                most: limits.packet_bytes,
            });
        }
        if received.now >= ends {
            return Err(Refusal::TimeSpent {
                duration_ns: limits.duration.as_nanos(),
            });
        }
        if spent {
            return Err(Refusal::BytesSpent {
                bytes: limits.bytes.0,
            });
        }
        if run.steer(received.session, received.sequence) {
            let end = ends.min(received.now + span);
            let before = run.saturator.take();
            run.saturator = (rate.0 > 0)
                .then(|| Saturator::new(rate, bytes, received.now, end, before.as_ref()));
        }
        Ok(())
    }

    /// Sends chunks of a run, as many as there are and may be sent.
    fn reports(
        &mut self,
        received: &Received,
        of: SessionId,
        number: u32,
        from: u32,
        most: u16,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let most = u32::from(most.clamp(1, REPORTS_AT_MOST));
        let run = self.run_of(received, of, number)?;
        run.log.acknowledge(from);
        let first = from.max(run.log.first());
        if run.log.chunks() < first.saturating_add(most) {
            run.log.close();
        }
        let chunks = run.log.chunks();
        let first = first.min(chunks);
        let last = first.saturating_add(most).min(chunks);
        let mut body = Vec::new();
        for chunk in first..last.max(first.saturating_add(1)) {
            let run = self.run_of(received, of, number)?;
            body.clear();
            run.report(chunk)
                .encode_with(run.log.chunk(chunk).unwrap_or(&[]), &mut body);
            if !self.send(received, &body, out) {
                break;
            }
        }
        Ok(())
    }
}
