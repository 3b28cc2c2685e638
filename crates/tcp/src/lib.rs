//! One end of a TCP connection as a state machine: segments and times go in, segments come out.
//!
//! By default an end behaves like Linux: window scaling, timestamps, selective acknowledgements, an initial window of
//! ten (RFC 6928), CUBIC with HyStart or BBR with pacing, RACK with tail loss probes. It carries lengths instead of
//! data, and never closes: a connection ends when it is no longer used.
#![forbid(unsafe_code)]

mod congestion;
mod flight;
mod pacing;
pub mod proxy;
mod ranges;
mod rate;
mod receiver;
mod round_trip;
mod segment;
mod sender;
pub mod slab;

use cellbed_link::{Duration, Time};

pub use cellbed_laws::UNLIMITED;
pub use congestion::Control;
pub use receiver::Receiver;
use round_trip::{INITIAL_TIMEOUT, LEAST_VARIATION};
pub use segment::{Acknowledgement, BLOCKS, Burst, Segment, SegmentKind};
pub use sender::{Sender, Sending};
use serde::Deserialize;

/// Settings of both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tcp {
    /// The congestion control.
    pub control: Control,
    /// True if CUBIC's slow start may end before a loss.
    pub hystart: bool,
    /// True if the window shrinks while nothing is sent (Linux: `tcp_slow_start_after_idle`).
    pub idle_restart: bool,
    /// True if segments are paced under laws that do not pace (Linux: `SO_MAX_PACING_RATE`).
    pub pacing: bool,
    /// The initial window, segments.
    pub initial_window: u64,
    /// Maximum receive window, bytes; it begins with 64 KiB and is tuned as in Linux.
    pub receive_window: u64,
    /// Maximum send buffer, bytes; it keeps sent data until acknowledged.
    pub send_buffer: u64,
    /// Bytes of data in a full segment: the link's 1500 less 52 for headers over IPv4.
    pub segment: u64,
    /// Minimum variable part of the retransmission timeout (Linux: `tcp_rto_min_us`).
    #[serde(skip)]
    pub least_timeout: Duration,
    /// Tick of the kernel's clock, to which [`Tcp::expiry`] rounds timers. Zero: timers are exact.
    #[serde(skip)]
    pub tick: Duration,
}

impl Tcp {
    /// Return when a Linux timer set at `now` expires: never early, and later for longer delays. The wheel counts
    /// single ticks for delays below 63 ticks, and eight times as many in each higher level (`calc_index` and
    /// `calc_wheel_index` in kernel/time/timer.c).
    fn expiry(&self, now: Time, delay: Duration) -> Time {
        let tick = self.tick.as_nanos();
        if tick == 0 {
            return now + delay;
        }
        let ticks = delay.as_nanos().div_ceil(tick);
        let mut shift = 0;
        while ticks >> shift >= 63 {
            shift += 3;
        }
        let expires = now.as_nanos() / tick + ticks;
        Time::from_nanos((((expires >> shift) + 1) << shift).saturating_mul(tick))
    }
}

impl Default for Tcp {
    fn default() -> Self {
        Self {
            control: Control::Cubic,
            hystart: true,
            idle_restart: true,
            pacing: false,
            initial_window: 10,
            receive_window: 6 << 20,
            send_buffer: u64::MAX,
            segment: 1448,
            least_timeout: LEAST_VARIATION,
            tick: Duration::from_millis(4),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Closed,
    /// A SYN, or the answer to a SYN, waits for its answer.
    Opening {
        kind: SegmentKind,
        since: Time,
        due: Time,
        tries: u32,
    },
    Established,
}

/// One end of a connection.
#[derive(Clone, Debug)]
pub struct Socket {
    /// The sending half.
    pub sender: Sender,
    /// The receiving half.
    pub receiver: Receiver,
    phase: Phase,
    /// True if a SYN or its answer must leave.
    opening: bool,
}

impl Socket {
    /// Return an end that waits for the other's SYN.
    pub fn listening(tcp: Tcp) -> Self {
        Self {
            phase: Phase::Closed,
            opening: false,
            sender: Sender::new(tcp),
            receiver: Receiver::new(tcp),
        }
    }

    /// Return an end that sends its SYN now.
    pub fn connecting(tcp: Tcp, now: Time) -> Self {
        let mut socket = Self::listening(tcp);
        socket.open(now, SegmentKind::Syn, 0);
        socket
    }

    /// Return an end that replaces another one after its handshake.
    pub fn joining(tcp: Tcp) -> Self {
        Self {
            phase: Phase::Established,
            ..Self::listening(tcp)
        }
    }

    /// Return an end that continues after `sent` and `received` bytes of other ends, as after a restored checkpoint.
    pub fn resuming(tcp: Tcp, now: Time, sent: u64, received: u64) -> Self {
        let mut socket = Self::joining(tcp);
        socket.sender.resume(sent);
        socket.receiver.resume(now, received);
        socket
    }

    fn open(&mut self, now: Time, kind: SegmentKind, tries: u32) {
        self.opening = true;
        let due = now + Duration::from_nanos(INITIAL_TIMEOUT.as_nanos() << tries.min(6));
        self.phase = Phase::Opening {
            kind,
            since: now,
            due,
            tries,
        };
    }

    /// Return whether both ends have exchanged their SYNs, as far as this end knows.
    pub fn is_established(&self) -> bool {
        self.phase == Phase::Established
    }

    /// Process a segment from the other end. marked: the segment met congestion (ECN).
    pub fn receive(&mut self, now: Time, segment: &Segment, marked: bool) {
        if segment.length > 0 {
            self.receiver.note_mark(marked);
        }
        match (self.phase, segment.kind) {
            (Phase::Closed, SegmentKind::Syn) => {
                self.receiver.stamped(0, segment.stamp);
                self.open(now, SegmentKind::SynAck, 0);
            }
            (
                Phase::Opening {
                    kind: SegmentKind::SynAck,
                    since,
                    tries,
                    ..
                },
                SegmentKind::Syn,
            ) => {
                self.open(now.max(since), SegmentKind::SynAck, tries);
            }
            (
                Phase::Opening {
                    kind, since, tries, ..
                },
                other,
            ) if kind != other => {
                if tries == 0 {
                    self.sender.opened(now, now - since);
                }
                self.phase = Phase::Established;
                self.opening = false;
                self.established(now, segment);
            }
            (Phase::Established, _) => self.established(now, segment),
            _ => {}
        }
    }

    fn established(&mut self, now: Time, segment: &Segment) {
        match segment.kind {
            SegmentKind::Data if segment.length > 0 => {
                self.receiver
                    .receive(now, segment, self.sender.round_trip());
            }
            SegmentKind::Data => self.receiver.stamped(segment.start, segment.stamp),
            SegmentKind::Syn | SegmentKind::SynAck => {
                self.receiver.stamped(0, segment.stamp);
                self.receiver.acknowledge();
            }
        }
        if segment.kind != SegmentKind::Syn {
            self.sender
                .on_acknowledgement(now, &segment.acknowledgement);
        }
    }

    /// Return when the next timer is due.
    pub fn timer(&self) -> Option<Time> {
        match self.phase {
            Phase::Closed => None,
            Phase::Opening { due, .. } => Some(due),
            Phase::Established => match (self.sender.timer(), self.receiver.timer()) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            },
        }
    }

    /// Process due timers.
    pub fn tick(&mut self, now: Time) {
        match self.phase {
            Phase::Opening {
                kind, due, tries, ..
            } if due <= now => {
                self.open(now, kind, tries + 1);
            }
            Phase::Established => {
                self.sender.tick(now);
                self.receiver.tick(now);
            }
            _ => {}
        }
    }

    /// Return the next segment that leaves now; call until `None`.
    pub fn transmit(&mut self, now: Time) -> Option<Segment> {
        let (kind, start, end) = match self.phase {
            Phase::Opening { kind, .. } if self.opening => {
                self.opening = false;
                (kind, 0, 0)
            }
            Phase::Established => match self.sender.send(now) {
                Some((start, end)) => {
                    self.receiver.answered(now);
                    (SegmentKind::Data, start, end)
                }
                None if self.receiver.is_due() => {
                    let end = self.sender.written() - self.sender.unsent();
                    (SegmentKind::Data, end, end)
                }
                None => return None,
            },
            _ => return None,
        };
        Some(Segment {
            kind,
            start,
            length: end - start,
            acknowledgement: self.receiver.acknowledgement(),
            stamp: now,
            burst: self.sender.burst(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_expire_late_by_less_than_an_eighth() {
        let expiry = |tick, now, delay| {
            let tcp = Tcp {
                tick: Duration::from_millis(tick),
                ..Tcp::default()
            };
            tcp.expiry(Time::from_millis(now), Duration::from_millis(delay))
        };
        // Up to 248 ms in ticks, up to 2 s in steps of eight ticks, then of 64.
        for (now, delay, then) in [
            (0, 8, 12),
            (1, 201, 208),
            (1, 248, 252),
            (0, 252, 256),
            (37, 263, 320),
            (100, 1000, 1120),
            (0, 3000, 3072),
        ] {
            assert_eq!(expiry(4, now, delay), Time::from_millis(then), "{delay}");
        }
        assert_eq!(expiry(0, 37, 263), Time::from_millis(300));
    }
}
