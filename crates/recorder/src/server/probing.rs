//! Probes of clients, answers to trains, and saturation.

use cellbed_link::{Bytes, Time};

use crate::socket::Outbox;
use crate::wire::{Arrival, Kind, Probe, SessionId, ip_overhead, least_probe_bytes};

use super::budget::Budgets;
use super::limits::Limits;
use super::session::Session;
use super::{Received, Server};

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
        if answers && run.is_first_of(probe.train) {
            self.answer_train(received.session, received.now, probe, out);
        }
    }

    fn answer_train(&mut self, id: SessionId, now: Time, probe: &Probe, out: &mut Outbox) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        let length = Bytes(u64::from(probe.answer_packets) * u64::from(probe.answer_bytes));
        let mut budgets = Budgets {
            session: &mut session.budget,
            total: &mut self.total,
        };
        let allowed = probe.answer_packets <= self.limits.answer_packets
            && probe.answer_bytes >= least_probe_bytes(session.address.ip())
            && probe.answer_bytes <= self.limits.packet_bytes
            && budgets.take(now, length);
        if !allowed {
            self.counters.refused += 1;
            if let Some(run) = session.run(probe.run) {
                run.withheld = run.withheld.saturating_add(u32::from(probe.answer_packets));
            }
            return;
        }
        self.counters.answered += 1;
        session.spend(length);
        let payload = usize::from(probe.answer_bytes - ip_overhead(session.address.ip()));
        for index in 0..u32::from(probe.answer_packets) {
            let answer = Probe {
                index,
                answer_packets: 0,
                answer_bytes: 0,
                sent_ns: now.as_nanos(),
                ..*probe
            };
            out.push(session.address, |bytes| {
                let _ =
                    session
                        .channel
                        .seal_probe(Kind::Train, &answer, payload, &self.filler, bytes);
            });
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
            let mut sent = 0;
            for run in &mut session.runs {
                let Some(saturator) = &mut run.saturator else {
                    continue;
                };
                let length = Bytes(u64::from(saturator.bytes));
                let payload = usize::from(
                    saturator
                        .bytes
                        .saturating_sub(ip_overhead(session.address.ip())),
                );
                while saturator.emit(now) {
                    let mut budgets = Budgets {
                        session: &mut session.budget,
                        total: &mut self.total,
                    };
                    if !budgets.take(now, length) {
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
                    sent += length.0;
                    out.push(session.address, |bytes| {
                        let _ = session.channel.seal_probe(
                            Kind::Saturation,
                            &probe,
                            payload,
                            &self.filler,
                            bytes,
                        );
                    });
                }
                if saturator.next_event().is_none() {
                    run.saturator = None;
                }
            }
            session.spend(Bytes(sent));
        }
    }
}

/// Return whether the session's time and bytes are not used up.
fn may_probe(session: &Session, limits: &Limits, now: Time) -> bool {
    now < session.probing_ends(limits) && session.bytes < limits.bytes
}
