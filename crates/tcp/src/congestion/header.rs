//! Laws of C headers, called by the rules of the kernel.

use cellbed_laws::{
    APP_LIMITED, Connection, Event, LARGEST, Law, MOST_SHOWN, REPAIR, Sample, UNLIMITED,
    WINDOW_LIMITED,
};
use cellbed_link::{Duration, Time};

use super::super::{Tcp, pacing};
use super::{AckSample, Controller, Delivery, Pacing, Repair, Timeout, Window};

#[derive(Clone, Debug)]
pub(crate) struct Header {
    window: Window,
    law: Connection,
    /// Bytes of data in a full segment.
    segment: u64,
    /// Bytes per second; 0: not paced.
    pacing_rate: u64,
    least: Option<Duration>,
    /// Segments that were found lost up to the last acknowledgement.
    lost: u64,
    /// An acknowledgement may grow the window.
    grows: bool,
}

impl Header {
    pub fn new(tcp: &Tcp, law: &'static Law) -> Self {
        let mut window = cellbed_laws::Window {
            cwnd: tcp.initial_window.min(LARGEST.into()) as u32,
            ssthresh: UNLIMITED,
            pacing_rate: 0,
        };
        let mut header = Self {
            law: Connection::new(law, &mut window),
            window: Window::new(tcp),
            segment: tcp.segment,
            pacing_rate: 0,
            least: None,
            lost: 0,
            grows: false,
        };
        header.apply(window);
        header
    }

    fn owns_window(&self) -> bool {
        self.law.law().owns_window()
    }

    /// Calls the law with the window, and sets the window that it returns.
    fn call(&mut self, call: impl FnOnce(&mut Connection, &mut cellbed_laws::Window)) {
        let threshold = self.window.threshold;
        let mut window = cellbed_laws::Window {
            cwnd: self.window.segments() as u32,
            ssthresh: threshold.min(UNLIMITED.into()) as u32,
            pacing_rate: self.pacing_rate,
        };
        call(&mut self.law, &mut window);
        self.apply(window);
    }

    fn apply(&mut self, window: cellbed_laws::Window) {
        self.window.size = window.cwnd.clamp(1, LARGEST).into();
        self.window.threshold = if window.ssthresh >= UNLIMITED {
            f64::INFINITY
        } else {
            window.ssthresh.into()
        };
        if self.owns_window() {
            self.pacing_rate = window.pacing_rate;
        }
    }
}

impl Controller for Header {
    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn on_round_trip(&mut self, _ack: &AckSample, round_trip: Duration) {
        self.least = Some(self.least.map_or(round_trip, |least| least.min(round_trip)));
    }

    fn on_ack(&mut self, _ack: &AckSample) {
        self.grows = true;
    }

    fn on_delivery(&mut self, delivery: &Delivery) {
        let grows = std::mem::take(&mut self.grows);
        if !grows && !self.owns_window() {
            return;
        }
        let mut sample = Sample {
            now_us: micros(delivery.now - Time::ZERO),
            acked: delivery.segments as u32,
            in_flight: delivery.in_flight as u32,
            prior_in_flight: delivery.before as u32,
            rtt_us: delivery.round_trip.map_or(0, |span| micros(span) as u32),
            srtt_us: delivery.smoothed.map_or(0, |span| micros(span) as u32),
            delivered: delivery.delivered as u32,
            mss: self.segment as u32,
            flags: if delivery.limited { WINDOW_LIMITED } else { 0 },
            ..Sample::default()
        };
        if self.owns_window() {
            // With those that a timer found.
            sample.lost =
                (delivery.all_lost - std::mem::replace(&mut self.lost, delivery.all_lost)) as u32;
            if delivery.repair != Repair::None {
                sample.flags |= REPAIR;
            }
            if let Some(rate) = delivery.sample {
                let segments = delivery.delivered - rate.before;
                sample.rate_delivered = segments as u32;
                sample.rate_interval_us = (segments as f64 / rate.rate * 1e6) as u32;
                sample.flags |= if rate.idle { APP_LIMITED } else { 0 };
            }
        }
        self.call(|law, window| law.ack(window, &sample));
    }

    fn on_loss(&mut self) {
        let size = self.window.size;
        self.call(|law, window| law.event(window, Event::Loss));
        self.window.size = size; // the sender reduces it, or the law at the next acknowledgement, as in the kernel
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        // Linux: tcp_enter_loss.
        self.window.size = (timeout.in_flight + 1) as f64;
        self.call(|law, window| law.event(window, Event::Timeout));
    }

    fn repair(&mut self, segments: f64) {
        if !self.owns_window() {
            self.window.size = segments.max(1.0);
        }
    }

    fn on_idle(&mut self, idle: Duration, timeout: Duration) {
        if !self.owns_window() {
            self.window.decay(idle, timeout);
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

/// Whole microseconds, at least one: zero stands for no measurement.
fn micros(span: Duration) -> u64 {
    (span.as_nanos() / 1000).max(1)
}
