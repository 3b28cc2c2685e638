//! The saturation that the server sends: requested again before it ends and, if it is adaptive, steered.

use cellbed_link::{BitRate, Duration, Time};

use super::path::{Relay, Relayed};
use super::run::Sender;
use super::session::Session;
use crate::plan::Saturation;
use crate::wire::{Probe, Request};
use crate::workload::QueueKeeper;

/// The server's saturation ends by itself after so long, so that it does not outlive its client; it is renewed well
/// before.
const LASTS: Duration = Duration::from_secs(30);
const RENEWED_AFTER: Duration = Duration::from_secs(5);

/// A saturation that is steered ends sooner, since it floods a path whose client can no longer steer it. Its rate is
/// chosen so often, and the server is informed of a change of more than this share.
const STEERED_LASTS: Duration = Duration::from_secs(10);
const STEERED_AGAIN: Duration = Duration::from_secs(2);
const STEER: Duration = Duration::from_millis(100);
const CHANGE: f64 = 0.03;

/// The server's saturation of one run.
pub(super) struct ServerSaturation {
    run: u32,
    /// IP length of its packets.
    bytes: u16,
    rate: Rate,
    /// When it was last requested, and until when it continues.
    requested: Option<Time>,
    until: Option<Time>,
}

enum Rate {
    Fixed(BitRate),
    Steered {
        keeper: Box<QueueKeeper>,
        /// When to choose the rate, and the last one sent to the server.
        at: Time,
        sent_rate: BitRate,
    },
}

impl ServerSaturation {
    /// As in `saturation`, at no more than `fastest` if it is adaptive.
    pub(super) fn new(
        run: u32,
        saturation: &Saturation,
        bytes: u16,
        fastest: BitRate,
        now: Time,
    ) -> Self {
        let rate = match *saturation {
            Saturation::Fixed { rate_bps } => Rate::Fixed(BitRate(rate_bps)),
            Saturation::Adaptive {
                least_delay_ns,
                most_delay_ns,
            } => {
                let delays = [least_delay_ns, most_delay_ns].map(Duration::from_nanos);
                let keeper = QueueKeeper::new(delays[0], delays[1], bytes, fastest, now);
                Rate::Steered {
                    keeper: Box::new(keeper),
                    at: now,
                    sent_rate: BitRate(0),
                }
            }
        };
        Self {
            run,
            bytes,
            rate,
            requested: None,
            until: None,
        }
    }

    /// Return whether the server has agreed to send.
    pub(super) fn is_granted(&self) -> bool {
        self.until.is_some()
    }

    /// When to request it again or steer it, in a run that ends at `end`.
    pub(super) fn due(&self, end: Time) -> Option<Time> {
        if let Rate::Steered { at, .. } = self.rate {
            return Some(at);
        }
        match (self.requested, self.until) {
            (None, _) => Some(Time::ZERO),
            (Some(_), Some(until)) if until >= end => None,
            (Some(requested), _) => Some(requested + RENEWED_AFTER),
        }
    }

    /// Asks for it, and steers it, where that is due.
    pub(super) fn renew(&mut self, now: Time, end: Time, sender: &mut Sender<'_>) {
        if self.due(end).is_none_or(|due| due > now) {
            return;
        }
        let (rate, span) = match &mut self.rate {
            Rate::Fixed(rate) => {
                self.requested = Some(now);
                if sender.session.is_saturating(self.run) {
                    return; // it is repeated until there is an answer
                }
                (*rate, LASTS.min(end - now))
            }
            Rate::Steered {
                keeper,
                at,
                sent_rate,
            } => {
                *at = now + STEER;
                let rate = keeper.choose(now);
                let again = |requested| now.since(requested) >= STEERED_AGAIN;
                let change = (rate.0 as f64 - sent_rate.0 as f64).abs();
                if !self.requested.is_none_or(again) && change <= CHANGE * sent_rate.0 as f64 {
                    return;
                }
                self.requested = Some(now);
                *sent_rate = rate;
                (rate, STEERED_LASTS.min(end - now))
            }
        };
        self.ask(rate, span, sender.session, sender.relay, now);
    }

    /// Has the server end it.
    pub(super) fn stop(&mut self, session: &mut Session, relay: &mut Relay, now: Time) {
        let goes_on = self.until.is_some_and(|until| until > now);
        if goes_on || matches!(self.rate, Rate::Steered { .. }) {
            self.ask(BitRate(0), Duration::ZERO, session, relay, now);
        } else if let Some(of) = session.id() {
            session.forget_saturation(of, self.run);
        }
    }

    /// Has the server saturate at this rate for so long, in place of earlier requests.
    fn ask(
        &self,
        rate: BitRate,
        span: Duration,
        session: &mut Session,
        relay: &mut Relay,
        now: Time,
    ) {
        let Some(of) = session.id() else {
            return;
        };
        session.forget_saturation(of, self.run);
        let request = Request::Saturate {
            of,
            run: self.run,
            rate_bps: rate.0,
            bytes: self.bytes,
            for_ns: span.as_nanos(),
        };
        if relay.is_used(now) {
            relay.outgoing.push(Relayed::Request(request));
        } else {
            session.request(request, now);
        }
    }

    /// The server sends for so long from now on. Returns since when it had not.
    pub(super) fn on_grant(&mut self, span: Duration, now: Time) -> Option<Time> {
        let paused = self.until.filter(|until| *until < now);
        self.until = Some(now + span);
        paused
    }

    /// The server has sent so many packets.
    pub(super) fn sent(&mut self, count: u32) {
        if let Rate::Steered { keeper, .. } = &mut self.rate {
            keeper.sent(count);
        }
    }

    /// One of them has arrived.
    pub(super) fn arrived(&mut self, probe: &Probe, at: Time) {
        if let Rate::Steered { keeper, .. } = &mut self.rate {
            keeper.arrived(at, probe.index, probe.sent_ns as i64, at.as_nanos() as i64);
        }
    }
}
