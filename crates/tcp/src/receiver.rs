//! The receiving half of a connection's end, which orders data and decides when to acknowledge.

use cellbed_link::{Duration, Time};

use super::Tcp;
use super::ranges::Ranges;
use super::round_trip::RoundTrip;
use super::segment::{Acknowledgement, BLOCKS, Segment};

/// Minimum and usual delay of an acknowledgement in Linux (`TCP_ATO_MIN`), half of it, and the maximum.
const DELAY: Duration = Duration::from_millis(40);
const HALF_DELAY: Duration = Duration::from_millis(20);
const LONGEST_DELAY: Duration = Duration::from_millis(200);
/// Approximate time until a program has woken up and reads (60 to 270 µs measured, Linux 6.18).
const READING: Duration = Duration::from_micros(100);
/// Number of acknowledgements that Linux sends at once when data begins to flow (`TCP_MAX_QUICKACKS`), so that the
/// sender's window opens sooner.
const QUICK: u32 = 16;
/// Initially assumed length of a full segment (`TCP_MSS_DEFAULT`).
const FULL: u64 = 536;
/// Initial window of Linux with its usual initial buffer of 128 KiB, half of it reserved for overhead.
pub(super) const FIRST: u64 = 64 << 10;
/// Room of the initial buffer after full packets: seven eighths. With this bound, the first thirty or so segments are
/// acknowledged one by one, as by Linux 6.18.
const FIRST_BOUND: u64 = 112 << 10;
/// Segments that Linux assumes read in the first round trip.
const FIRST_ROUND: u64 = 10;

/// Acknowledges as Linux does. The first segments and those that open the window further are acknowledged at once, a
/// short one when the program reads it. Otherwise every second segment is; a single one after 40 ms or the usual gap
/// between segments, at a clock tick. An interactive connection also delays the first short one. Out-of-order segments
/// are acknowledged at once (RFC 5681 §4.2).
#[derive(Clone, Debug, Default)]
pub struct Receiver {
    tcp: Tcp,
    /// Bytes of a full segment as known so far, and whether a shorter segment is unacknowledged (Linux: `rcv_mss`,
    /// `ICSK_ACK_PUSHED`).
    full: u64,
    short: bool,
    window: ReceiveWindow,
    /// The window that the caller sets instead, and the end of the last offered window.
    room: Option<u64>,
    offered: u64,
    /// The first missing byte.
    next: u64,
    early: Ranges,
    /// Offsets within out-of-order parts, latest first.
    recent: [Option<u64>; BLOCKS],
    /// The offset of the last acknowledgement.
    acknowledged: u64,
    at_once: bool,
    delayed: Option<Time>,
    /// When the program reads a short segment (Linux: `tcp_cleanup_rbuf`).
    read: Option<Time>,
    /// The delay of an acknowledgement (Linux's `ato`), and its bound: the timeout of this end's sender.
    delay: Duration,
    timeout: Duration,
    quick: u32,
    /// Set after an answer has left soon after data: acknowledgements then travel with answers (Linux:
    /// `tcp_pingpong_thresh` of 1).
    interactive: bool,
    last: Option<Time>,
    duplicate: bool,
    echo: Time,
    /// Number of segments with a congestion mark, and whether the last one had a mark.
    marked: u64,
    is_marked: bool,
}

impl Receiver {
    pub(crate) fn new(tcp: Tcp) -> Self {
        Self {
            tcp,
            full: FULL.min(tcp.segment),
            window: ReceiveWindow::new(tcp.receive_window, tcp.segment),
            delay: DELAY,
            timeout: Duration::MAX,
            ..Self::default()
        }
    }

    /// Continue after `received` bytes.
    pub(crate) fn resume(&mut self, now: Time, received: u64) {
        (self.next, self.acknowledged, self.echo) = (received, received, now);
        self.window.began = Some((now, received));
    }

    /// Count a data segment with or without a congestion mark. A change is acknowledged at once (RFC 8257 §3.2).
    pub(crate) fn note_mark(&mut self, marked: bool) {
        self.marked += u64::from(marked);
        self.at_once |= marked != self.is_marked;
        self.is_marked = marked;
    }

    /// Return the bytes that have arrived in order.
    pub fn received(&self) -> u64 {
        self.next
    }

    /// Offer `room` bytes from now on, which must not shrink an offered window. A small window that has doubled is
    /// announced at once (Linux: `tcp_cleanup_rbuf`).
    pub fn offer(&mut self, room: u64) {
        let left = self.offered.saturating_sub(self.next);
        self.at_once |= room >= 2 * left && room >= left + 2 * self.tcp.segment;
        self.room = Some(room);
    }

    /// Acknowledge the next segment in any case.
    pub fn acknowledge(&mut self) {
        self.at_once = true;
    }

    /// Record a timestamp for the next acknowledgement to echo (RFC 7323 §4.3).
    pub(crate) fn stamped(&mut self, start: u64, stamp: Time) {
        if start <= self.acknowledged && stamp >= self.echo {
            self.echo = stamp;
        }
    }

    /// Process a data segment. round_trip: measured by this end's sender.
    pub(crate) fn receive(&mut self, now: Time, segment: &Segment, round_trip: &RoundTrip) {
        self.stamped(segment.start, segment.stamp);
        self.timeout = round_trip.timeout(0);
        let half = Duration::from_nanos(self.delay.as_nanos() / 2);
        match self.last.map(|last| now - last) {
            Some(gap) if gap <= HALF_DELAY => self.delay = half + HALF_DELAY,
            Some(gap) if gap < self.delay => self.delay = (half + gap).min(self.timeout),
            Some(gap) if gap <= self.timeout => {}
            _ => self.quick = QUICK,
        }
        self.last = Some(now);
        if segment.end() <= self.next {
            self.duplicate = true;
            self.at_once = true;
            return;
        }
        if segment.start > self.next || !self.early.is_empty() {
            self.at_once = true;
        }
        if self.window.grow(segment.length) {
            self.quick |= 1;
        }
        if segment.start > self.next {
            let mut new = false;
            self.early
                .insert(segment.start, segment.end(), |_, _| new = true);
            self.duplicate |= !new;
            self.note(segment.start);
            return;
        }
        self.next = segment.end();
        if let Some((_, end)) = self.early.around(self.next) {
            self.next = end;
        }
        self.early.forget_before(self.next);
        self.window
            .read(now, self.next, segment.acknowledgement.echo);
        self.full = self.full.max(segment.length.min(self.tcp.segment));
        let short = segment.length < self.full;
        let second = short && self.short;
        self.short |= short;
        if (self.quick > 0 && !self.interactive) || self.next - self.acknowledged > self.full {
            self.at_once = true;
        } else if second || (short && !self.interactive) {
            self.read.get_or_insert(now + READING);
        } else if self.delayed.is_none() {
            let most = round_trip.smoothed().unwrap_or(LONGEST_DELAY).max(DELAY);
            let delay = self.delay.min(most).min(LONGEST_DELAY);
            self.delayed = Some(self.tcp.expiry(now, delay));
        }
    }

    /// Return when the next acknowledgement is due.
    pub(crate) fn timer(&self) -> Option<Time> {
        self.read.into_iter().chain(self.delayed).min()
    }

    pub(crate) fn tick(&mut self, now: Time) {
        self.at_once |= self.read.take_if(|due| *due <= now).is_some();
        if self.delayed.is_some_and(|due| due <= now) {
            self.delayed = None;
            self.at_once = true;
            self.delay = if std::mem::take(&mut self.interactive) {
                DELAY
            } else {
                (self.delay + self.delay).min(self.timeout)
            };
        }
    }

    /// Return whether an acknowledgement must leave even without data.
    pub(crate) fn is_due(&self) -> bool {
        self.at_once
    }

    /// Record that data leaves in the other direction.
    pub(crate) fn answered(&mut self, now: Time) {
        self.interactive |= self.last.is_some_and(|last| now - last < self.delay);
    }

    /// Return the acknowledgement for a segment that leaves now.
    pub(crate) fn acknowledgement(&mut self) -> Acknowledgement {
        if self.at_once || self.delayed.is_some() {
            self.quick = self.quick.saturating_sub(1);
        }
        self.at_once = false;
        self.short = false;
        (self.delayed, self.read) = (None, None);
        self.acknowledged = self.next;
        let window = self.room.unwrap_or_else(|| self.window.offered());
        self.offered = self.next + window;
        let mut blocks = [(0, 0); BLOCKS];
        if !self.early.is_empty() {
            let mut filled = 0;
            for offset in self.recent.into_iter().flatten() {
                if let Some(span) = self.early.around(offset)
                    && !blocks[..filled].contains(&span)
                {
                    blocks[filled] = span;
                    filled += 1;
                }
            }
        }
        Acknowledgement {
            upto: self.next,
            blocks,
            duplicate: std::mem::take(&mut self.duplicate),
            echo: self.echo,
            window,
            marked: self.marked,
        }
    }

    /// Move the part of the stream around `offset` to the front of the out-of-order parts.
    fn note(&mut self, offset: u64) {
        let span = self.early.around(offset);
        let others = self.recent.map(|other| {
            other.filter(|&other| self.early.around(other).is_some_and(|it| Some(it) != span))
        });
        let mut others = others.into_iter().flatten();
        self.recent = [Some(offset), others.next(), others.next()];
    }
}

/// The receive window. Once per round trip its bound becomes twice the data read in the round trip, more if the data
/// has grown since the previous round trip (Linux's dynamic right-sizing, after Fisk & Feng, LACSI 2001). With each
/// segment the window grows by two towards its bound. The round trip falls to a shorter sample at once. It rises by an
/// eighth of the difference with each echo, to follow a growing queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReceiveWindow {
    largest: u64,
    bound: u64,
    offered: u64,
    /// Bytes read in the last round trip.
    round: u64,
    began: Option<(Time, u64)>,
    round_trip: Duration,
    /// Our last timestamp that the sender has echoed.
    echo: Time,
}

impl ReceiveWindow {
    pub fn new(largest: u64, segment: u64) -> Self {
        Self {
            largest,
            bound: FIRST_BOUND.min(largest),
            offered: FIRST.min(largest),
            round: FIRST_ROUND * segment,
            began: None,
            round_trip: Duration::MAX,
            echo: Time::ZERO,
        }
    }

    pub fn offered(&self) -> u64 {
        self.offered
    }

    /// Process the arrival of a segment. Return whether the window has grown.
    pub fn grow(&mut self, bytes: u64) -> bool {
        let grown = (self.offered + 2 * bytes).min(self.bound);
        let grows = grown > self.offered;
        self.offered = grown;
        grows
    }

    /// Record that the stream has been read up to `upto`. echo: our timestamp, echoed by the segment.
    pub fn read(&mut self, now: Time, upto: u64, echo: Time) {
        let sample = now - echo;
        if sample < self.round_trip {
            self.round_trip = sample;
        } else if echo > self.echo {
            let (before, sample) = (self.round_trip.as_nanos(), sample.as_nanos());
            self.round_trip = Duration::from_nanos(before - before / 8 + sample / 8);
        }
        self.echo = self.echo.max(echo);
        let (began, before) = *self.began.get_or_insert((now, 0));
        if now - began < self.round_trip {
            return;
        }
        let read = upto - before;
        if read > self.round {
            let twice = 2 * read;
            let wanted = twice + 2 * (twice * (read - self.round) / self.round);
            self.bound = self.bound.max(wanted.min(self.largest));
            self.round = read;
        }
        self.began = Some((now, upto));
    }
}

#[cfg(test)]
mod tests {
    use super::super::segment::{Burst, SegmentKind};
    use super::*;

    fn receiver() -> Receiver {
        Receiver::new(Tcp {
            segment: 1000,
            receive_window: 60_000,
            ..Tcp::default()
        })
    }

    fn data(start: u64, length: u64) -> Segment {
        Segment {
            kind: SegmentKind::Data,
            start,
            length,
            acknowledgement: Acknowledgement::default(),
            stamp: Time::ZERO,
            burst: Burst::default(),
        }
    }

    fn receive(receiver: &mut Receiver, at_ms: u64, start: u64) -> Option<Acknowledgement> {
        let round_trip = RoundTrip::new(Duration::from_millis(200));
        receiver.receive(Time::from_millis(at_ms), &data(start, 1000), &round_trip);
        receiver.is_due().then(|| receiver.acknowledgement())
    }

    #[test]
    fn the_first_segments_are_acknowledged_at_once_then_every_second() {
        let mut receiver = receiver();
        for index in 0..16 {
            assert!(receive(&mut receiver, index, 1000 * index).is_some());
        }
        assert_eq!(receive(&mut receiver, 20, 16_000), None);
        assert_eq!(receive(&mut receiver, 21, 17_000).unwrap().upto, 18_000);
        assert_eq!(receive(&mut receiver, 22, 18_000), None);
        // After 40 ms, at the next tick of 4 ms.
        assert_eq!(receiver.timer(), Some(Time::from_millis(64)));
        receiver.tick(Time::from_millis(64));
        assert!(receiver.is_due());
    }

    #[test]
    fn an_interactive_connection_acknowledges_the_second_short_segment_when_it_is_read() {
        let mut receiver = receiver();
        let round_trip = RoundTrip::new(Duration::from_millis(200));
        let mut short = |at_ms, start, length| {
            let now = Time::from_millis(at_ms);
            receiver.receive(now, &data(start, length), &round_trip);
            receiver.tick(now + READING);
            let due = receiver.is_due();
            if due {
                receiver.acknowledgement();
                receiver.answered(now);
            }
            due
        };
        assert!(short(0, 0, 100));
        assert!(!short(1, 100, 100));
        assert!(short(2, 200, 50));
        assert!(!short(3, 250, 500));
        // Longer than the 536 bytes of a full segment, until a longer segment has come.
        assert!(short(4, 750, 537));
        assert!(!short(5, 1287, 537));
        assert!(short(6, 1824, 10));
    }

    #[test]
    fn a_short_segment_is_acknowledged_with_those_that_arrive_before_it_is_read() {
        let mut receiver = receiver();
        receiver.full = 1000;
        let round_trip = RoundTrip::new(Duration::from_millis(200));
        receiver.receive(Time::ZERO, &data(0, 100), &round_trip);
        receiver.quick = 0; // of the 16 at the beginning
        receiver.acknowledgement();
        receiver.receive(Time::from_millis(1), &data(100, 200), &round_trip);
        assert!(!receiver.is_due());
        assert_eq!(receiver.timer(), Some(Time::from_millis(1) + READING));
        assert_eq!(receive(&mut receiver, 1, 300).unwrap().upto, 1300);
        assert_eq!(receiver.timer(), None);
    }

    #[test]
    fn holes_are_told_with_the_latest_part_first() {
        let mut receiver = receiver();
        receive(&mut receiver, 0, 0);
        receive(&mut receiver, 0, 2000);
        let ack = receive(&mut receiver, 0, 4000).unwrap();
        assert_eq!(ack.upto, 1000);
        assert_eq!(ack.blocks, [(4000, 5000), (2000, 3000), (0, 0)]);
        let ack = receive(&mut receiver, 0, 3000).unwrap();
        assert_eq!(ack.blocks, [(2000, 5000), (0, 0), (0, 0)]);
        assert!(receive(&mut receiver, 0, 3000).unwrap().duplicate);
        let ack = receive(&mut receiver, 0, 1000).unwrap();
        assert_eq!((ack.upto, ack.blocks), (5000, [(0, 0); 3]));
        assert!(receive(&mut receiver, 0, 1000).unwrap().duplicate);
    }
}
