//! The server's saturation: requested once for a whole run or, if adaptive, steered.

use cellbed_link::{BitRate, Duration, Time};

use super::session::Session;
use crate::wire::{Probe, Request};
use cellbed_calibration::plan::Saturation;
use cellbed_calibration::workload::QueueKeeper;

/// Duration of a steered saturation after a request, which floods a path whose client can no longer steer, and time
/// until the next request. Then the interval of choosing a rate, and the minimum relative change sent to the server.
const STEERED_LASTS: Duration = Duration::from_secs(10);
const STEERED_AGAIN: Duration = Duration::from_secs(2);
const STEER: Duration = Duration::from_millis(100);
const CHANGE: f64 = 0.03;

/// The server's saturation in a run.
pub(super) struct ServerSaturation {
    run: u32,
    /// IP length of the packets.
    bytes: u16,
    /// Rate last sent to the server.
    rate: BitRate,
    /// Chooses the rate of an adaptive saturation, and the time of the next choice.
    keeper: Option<(Box<QueueKeeper>, Time)>,
    /// Time of the last request, and end of the granted saturation.
    requested: Option<Time>,
    until: Option<Time>,
}

impl ServerSaturation {
    /// For `saturation`; the rate of an adaptive one is at most `fastest`.
    pub(super) fn new(
        run: u32,
        saturation: &Saturation,
        bytes: u16,
        fastest: BitRate,
        now: Time,
    ) -> Self {
        let (rate, keeper) = match *saturation {
            Saturation::Fixed { rate_bps } => (BitRate(rate_bps), None),
            Saturation::Adaptive {
                least_delay_ns,
                most_delay_ns,
            } => {
                let delays = [least_delay_ns, most_delay_ns].map(Duration::from_nanos);
                let keeper = QueueKeeper::new(delays[0], delays[1], bytes, fastest, now);
                (BitRate(0), Some((Box::new(keeper), now)))
            }
        };
        Self {
            run,
            bytes,
            rate,
            keeper,
            requested: None,
            until: None,
        }
    }

    /// Return whether the server has granted the saturation.
    pub(super) fn is_granted(&self) -> bool {
        self.until.is_some()
    }

    /// Return the time of the next request or choice of a rate.
    pub(super) fn due(&self) -> Option<Time> {
        match (&self.keeper, self.requested) {
            (Some((_, at)), _) => Some(*at),
            (None, None) => Some(Time::ZERO),
            (None, Some(_)) => None,
        }
    }

    /// Request or steer the saturation if due, in a run that ends at `end`.
    pub(super) fn renew(&mut self, now: Time, end: Time, session: &mut Session) {
        if self.due().is_none_or(|due| due > now) {
            return;
        }
        let mut span = end - now;
        if let Some((keeper, at)) = &mut self.keeper {
            *at = now + STEER;
            span = span.min(STEERED_LASTS);
            let (rate, before) = (keeper.choose(now), self.rate.0 as f64);
            let again = |requested| now.since(requested) >= STEERED_AGAIN;
            let change = (rate.0 as f64 - before).abs();
            if !self.requested.is_none_or(again) && change <= CHANGE * before {
                return;
            }
            self.rate = rate;
        }
        self.requested = Some(now);
        self.ask(self.rate, span, session);
    }

    /// End the saturation on the server.
    pub(super) fn stop(&mut self, session: &mut Session, now: Time) {
        let goes_on = self.until.is_some_and(|until| until > now);
        if goes_on || self.keeper.is_some() {
            self.ask(BitRate(0), Duration::ZERO, session);
        }
    }

    /// Request saturation at this rate for `span`.
    fn ask(&self, rate: BitRate, span: Duration, session: &mut Session) {
        session.request(Request::Saturate {
            run: self.run,
            rate_bps: rate.0,
            bytes: self.bytes,
            for_ns: span.as_nanos(),
        });
    }

    /// Record that the server sends for `span` from now on. Return the begin of a pause that this ends.
    pub(super) fn on_grant(&mut self, span: Duration, now: Time) -> Option<Time> {
        let paused = self.until.filter(|until| *until < now);
        self.until = Some(now + span);
        paused
    }

    /// Record that the server has sent `count` packets.
    pub(super) fn sent(&mut self, count: u32) {
        if let Some((keeper, _)) = &mut self.keeper {
            keeper.sent(count);
        }
    }

    /// Record the arrival of a packet.
    pub(super) fn arrived(&mut self, probe: &Probe, at: Time) {
        if let Some((keeper, _)) = &mut self.keeper {
            keeper.arrived(at, probe.index, probe.sent_ns as i64, at.as_nanos() as i64);
        }
    }
}
