//! Probes of clients, answers to trains, and saturation.

use cellbed_link::{Bytes, Time};

use super::limits::Limits;
use super::session::{Budget, Session};
use super::{Received, Server};
use crate::secure::Filler;
use crate::socket::Outbox;
use crate::wire::{Arrival, Kind, Probe, least_probe_bytes};

impl Server {
    /// Records the arrival of a probe, and answers its train if it is the first of that.
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

    /// Sends what is due of all saturations.
    pub(super) fn saturate(&mut self, now: Time, out: &mut Outbox) {
        for session in self.sessions.values_mut() {
            let probing = may_probe(session, &self.limits, now);
            if !probing {
                session.runs.iter_mut().for_each(|run| run.saturator = None);
            }
            if !probing || now.since(session.last_received) >= self.limits.silence {
                continue;
            }
            // Taken out, so that a run and its session can be changed at a time.
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

/// Return whether the session's time and bytes are not used up.
fn may_probe(session: &Session, limits: &Limits, now: Time) -> bool {
    now < session.probing_ends(limits) && session.bytes < limits.bytes
}
