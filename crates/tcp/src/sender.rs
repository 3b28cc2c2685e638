//! The sending half of a connection's end: send times of segments, and loss recovery.

use std::collections::VecDeque;

use cellbed_laws::MOST_SHOWN;
use cellbed_link::{Duration, Time};

use super::Tcp;
use super::congestion::{
    AckSample, AnyController, Control, Pacing, Reduction, Repair, Usage, Window,
};
use super::flight::{Flight, NewlyAcked};
use super::pacing::{self, Pacer};
use super::rate::{Deliveries, Departure};
use super::receiver::FIRST;
use super::round_trip::{INITIAL_TIMEOUT, RoundTrip};
use super::segment::{Acknowledgement, Burst};

/// Number of sacked segments that prove a loss without a reordering window (`DupThresh`, RFC 8985 §6.2).
const DUPLICATES: u64 = 3;
/// Time that Linux adds to two round trips before probing for a lost tail: two ticks of its clock at 250 Hz.
const PROBE_SLACK: Duration = Duration::from_millis(8);
/// Minimum segments of a super-packet (Linux: `tcp_min_tso_segs`).
const LEAST_BURST: u64 = 2;

/// A sender with proportional rate reduction (RFC 6937), RACK and tail loss probes (RFC 8985), timeouts (RFC 6298) and
/// their undoing when an old stamp is echoed (Eifel, RFC 3522), as in Linux.
#[derive(Clone, Debug)]
pub struct Sender {
    tcp: Tcp,
    law: AnyController,
    window: Window,
    round_trip: RoundTrip,
    flight: Flight,
    /// Ends of the written, the sent and the acknowledged bytes.
    written: u64,
    next: u64,
    missing: u64,
    /// End of the receive window, as an offset.
    room: u64,
    state: State,
    timer: Option<(Time, Alarm)>,
    doubled: u32,
    /// Probe for a lost tail: end of the sent bytes at that time, and whether the probe was a retransmission.
    probe: Option<(u64, bool)>,
    probe_due: bool,
    last_sent: Option<Time>,
    /// True if a short segment waits for the previous one (RFC 896), and the end of the last short segment.
    nagle: bool,
    short: u64,
    usage: Usage,
    deliveries: Deliveries,
    pacer: Pacer,
    /// The super-packet of the last segment, its send time, and the bytes for which it has room.
    burst: (Burst, Time, u64),
    /// When pacing allows the waiting data.
    paced: Option<Time>,
    /// Number of lost segments, and of segments that arrived with a mark.
    lost: u64,
    marked: u64,
    /// Retransmitted segments, and timeouts without the handshake's.
    repairs: u64,
    timeouts: u64,
    /// Ends of writes among unsent bytes at which segments also end.
    cuts: VecDeque<u64>,
    /// True if the caller decides how much data may leave.
    released: bool,
}

/// State of a sender and its path, with the fields of Linux's `tcp_info`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sending {
    /// The congestion control.
    pub control: Control,
    /// Variables that the congestion control shows.
    pub shown: [u64; MOST_SHOWN],
    /// The congestion window, segments.
    pub window: u64,
    /// Window at which slow start ends, segments.
    pub threshold: f64,
    /// Bytes per second, if segments are paced.
    pub pacing: Option<f64>,
    /// The smoothed round-trip time after the first sample.
    pub round_trip: Option<Duration>,
    /// The latest round-trip sample.
    pub latest: Option<Duration>,
    /// Unacknowledged segments.
    pub outstanding: u64,
    /// Segments in flight.
    pub in_flight: u64,
    /// Bytes in a full segment.
    pub segment: u64,
    /// Bytes that the other end has acknowledged.
    pub acknowledged: u64,
    /// The receive window, bytes.
    pub room: u64,
    /// Number of segments detected as lost.
    pub lost: u64,
    /// Retransmitted segments.
    pub repairs: u64,
    /// Timeouts, without the handshake's.
    pub timeouts: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Open,
    /// Losses are repaired, up to the last byte sent before their detection.
    Recovery {
        end: u64,
        reduction: Reduction,
        /// Previous window and threshold.
        before: (f64, f64),
    },
    /// Losses are repaired after a timeout.
    Loss {
        end: u64,
        since: Time,
        before: (f64, f64),
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alarm {
    /// The reordering window of a segment ends.
    Reordering,
    /// The tail may be lost.
    Probe,
    /// The receiver's window has been closed for long.
    Persist,
    Timeout,
}

impl Sender {
    pub(crate) fn new(mut tcp: Tcp) -> Self {
        // Linux computes no rate under a law that sets the window at each acknowledgement.
        tcp.pacing &= !matches!(tcp.control, Control::Header(law) if law.owns_window());
        let mut window = Window::new(&tcp);
        Self {
            law: AnyController::new(&tcp, &mut window),
            window,
            round_trip: RoundTrip::new(tcp.least_timeout),
            flight: Flight::default(),
            written: 0,
            next: 0,
            missing: 0,
            room: 0,
            state: State::Open,
            timer: None,
            doubled: 0,
            probe: None,
            probe_due: false,
            last_sent: None,
            nagle: false,
            short: 0,
            usage: Usage::default(),
            deliveries: Deliveries::default(),
            pacer: Pacer::default(),
            burst: (Burst::default(), Time::ZERO, 0),
            paced: None,
            lost: 0,
            marked: 0,
            repairs: 0,
            timeouts: 0,
            cuts: VecDeque::new(),
            released: false,
            tcp,
        }
    }

    /// End a segment at the current end of the stream, as a proxy does that keeps packet boundaries.
    pub fn cut(&mut self) {
        self.cuts.push_back(self.written);
    }

    /// Send all written data at once, and retransmit losses without reducing the window.
    pub fn release_all(&mut self) {
        self.released = true;
    }

    /// Return whether the window is full.
    fn is_full(&self) -> bool {
        !self.released && self.flight.in_flight() >= self.window.segments()
    }

    /// Return whether the send buffer has room for the bytes up to `end` besides the unacknowledged ones.
    fn is_buffered(&self, end: u64) -> bool {
        end - self.missing <= self.tcp.send_buffer
    }

    /// Return the end of the next new segment.
    fn next_end(&self) -> u64 {
        let end = self.written.min(self.next + self.tcp.segment);
        self.cuts.front().map_or(end, |&cut| end.min(cut))
    }

    /// Append `bytes` to the stream.
    pub fn write(&mut self, now: Time, bytes: u64) {
        self.rest(now);
        let in_flight = self.flight.in_flight();
        if self.unsent() < self.tcp.segment
            && in_flight < self.window.segments()
            && !self.flight.has_lost()
        {
            self.deliveries.idle(in_flight);
        }
        self.written += bytes;
    }

    /// Delay short segments while another one is in flight, in Minshall's variant as in Linux.
    pub fn use_nagle(&mut self) {
        self.nagle = true;
    }

    /// Return the written bytes that have not been sent.
    pub fn unsent(&self) -> u64 {
        self.written - self.next
    }

    /// Return the bytes in the send buffer: written, not acknowledged.
    pub fn buffered(&self) -> u64 {
        self.written - self.missing
    }

    /// Return the bytes that the other end has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.missing
    }

    /// Return whether data segments are ECN-capable.
    pub fn uses_ecn(&self) -> bool {
        self.law.uses_ecn()
    }

    /// Return the bytes written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Return the state of the sender and of its path.
    pub fn state(&self) -> Sending {
        Sending {
            control: self.tcp.control,
            shown: self.law.shown(),
            window: self.window.segments(),
            threshold: self.window.threshold,
            pacing: self.pacing().map(|pacing| pacing.rate),
            round_trip: self.round_trip.smoothed(),
            latest: self.round_trip.latest(),
            outstanding: self.flight.length(),
            in_flight: self.flight.in_flight(),
            segment: self.tcp.segment,
            acknowledged: self.missing,
            room: self.room.saturating_sub(self.missing),
            lost: self.lost,
            repairs: self.repairs,
            timeouts: self.timeouts,
        }
    }

    /// Begin after a handshake of `span`.
    pub fn opened(&mut self, now: Time, span: Duration) {
        self.round_trip.on_sample(span, self.missing, self.next);
        self.law.on_established(&self.window, now, span);
    }

    /// Continue after `sent` acknowledged bytes, with the usual first window of a receiver.
    pub(crate) fn resume(&mut self, sent: u64) {
        (self.written, self.next, self.missing) = (sent, sent, sent);
        self.room = sent + FIRST;
    }

    pub(crate) fn round_trip(&self) -> &RoundTrip {
        &self.round_trip
    }

    /// Reduce the window after an idle time.
    fn rest(&mut self, now: Time) {
        let Some(last) = self
            .last_sent
            .filter(|_| self.flight.is_empty() && self.unsent() == 0)
        else {
            return;
        };
        let (idle, timeout) = (now - last, self.round_trip.timeout(0));
        if self.tcp.idle_restart && idle > timeout {
            self.law.on_idle(&mut self.window, idle, timeout);
        }
        self.law.on_write(now, idle);
    }

    /// Return start and end of the next segment that may leave.
    pub(crate) fn send(&mut self, now: Time) -> Option<(u64, u64)> {
        let span = if std::mem::take(&mut self.probe_due) {
            self.send_probe(now)
        } else if self.is_full() {
            self.note_usage(true);
            None
        } else if self.is_held_back(now) {
            return None;
        } else if self.flight.has_lost() {
            self.repairs += 1;
            let departure = self.depart(now);
            self.flight
                .retransmit_lost(now, departure, self.tcp.segment)
        } else {
            let span = self.send_new(now, self.nagle);
            self.note_usage(false);
            span
        };
        if let Some((start, end)) = span {
            self.pace(now, end - start);
            self.append(now, end - start);
            if let State::Recovery { reduction, .. } = &mut self.state {
                reduction.sent();
            }
            self.last_sent = Some(now);
            if !matches!(self.timer, Some((_, Alarm::Timeout | Alarm::Reordering))) {
                self.arm(now);
            }
        } else {
            if self.timer.is_none() && self.flight.is_empty() && self.unsent() > 0 {
                self.arm(now);
            }
            self.pacer.pause();
            self.burst.2 = 0;
        }
        span
    }

    /// Return the place of the last segment in its super-packet.
    pub(crate) fn burst(&self) -> Burst {
        self.burst.0
    }

    /// Add a segment to a super-packet.
    fn append(&mut self, now: Time, bytes: u64) {
        let (burst, at, room) = self.burst;
        let (burst, room) = if room >= bytes && at == now {
            let index = burst.index + 1;
            (Burst { index, ..burst }, room)
        } else {
            let number = burst.number.wrapping_add(1);
            (Burst { number, index: 0 }, self.largest_burst())
        };
        // A short segment ends the super-packet.
        let full = bytes == self.tcp.segment;
        self.burst = (
            burst,
            now,
            if full { room.saturating_sub(bytes) } else { 0 },
        );
    }

    /// Return the maximum bytes of a super-packet, also without pacing.
    fn largest_burst(&self) -> u64 {
        let pacing = self.law.pacing().or_else(|| self.assumed_pacing());
        pacing.map_or(u64::MAX, |pacing| pacing.quantum)
    }

    /// Return the pacing: that of the law, else Linux's assumed rate if the settings require pacing.
    fn pacing(&self) -> Option<Pacing> {
        let own = self.law.pacing();
        own.or_else(|| self.tcp.pacing.then(|| self.assumed_pacing()).flatten())
    }

    /// Return Linux's rate under laws that do not pace (`tcp_update_pacing_rate`), once there is a round trip: 200 %
    /// of the window in a smoothed round trip in slow start, then 120 % (`tcp_pacing_ss_ratio`, `tcp_pacing_ca_ratio`).
    fn assumed_pacing(&self) -> Option<Pacing> {
        let (window, segment) = (self.window.segments(), self.tcp.segment);
        let (Some(smoothed), Some(least)) = (self.round_trip.smoothed(), self.round_trip.least())
        else {
            return None;
        };
        let gain = if (window as f64) < self.window.threshold / 2.0 {
            2.0
        } else {
            1.2
        };
        let under_way = window.max(self.flight.in_flight()) * segment;
        let rate = gain * under_way as f64 / smoothed.as_secs_f64();
        let quantum = pacing::quantum(rate, segment, LEAST_BURST, least);
        Some(Pacing { rate, quantum })
    }

    /// Return whether pacing delays data that could leave. If so, `paced` is the time when it may.
    fn is_held_back(&mut self, now: Time) -> bool {
        self.paced = self.pacer.wait(now).filter(|_| {
            let full = self.next_end();
            self.flight.has_lost()
                || (full > self.next && full <= self.room && self.is_buffered(full))
        });
        self.paced.is_some()
    }

    fn pace(&mut self, now: Time, bytes: u64) {
        if let Some(pacing) = self.pacing() {
            self.pacer.sent(now, bytes, pacing.rate, pacing.quantum);
        }
    }

    fn depart(&mut self, now: Time) -> Departure {
        self.deliveries.depart(now, self.flight.is_empty())
    }

    /// Send a new segment. nagle: hold back a short segment after another one (RFC 896).
    fn send_new(&mut self, now: Time, nagle: bool) -> Option<(u64, u64)> {
        let end = self.next_end();
        if end == self.next || end > self.room {
            return None;
        }
        if !self.is_buffered(end) {
            // Linux: the application writes again when there is room. Its unsent data is then less than the window.
            self.deliveries.idle(self.flight.in_flight());
            return None;
        }
        self.send_until(now, end, nagle)
    }

    /// Send a new segment up to `end`; nagle: as in [`send_new`](Self::send_new).
    fn send_until(&mut self, now: Time, end: u64, nagle: bool) -> Option<(u64, u64)> {
        if end - self.next < self.tcp.segment {
            if nagle && self.short > self.missing {
                return None;
            }
            self.short = end;
        }
        let start = std::mem::replace(&mut self.next, end);
        while self.cuts.front().is_some_and(|&cut| cut <= end) {
            self.cuts.pop_front();
        }
        if self.flight.in_flight() == 0 && self.deliveries.is_idle() {
            self.law.on_restart(&mut self.window, now);
        }
        let departure = self.depart(now);
        self.flight.send(now, start, end, departure);
        Some((start, end))
    }

    /// Send a probe (RFC 8985 §7.3): new data if any, even data that Nagle's algorithm holds back.
    fn send_probe(&mut self, now: Time) -> Option<(u64, u64)> {
        if self.flight.is_empty() && self.unsent() > 0 {
            return self.send_into_closed_window(now);
        }
        let new = self.send_new(now, false);
        let repeated = new.is_none();
        let departure = self.depart(now);
        let span = new.or_else(|| self.flight.retransmit_last(now, departure));
        self.repairs += u64::from(repeated && span.is_some());
        self.probe = span.map(|_| (self.next, repeated));
        // The timeout is next, also if the last segment has arrived and there is no data to probe with.
        let timeout = self.round_trip.timeout(self.doubled);
        self.timer = Some((self.tcp.expiry(now, timeout), Alarm::Timeout));
        span
    }

    /// Send data within the window, or one byte beyond it (RFC 9293 §3.8.6.1), retransmitted as after a loss.
    fn send_into_closed_window(&mut self, now: Time) -> Option<(u64, u64)> {
        let end = self.next_end().min(self.room.max(self.next + 1));
        self.send_until(now, end, false)
    }

    /// Record whether the window limits sending.
    fn note_usage(&mut self, full: bool) {
        let held_back = full && self.unsent() > 0;
        let under_way = self.flight.length();
        self.usage
            .note(held_back, under_way, self.missing, self.next);
    }

    pub(crate) fn on_acknowledgement(&mut self, now: Time, ack: &Acknowledgement) {
        self.room = self.room.max(ack.upto + ack.window);
        let before = self.flight.in_flight();
        let answers = !self.flight.is_empty();
        let mut acked = self.flight.acknowledge(now, ack, self.round_trip.least());
        acked.advanced |= ack.upto > self.missing; // also by a part of a segment
        if acked.advanced {
            self.missing = ack.upto;
            self.doubled = 0;
        }
        if let Some((span, _)) = acked.round_trips {
            self.round_trip.on_sample(span, self.missing, self.next);
        }
        let progress = AckSample {
            now,
            segments: acked.segments,
            round_trip: acked.round_trips.map(|(_, last)| last),
            missing: self.missing,
            next: self.next,
            limited: self.usage.is_limited(&self.window),
            before,
            ..AckSample::default()
        };
        if let Some(span) = progress.round_trip {
            self.law.on_round_trip(&mut self.window, &progress, span);
        }
        self.on_probe_answer(ack);
        let (lost, next) = self.flight.detect_losses(now, self.reordering_window());
        let marked = ack.marked.saturating_sub(self.marked);
        self.marked += marked;
        let repairing = lost > 0 || self.state != State::Open;
        self.law
            .on_ecn(&mut self.window, &progress, marked, repairing);
        self.judge(&progress, &acked, lost, ack);
        // An acknowledgement without outstanding data is not passed to the law (Linux: tcp_ack).
        if answers {
            self.delivered(progress, &acked, lost);
        }
        match next {
            Some(at) if self.state == State::Open => self.timer = Some((at, Alarm::Reordering)),
            _ if acked.advanced || acked.segments > 0 || self.flight.is_empty() => self.arm(now),
            _ => {}
        }
    }

    /// Sample the delivery rate.
    fn delivered(&mut self, progress: AckSample, acked: &NewlyAcked, lost: u64) {
        self.lost += lost;
        let now = progress.now;
        let least = self.round_trip.least();
        let sample = self
            .deliveries
            .arrived(now, acked.segments, acked.latest, least);
        let ack = AckSample {
            sample,
            delivered: self.deliveries.count(),
            delivered_at: self.deliveries.at(),
            lost,
            all_lost: self.lost,
            in_flight: self.flight.in_flight(),
            smoothed: self.round_trip.smoothed(),
            // Linux: FLAG_ACK_MAYBE_DELAYED.
            is_delayed: acked.bytes < self.tcp.segment
                && sample.is_some_and(|sample| sample.before + 1 == self.deliveries.count()),
            repair: match self.state {
                State::Open => Repair::None,
                State::Recovery { .. } => Repair::Recovery,
                State::Loss { .. } => Repair::Timeout,
            },
            ahead: self.pacer.ahead(now),
            ..progress
        };
        self.law.on_delivery(&mut self.window, &ack);
        if self.law.is_draining() {
            self.deliveries.idle(self.flight.in_flight());
        }
    }

    /// Return the reordering window (RFC 8985 §6.2, step 4).
    fn reordering_window(&self) -> Duration {
        if self.state != State::Open || self.flight.sacked() >= DUPLICATES {
            return Duration::ZERO;
        }
        let quarter = self
            .round_trip
            .least()
            .map_or(0, |least| least.as_nanos() / 4);
        Duration::from_nanos(quarter)
    }

    fn judge(
        &mut self,
        progress: &AckSample,
        acked: &NewlyAcked,
        lost: u64,
        ack: &Acknowledgement,
    ) {
        match &mut self.state {
            State::Open if lost > 0 => self.enter_recovery(acked),
            State::Open => {
                if acked.advanced {
                    self.law.on_ack(&mut self.window, progress);
                }
            }
            State::Recovery { end, .. } if ack.upto >= *end => {
                self.state = State::Open;
                self.repair(self.window.threshold);
            }
            State::Recovery { reduction, .. } => {
                reduction.delivered(acked);
                let reduction = *reduction;
                self.reduce(reduction, acked, lost);
            }
            State::Loss { end, since, before } => {
                let (end, since, before) = (*end, *since, *before);
                if acked.advanced && ack.echo < since {
                    self.flight.undo_losses();
                    self.law.undo(&mut self.window, before.0, before.1);
                    self.state = State::Open;
                } else {
                    self.law.on_ack(&mut self.window, progress);
                    if ack.upto >= end {
                        self.state = State::Open;
                    }
                }
            }
        }
    }

    /// Return the window and threshold to restore after spurious losses (Linux: `tcp_current_ssthresh`).
    fn undoable(&self) -> (f64, f64) {
        let size = self.window.segments() as f64;
        (size, self.window.threshold.max((0.75 * size).floor()))
    }

    fn repair(&mut self, window: f64) {
        self.law.repair(&mut self.window, window);
    }

    fn enter_recovery(&mut self, acked: &NewlyAcked) {
        let before = self.undoable();
        self.law.on_loss(&mut self.window);
        self.probe = None;
        let reduction = Reduction::new(before.0 as u64, acked);
        self.state = State::Recovery {
            end: self.next,
            reduction,
            before,
        };
        self.reduce(reduction, acked, 1);
    }

    /// Set the window to the bytes that may be sent now.
    fn reduce(&mut self, reduction: Reduction, acked: &NewlyAcked, lost: u64) {
        let (in_flight, threshold) = (self.flight.in_flight(), self.window.threshold);
        self.repair(reduction.window(in_flight, threshold, acked, lost));
    }

    /// Process the answer to a probe (RFC 8985 §7.4).
    fn on_probe_answer(&mut self, ack: &Acknowledgement) {
        let Some((end, repeated)) = self.probe.filter(|&(end, _)| ack.upto >= end) else {
            return;
        };
        if !repeated || ack.duplicate {
            self.probe = None;
        } else if ack.upto > end {
            // The tail was lost, and only the probe detected it.
            self.probe = None;
            self.law.on_loss(&mut self.window);
            self.repair(self.window.threshold);
        }
    }

    pub(crate) fn timer(&self) -> Option<Time> {
        let timer = self.timer.map(|(at, _)| at);
        self.paced
            .map_or(timer, |paced| Some(timer.map_or(paced, |at| at.min(paced))))
    }

    pub(crate) fn tick(&mut self, now: Time) {
        self.paced.take_if(|paced| *paced <= now);
        let Some((_, alarm)) = self.timer.filter(|&(at, _)| at <= now) else {
            return;
        };
        self.timer = None;
        match alarm {
            Alarm::Reordering => {
                let (lost, next) = self.flight.detect_losses(now, self.reordering_window());
                self.lost += lost;
                if lost > 0 && self.state == State::Open {
                    self.enter_recovery(&NewlyAcked::default());
                }
                match next {
                    Some(at) => self.timer = Some((at, Alarm::Reordering)),
                    None => self.arm(now),
                }
            }
            Alarm::Probe | Alarm::Persist => self.probe_due = true,
            Alarm::Timeout => self.time_out(now),
        }
    }

    fn time_out(&mut self, now: Time) {
        self.timeouts += 1;
        let before = match self.state {
            State::Recovery { before, .. } => before,
            State::Loss { before, .. } if self.doubled > 0 => before,
            _ => {
                let before = self.undoable();
                self.law.on_loss(&mut self.window);
                before
            }
        };
        self.doubled += 1;
        self.state = State::Loss {
            end: self.next,
            since: now,
            before,
        };
        self.probe = None;
        // A caller that releases data knows the queue: the other segments wait there, as the answer to the first will
        // show.
        let since = if self.released { Time::ZERO } else { now };
        self.lost += self.flight.time_out(since);
        let timeout = AckSample {
            now,
            in_flight: self.flight.in_flight(),
            all_lost: self.lost,
            delivered: self.deliveries.count(),
            delivered_at: self.deliveries.at(),
            ..AckSample::default()
        };
        self.law.on_timeout(&mut self.window, &timeout);
        self.arm(now);
    }

    fn arm(&mut self, now: Time) {
        let timeout = self.round_trip.timeout(self.doubled);
        if self.flight.is_empty() {
            let waits = self.unsent() > 0 && self.next_end() > self.room;
            self.timer = waits.then(|| (self.tcp.expiry(now, timeout), Alarm::Persist));
            return;
        }
        let (delay, alarm) = match self.probe_delay() {
            Some(delay) => (delay.min(timeout), Alarm::Probe),
            None => (timeout, Alarm::Timeout),
        };
        self.timer = Some((self.tcp.expiry(now, delay), alarm));
    }

    /// Return the delay of a probe (RFC 8985 §7.2), with Linux's slack.
    fn probe_delay(&self) -> Option<Duration> {
        if self.state != State::Open || self.probe.is_some() {
            return None;
        }
        let twice = self
            .round_trip
            .smoothed()
            .map_or(INITIAL_TIMEOUT, |it| it + it);
        let alone = self.flight.length() == 1;
        Some(
            twice
                + if alone {
                    self.tcp.least_timeout
                } else {
                    PROBE_SLACK
                },
        )
    }
}
