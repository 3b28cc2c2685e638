//! Laws in C headers, called by the kernel's rules.

use cellbed_laws::{
    APP_LIMITED, Connection, Event, LARGEST, Law, MOST_SHOWN, REPAIR, Sample, UNLIMITED,
    WINDOW_LIMITED,
};
use cellbed_link::{Duration, Time};

use super::super::{Tcp, pacing};
use super::{AckSample, Controller, Pacing, Repair, Window};

#[derive(Clone, Debug)]
pub(crate) struct Header {
    law: Connection,
    /// Bytes of data in a full segment.
    segment: u64,
    /// Rate in bytes per second; 0: not paced.
    pacing_rate: u64,
    least: Option<Duration>,
    /// Number of segments detected as lost up to the last acknowledgement.
    lost: u64,
    /// True if an acknowledgement may grow the window.
    grows: bool,
}

impl Header {
    pub fn new(tcp: &Tcp, law: &'static Law, window: &mut Window) -> Self {
        let mut initial = cellbed_laws::Window {
            cwnd: tcp.initial_window.min(LARGEST.into()) as u32,
            ssthresh: UNLIMITED,
            pacing_rate: 0,
        };
        let mut header = Self {
            law: Connection::new(law, &mut initial),
            segment: tcp.segment,
            pacing_rate: 0,
            least: None,
            lost: 0,
            grows: false,
        };
        header.apply(initial, window);
        header
    }

    fn owns_window(&self) -> bool {
        self.law.law().owns_window()
    }

    /// Call the law with the window, and set the window that it returns.
    fn call(
        &mut self,
        window: &mut Window,
        call: impl FnOnce(&mut Connection, &mut cellbed_laws::Window),
    ) {
        let mut its = cellbed_laws::Window {
            cwnd: window.segments() as u32,
            ssthresh: window.threshold.min(UNLIMITED.into()) as u32,
            pacing_rate: self.pacing_rate,
        };
        call(&mut self.law, &mut its);
        self.apply(its, window);
    }

    fn apply(&mut self, its: cellbed_laws::Window, window: &mut Window) {
        window.size = its.cwnd.clamp(1, LARGEST).into();
        window.threshold = if its.ssthresh >= UNLIMITED {
            f64::INFINITY
        } else {
            its.ssthresh.max(1).into()
        };
        if self.owns_window() {
            self.pacing_rate = its.pacing_rate;
        }
    }
}

impl Controller for Header {
    fn on_round_trip(&mut self, _window: &mut Window, _ack: &AckSample, round_trip: Duration) {
        self.least = Some(self.least.map_or(round_trip, |least| least.min(round_trip)));
    }

    fn on_ack(&mut self, _window: &mut Window, _ack: &AckSample) {
        self.grows = true;
    }

    fn on_delivery(&mut self, window: &mut Window, ack: &AckSample) {
        let grows = std::mem::take(&mut self.grows);
        if !grows && !self.owns_window() {
            return;
        }
        let mut sample = Sample {
            now_us: micros(ack.now - Time::ZERO),
            acked: ack.segments as u32,
            in_flight: ack.in_flight as u32,
            prior_in_flight: ack.before as u32,
            rtt_us: ack.round_trip.map_or(0, |span| micros(span) as u32),
            srtt_us: ack.smoothed.map_or(0, |span| micros(span) as u32),
            delivered: ack.delivered as u32,
            mss: self.segment as u32,
            flags: if ack.limited { WINDOW_LIMITED } else { 0 },
            ..Sample::default()
        };
        if self.owns_window() {
            // Includes losses that a timer detected.
            sample.lost = (ack.all_lost - std::mem::replace(&mut self.lost, ack.all_lost)) as u32;
            if ack.repair != Repair::None {
                sample.flags |= REPAIR;
            }
            if let Some(rate) = ack.sample {
                let segments = ack.delivered - rate.before;
                sample.rate_delivered = segments as u32;
                sample.rate_interval_us = (segments as f64 / rate.rate * 1e6) as u32;
                sample.flags |= if rate.idle { APP_LIMITED } else { 0 };
            }
        }
        self.call(window, |law, its| law.ack(its, &sample));
    }

    fn on_loss(&mut self, window: &mut Window) {
        let size = window.size;
        self.call(window, |law, its| law.event(its, Event::Loss));
        window.size = size; // the sender reduces it, or the law at the next acknowledgement, as in the kernel
    }

    fn on_timeout(&mut self, window: &mut Window, timeout: &AckSample) {
        // Linux: tcp_enter_loss.
        window.size = (timeout.in_flight + 1) as f64;
        self.call(window, |law, its| law.event(its, Event::Timeout));
    }

    fn repair(&mut self, window: &mut Window, segments: f64) {
        if !self.owns_window() {
            window.size = segments.max(1.0);
        }
    }

    fn on_idle(&mut self, window: &mut Window, idle: Duration, timeout: Duration) {
        if !self.owns_window() {
            window.decay(idle, timeout);
        }
    }

    fn shown(&self) -> [u64; MOST_SHOWN] {
        self.law.shown()
    }

    fn pacing(&self) -> Option<Pacing> {
        (self.pacing_rate > 0).then(|| {
            let rate = self.pacing_rate as f64;
            let least = self.least.unwrap_or(Duration::MAX);
            let quantum = pacing::quantum(rate, self.segment, 2, least);
            Pacing { rate, quantum }
        })
    }
}

/// Return whole microseconds, at least one: zero means no measurement.
fn micros(span: Duration) -> u64 {
    (span.as_nanos() / 1000).max(1)
}
