//! Congestion control of a sender.

use cellbed_link::{BitRate, Duration, Time};

use super::Flow;

/// Congestion control of a sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Control {
    /// Additive increase by a packet per round trip, and a halved window after losses and marks alike (RFC 5681).
    Reno,
    /// The window follows the share of marked packets, once per window of data (RFC 8257 §3.3, with an increase on
    /// every acknowledgement, as in the analysis of RFC 9332 Appendix C.2). A loss halves the window. Below a
    /// round-trip time of `typical`, the increase per round trip is smaller in proportion, so that the flow is no
    /// faster than with `typical`.
    Scalable { typical: Duration },
    /// A constant window of this many packets.
    Window(u64),
    /// A constant sending rate.
    Constant(BitRate),
}

impl Control {
    /// RFC 8257 with less dependence on the round-trip time: 25 ms (RFC 9332 Appendix C.2).
    pub const PRAGUE: Self = Self::Scalable {
        typical: Duration::from_millis(25),
    };
}

/// Initial window, packets (RFC 6928).
const INITIAL: f64 = 10.0;

pub(super) struct Sender {
    flow: Flow,
    window: f64,
    slow_start: bool,
    /// Number of the next packet, and of the first packet neither acknowledged nor known to be lost.
    next: u64,
    first: u64,
    /// Packets that will still be acknowledged.
    alive: u64,
    /// Packets before this number belong to a round trip whose congestion is answered.
    answered: u64,
    timeout: Option<Time>,
    /// Next send time of a constant sender.
    due: Time,
    /// The scalable sender's estimate, and the counts for it: the last packet of the round, the packets
    /// acknowledged in it, and the marked ones among them.
    alpha: f64,
    round_end: u64,
    acknowledged: f64,
    marked: f64,
}

impl Sender {
    pub(super) fn new(flow: Flow) -> Self {
        let window = match flow.control {
            Control::Window(packets) => packets as f64,
            _ => INITIAL,
        };
        Self {
            window,
            slow_start: true,
            next: 0,
            first: 0,
            alive: 0,
            answered: 0,
            timeout: None,
            due: flow.starts,
            alpha: 1.0,
            round_end: 0,
            acknowledged: 0.0,
            marked: 0.0,
            flow,
        }
    }

    /// Returns when the sender next acts without an acknowledgement.
    pub(super) fn timer(&self) -> Option<Time> {
        match self.flow.control {
            Control::Constant(_) => Some(self.due).filter(|&due| due < self.flow.stops),
            _ if self.next == 0 => Some(self.flow.starts),
            _ => self.timeout,
        }
    }

    pub(super) fn tick(&mut self, now: Time) {
        if self.timeout.is_some_and(|timeout| timeout <= now) {
            self.timeout = None;
            self.first = self.next;
            self.answered = self.next;
            if !matches!(self.flow.control, Control::Window(_)) {
                self.window = 1.0;
                self.slow_start = false;
            }
        }
    }

    /// Returns the number of a packet to send now.
    pub(super) fn send(&mut self, now: Time) -> Option<u64> {
        if now < self.flow.starts || now >= self.flow.stops {
            return None;
        }
        match self.flow.control {
            Control::Constant(rate) => {
                if now < self.due {
                    return None;
                }
                self.due += rate.time_for(self.flow.size)?;
            }
            _ if self.next - self.first >= self.window as u64 => return None,
            _ => {}
        }
        self.next += 1;
        self.alive += 1;
        Some(self.next - 1)
    }

    /// Notes a dropped packet. The sender detects the loss by a later packet or a timeout.
    pub(super) fn dropped(&mut self, now: Time) {
        self.alive -= 1;
        self.listen(now);
    }

    pub(super) fn acknowledged(&mut self, now: Time, number: u64, marked: bool) {
        self.alive -= 1;
        if number < self.first {
            return; // after a timeout
        }
        let lost = number > self.first;
        self.first = number + 1;
        self.listen(now);
        match self.flow.control {
            Control::Reno => {
                if (lost && number > self.answered) || (marked && number >= self.answered) {
                    self.decrease(0.5);
                } else if number >= self.answered {
                    self.increase(1.0);
                }
            }
            Control::Scalable { typical } => {
                let round_trip = self.flow.round_trip;
                let increase = round_trip.as_secs_f64() / round_trip.max(typical).as_secs_f64();
                self.scale(number, lost, marked, increase);
            }
            Control::Window(_) | Control::Constant(_) => {}
        }
    }

    fn scale(&mut self, number: u64, lost: bool, marked: bool, increase: f64) {
        self.acknowledged += 1.0;
        if lost && number > self.answered {
            self.decrease(0.5);
        } else if marked && self.marked == 0.0 {
            self.decrease(1.0 - self.alpha / 2.0);
        } else {
            self.increase(increase);
        }
        self.marked += f64::from(u8::from(marked));
        if number >= self.round_end {
            self.alpha += (self.marked / self.acknowledged - self.alpha) / 16.0;
            (self.acknowledged, self.marked) = (0.0, 0.0);
            self.round_end = self.next;
        }
    }

    fn increase(&mut self, packets: f64) {
        self.window += if self.slow_start {
            1.0
        } else {
            packets / self.window
        };
    }

    fn decrease(&mut self, share: f64) {
        self.window = (self.window * share).max(2.0);
        self.slow_start = false;
        self.answered = self.next;
    }

    /// Starts the timeout if all packets in flight were dropped.
    fn listen(&mut self, now: Time) {
        let silent = self.alive == 0 && self.next > self.first;
        let patience = Duration::from_millis(200) + self.flow.round_trip + self.flow.round_trip;
        self.timeout = silent.then(|| now + patience);
    }
}
