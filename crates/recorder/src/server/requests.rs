//! Requests of clients.

use cellbed_link::{BitRate, Bytes, Duration};

use super::run::{Run, Saturator};
use super::session::{Budget, Session};
use super::{Received, Server};
use crate::socket::Outbox;
use crate::wire::{
    Field, HEADER_BYTES, Refusal, Reply, Request, SessionId, TAG_BYTES, least_probe_bytes,
};

/// Of one request.
const REPORTS_AT_MOST: u16 = 256;

impl Server {
    /// Does what a client asks for, if it may, and answers.
    pub(super) fn request(&mut self, received: &Received, request: Request, out: &mut Outbox) {
        let to = received.sequence;
        let done = match request {
            Request::Reports {
                of,
                run,
                from,
                most,
            } => match self.reports(received, of, run, from, most, out) {
                Ok(()) => return,
                refused => refused,
            },
            Request::ClockPing { client_ns } => {
                let pong = Reply::ClockPong {
                    to,
                    client_ns,
                    received_ns: received.arrived.as_nanos(),
                    sent_ns: received.now.as_nanos(),
                };
                self.reply(received, &pong, out);
                return;
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
                let (rate, span) = (BitRate(rate_bps), Duration::from_nanos(for_ns));
                self.set_saturation(received, of, run, rate, bytes, span)
            }
            Request::Bye => {
                self.reply(received, &Reply::Done { to }, out);
                if let Some(session) = self.sessions.get_mut(&received.session) {
                    session.end();
                }
                return;
            }
        };
        let reply = match done {
            Ok(()) => Reply::Done { to },
            Err(reason) => {
                self.counters.refused += 1;
                Reply::Refused { to, reason }
            }
        };
        self.reply(received, &reply, out);
    }

    /// Seals and sends a reply unless the budgets are overdrawn. Returns whether it is sent.
    fn reply(&mut self, received: &Received, reply: &Reply, out: &mut Outbox) -> bool {
        let Some(session) = self.sessions.get_mut(&received.session) else {
            return false;
        };
        let body = reply.encode();
        let sealed = HEADER_BYTES + body.len() + TAG_BYTES;
        let length = Bytes(u64::from(session.overhead()) + sealed as u64);
        let budgets = [&mut session.budget, &mut self.total];
        if !Budget::take_for_report(budgets, received.now, length) {
            return false;
        }
        session.spend(length);
        out.push(session.address, |bytes| {
            session.channel.seal_control(&body, bytes);
        });
        true
    }

    /// The session that the request speaks of, if it is its sender's own or in the same group.
    fn session_of(&mut self, received: &Received, of: SessionId) -> Result<&mut Session, Refusal> {
        let own = self.sessions.get(&received.session);
        let group = own.and_then(|session| session.group);
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
        let session = self.session_of(received, of)?;
        session.run(run).ok_or(Refusal::NoSuchRun)
    }

    fn start(&mut self, received: &Received, of: SessionId, number: u32) -> Result<(), Refusal> {
        let limits = self.limits;
        let session = self.session_of(received, of)?;
        if session.run(number).is_some() {
            return Ok(());
        }
        if received.now >= session.probing_ends(&limits) {
            return Err(Refusal::TimeSpent(limits.duration.as_nanos()));
        }
        if session.runs.len() >= limits.runs as usize {
            let is_over = |run: &Run| run.stopped && run.log.is_fetched();
            let over = session.runs.iter().position(is_over);
            let over = over.ok_or(Refusal::RunsFull(limits.runs.into()))?;
            session.runs.remove(over);
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
        let run = session.run(number).filter(|run| !run.stopped);
        let run = run.ok_or(Refusal::NoSuchRun)?;
        if rate.0 > limits.rate.0 {
            return Err(Refusal::RateOverLimit(limits.rate.0));
        }
        if !(least..=limits.packet_bytes).contains(&bytes) {
            return Err(Refusal::PacketOutOfRange(least.into(), limits.packet_bytes));
        }
        if received.now >= ends {
            return Err(Refusal::TimeSpent(limits.duration.as_nanos()));
        }
        if spent {
            return Err(Refusal::BytesSpent(limits.bytes.0));
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
        let log = &mut self.run_of(received, of, number)?.log;
        log.acknowledge(from);
        let first = from.max(log.first);
        if log.chunks() < first.saturating_add(most) {
            log.close();
        }
        let chunks = log.chunks();
        let first = first.min(chunks);
        let last = first.saturating_add(most).min(chunks);
        for chunk in first..last.max(first.saturating_add(1)) {
            let report = self.run_of(received, of, number)?.report(chunk);
            if !self.reply(received, &Reply::Report(report), out) {
                break;
            }
        }
        Ok(())
    }
}
