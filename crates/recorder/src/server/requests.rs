//! Requests and probes of clients, answers to trains, saturation.

use cellbed_link::{BitRate, Bytes, Duration, Time};

use super::limits::Limits;
use super::run::{Run, Saturator};
use super::session::{Budget, Session};
use super::{Received, Server};
use crate::secure::Filler;
use crate::socket::Outbox;
use crate::wire::{
    Arrival, Field, HEADER_BYTES, Kind, Probe, Refusal, Reply, Request, SessionId, TAG_BYTES,
    least_probe_bytes,
};

/// Maximum reports per request.
const REPORTS_AT_MOST: u16 = 256;

impl Server {
    /// Execute a client's request, if permitted, and answers.
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

    /// Seal and send a reply unless a budget is overdrawn. Return whether it was sent.
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

    /// Return the session that a request names, if it is the sender's own or in the same group.
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

    /// Send chunks of a run, as many as exist and budgets permit.
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

    /// Record the arrival of a probe. Answers the train if the probe is its first.
    pub(super) fn probe(
        &mut self,
        received: &Received,
        kind: Kind,
        probe: &Probe,
        out: &mut Outbox,
    ) {
        let Some(session) = self.sessions.get_mut(&received.session) else {
            return;
        };
        if !may_probe(session, &self.limits, received.now) {
            return self.counters.refused += 1;
        }
        let full = session.report_memory() >= self.limits.report_bytes;
        let Some(run) = session.run(probe.run).filter(|run| !run.stopped) else {
            return self.counters.stray += 1;
        };
        if full {
            run.unrecorded = run.unrecorded.saturating_add(1);
            self.counters.unrecorded += 1;
        } else if run.admits(received.again) {
            self.counters.recorded += 1;
            run.log.push(Arrival {
                train: probe.train,
                index: probe.index,
                bytes: received.length,
                arrived_ns: received.arrived.as_nanos(),
            });
        }
        let answers =
            kind == Kind::Train && probe.answer_packets > 0 && received.proved && !received.again;
        if !answers || !run.is_first_of(probe.train) {
            return;
        }
        let (packets, bytes) = (probe.answer_packets, probe.answer_bytes);
        let length = Bytes(u64::from(packets) * u64::from(bytes));
        let lengths = least_probe_bytes(session.address.ip())..=self.limits.packet_bytes;
        let budgets = [&mut session.budget, &mut self.total];
        let allowed = packets <= self.limits.answer_packets
            && lengths.contains(&bytes)
            && Budget::take(budgets, received.now, length);
        if !allowed {
            self.counters.refused += 1;
            if let Some(run) = session.run(probe.run) {
                run.withheld = run.withheld.saturating_add(u32::from(packets));
            }
            return;
        }
        self.counters.answered += 1;
        session.spend(length);
        for index in 0..u32::from(packets) {
            let answer = Probe {
                index,
                answer_packets: 0,
                answer_bytes: 0,
                sent_ns: received.now.as_nanos(),
                ..*probe
            };
            send(session, Kind::Train, &answer, bytes, &self.filler, out);
        }
    }

    /// Send the due packets of all saturations.
    pub(super) fn saturate(&mut self, now: Time, out: &mut Outbox) {
        for session in self.sessions.values_mut() {
            let probing = may_probe(session, &self.limits, now);
            if !probing {
                session.runs.iter_mut().for_each(|run| run.saturator = None);
            }
            if !probing || now.since(session.last_received) >= self.limits.silence {
                continue;
            }
            // Taken out, to allow changes of a run and its session together.
            let mut runs = std::mem::take(&mut session.runs);
            for run in &mut runs {
                let Some(saturator) = &mut run.saturator else {
                    continue;
                };
                let (bytes, length) = (saturator.bytes, Bytes(u64::from(saturator.bytes)));
                while saturator.emit(now) {
                    let budgets = [&mut session.budget, &mut self.total];
                    if !Budget::take(budgets, now, length) {
                        run.withheld = run.withheld.saturating_add(1);
                        continue;
                    }
                    let probe = Probe {
                        run: run.number,
                        train: 0,
                        index: run.saturation_sent,
                        answer_packets: 0,
                        answer_bytes: 0,
                        sent_ns: now.as_nanos(),
                    };
                    run.saturation_sent = run.saturation_sent.wrapping_add(1);
                    session.spend(length);
                    send(session, Kind::Saturation, &probe, bytes, &self.filler, out);
                }
                if saturator.next_event().is_none() {
                    run.saturator = None;
                }
            }
            session.runs = runs;
        }
    }
}

/// Seal a probe of `bytes` (IP length) for the client of a session.
fn send(
    session: &mut Session,
    kind: Kind,
    probe: &Probe,
    bytes: u16,
    filler: &Filler,
    out: &mut Outbox,
) {
    let payload = usize::from(bytes.saturating_sub(session.overhead()));
    out.push(session.address, |datagram| {
        let channel = &mut session.channel;
        channel.seal_probe(kind, probe, payload, filler, datagram);
    });
}

/// Return whether the session has time and bytes left.
fn may_probe(session: &Session, limits: &Limits, now: Time) -> bool {
    now < session.probing_ends(limits) && session.bytes < limits.bytes
}
