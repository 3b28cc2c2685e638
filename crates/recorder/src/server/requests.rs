//! Requests and probes of clients, answers to trains, saturation.

use cellbed_link::{BitRate, Bytes, Duration, Time};

use super::connections::{Connection, State};
use super::run::{Run, Saturator};
use super::session::{Budget, Session};
use super::{Received, Server};
use crate::secure::Filler;
use crate::socket::Outbox;
use crate::wire::{Arrival, Kind, Probe, Refusal, Reply, Request, least_probe_bytes};

/// Maximum reports per request.
const REPORTS_AT_MOST: u32 = 256;

impl Server {
    /// Execute a client's request, if permitted, and answer.
    pub(super) fn request(&mut self, now: Time, connection: &mut Connection, request: Request) {
        let Some(session) = connection.session() else {
            return;
        };
        let done = match request {
            Request::Check => Ok(()),
            Request::Start { run } => self.start(now, session, run),
            Request::Stop { run } => session.run(run).map(Run::stop).ok_or(Refusal::NoSuchRun),
            Request::Saturate {
                run,
                rate_bps,
                bytes,
                for_ns,
            } => {
                let (rate, span) = (BitRate(rate_bps), Duration::from_nanos(for_ns));
                self.set_saturation(now, session, run, rate, bytes, span)
            }
            Request::Reports { run } => self.reports(now, connection, run),
            Request::Bye => {
                connection.state = State::Closing;
                return;
            }
        };
        let reply = match done {
            Ok(()) => Reply::Done,
            Err(reason) => {
                self.counters.refused += 1;
                Reply::Refused(reason)
            }
        };
        self.reply(now, connection, &reply);
    }

    fn start(&self, now: Time, session: &mut Session, number: u32) -> Result<(), Refusal> {
        let limits = &self.limits;
        if session.run(number).is_some() {
            return Ok(());
        }
        if now >= session.probing_ends(limits) {
            return Err(Refusal::TimeSpent(limits.duration.as_nanos()));
        }
        if session.runs.len() >= limits.runs as usize {
            let is_over = |run: &Run| run.stopped && run.log.chunks() == 0;
            let over = session.runs.iter().position(is_over);
            let over = over.ok_or(Refusal::RunsFull(limits.runs.into()))?;
            session.runs.remove(over);
        }
        session.runs.push(Run::new(number));
        Ok(())
    }

    fn set_saturation(
        &self,
        now: Time,
        session: &mut Session,
        number: u32,
        rate: BitRate,
        bytes: u16,
        span: Duration,
    ) -> Result<(), Refusal> {
        let limits = &self.limits;
        let least = least_probe_bytes(session.receiver());
        let (ends, spent) = (session.probing_ends(limits), session.bytes >= limits.bytes);
        let run = session.run(number).filter(|run| !run.stopped);
        let run = run.ok_or(Refusal::NoSuchRun)?;
        if rate.0 > limits.rate.0 {
            return Err(Refusal::RateOverLimit(limits.rate.0));
        }
        if !(least..=limits.packet_bytes).contains(&bytes) {
            return Err(Refusal::PacketOutOfRange(least.into(), limits.packet_bytes));
        }
        if now >= ends {
            return Err(Refusal::TimeSpent(limits.duration.as_nanos()));
        }
        if spent {
            return Err(Refusal::BytesSpent(limits.bytes.0));
        }
        let before = run.saturator.take();
        let end = ends.min(now + span);
        run.saturator =
            (rate.0 > 0).then(|| Saturator::new(rate, bytes, now, end, before.as_ref()));
        Ok(())
    }

    /// Send the arrivals of a run that were not sent yet, up to a maximum, or only the state of the run.
    fn reports(
        &mut self,
        now: Time,
        connection: &mut Connection,
        number: u32,
    ) -> Result<(), Refusal> {
        for _ in 0..REPORTS_AT_MOST {
            let run = connection.session().and_then(|it| it.run(number));
            let report = run.ok_or(Refusal::NoSuchRun)?.report();
            let more = report.left > 0;
            self.reply(now, connection, &Reply::Report(report));
            if !more {
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
        let connection = self.connections.get_mut(&received.session);
        let Some(session) = connection.and_then(Connection::session) else {
            return;
        };
        if !session.may_probe(&self.limits, received.now) {
            return self.counters.refused += 1;
        }
        let full = session.report_memory() >= self.limits.report_bytes;
        let Some(run) = session.run(probe.run).filter(|run| !run.stopped) else {
            return self.counters.stray += 1;
        };
        if full {
            run.counts.unrecorded = run.counts.unrecorded.saturating_add(1);
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
        let lengths = least_probe_bytes(session.receiver())..=self.limits.packet_bytes;
        let budgets = [&mut session.budget, &mut self.total];
        let allowed = packets <= self.limits.answer_packets
            && lengths.contains(&bytes)
            && Budget::take(budgets, received.now, length, Duration::ZERO);
        if !allowed {
            self.counters.refused += 1;
            if let Some(run) = session.run(probe.run) {
                run.counts.withheld = run.counts.withheld.saturating_add(u32::from(packets));
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
        let connections = self.connections.values_mut();
        for session in connections.filter_map(Connection::session) {
            let probing = session.may_probe(&self.limits, now);
            if !probing {
                session.runs.iter_mut().for_each(|run| run.saturator = None);
            }
            let silent = now.since(session.last_received) >= self.limits.silence;
            if !probing || silent || session.address.is_none() {
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
                    if !Budget::take(budgets, now, length, Duration::ZERO) {
                        run.counts.withheld = run.counts.withheld.saturating_add(1);
                        continue;
                    }
                    let probe = Probe {
                        run: run.number,
                        train: 0,
                        index: run.counts.saturation_sent,
                        answer_packets: 0,
                        answer_bytes: 0,
                        sent_ns: now.as_nanos(),
                    };
                    run.counts.saturation_sent = run.counts.saturation_sent.wrapping_add(1);
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
    let Some(address) = session.address else {
        return;
    };
    out.push(address, |datagram| {
        let channel = &mut session.channel;
        channel.seal_probe(kind, probe, payload, filler, datagram);
    });
}
