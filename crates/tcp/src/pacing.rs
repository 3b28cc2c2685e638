//! Pacing: segments leave at a rate instead of all at once.

use cellbed_link::{Duration, Time};

/// Segments that leave before pacing begins in Linux.
const UNPACED: u64 = 10;
/// Linux sends what takes about a millisecond at a time (its `sk_pacing_shift`).
const TICK: f64 = 1.0 / 1024.0;
/// The largest burst, bytes.
const LARGEST: f64 = 65_536.0;
/// The burst of a path without delay is the largest, and half of it for each such part of its delay (its
/// `tcp_tso_rtt_log`).
const HALVED: Duration = Duration::from_nanos(512_000);

/// Bursts at a rate, as Linux's TCP sends them without the help of a queueing discipline.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pacer {
    /// When the next burst may leave.
    next: Time,
    /// Bytes that still belong to the burst.
    burst: u64,
    /// Delay of the burst behind its schedule.
    late: Duration,
    sent: u64,
}

impl Pacer {
    /// When the next segment may leave, if not now.
    pub fn wait(&self, now: Time) -> Option<Time> {
        (self.burst == 0 && self.next > now).then_some(self.next)
    }

    /// Until the next burst may leave.
    pub fn ahead(&self, now: Time) -> Duration {
        self.next - now
    }

    /// A segment leaves. rate: bytes per second. quantum: bytes of a burst.
    pub fn sent(&mut self, now: Time, bytes: u64, rate: f64, quantum: u64) {
        if self.burst == 0 {
            self.late = now - self.next;
            self.next = self.next.max(now);
            self.burst = quantum;
        }
        self.burst = self.burst.saturating_sub(bytes);
        self.sent += 1;
        if self.sent >= UNPACED {
            let takes = (bytes as f64 / rate * 1e9) as u64;
            // A late burst is followed sooner, by half at most.
            let sooner = Duration::from_nanos(takes / 2).min(self.late);
            self.late = self.late.saturating_sub(sooner);
            self.next += Duration::from_nanos(takes).saturating_sub(sooner);
        }
    }

    /// Nothing more can leave now: what comes is another burst.
    pub fn pause(&mut self) {
        self.burst = 0;
    }
}

/// Bytes of a burst at a rate in bytes per second, at least so many segments. least: the shortest round trip.
pub(super) fn quantum(rate: f64, segment: u64, at_least: u64, least: Duration) -> u64 {
    let halvings = (least.as_nanos() / HALVED.as_nanos()).min(63);
    let bytes = (rate * TICK + LARGEST / (1u64 << halvings) as f64).min(LARGEST);
    (bytes as u64 / segment).max(at_least) * segment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_follow_each_other_at_the_rate() {
        let mut pacer = Pacer::default();
        let mut left = Vec::new();
        let mut now = Time::ZERO;
        for _ in 0..14 {
            now = pacer.wait(now).unwrap_or(now);
            left.push(now.as_nanos() / 1_000_000);
            pacer.sent(now, 1000, 1e6, 2000); // 2 ms a burst
        }
        assert_eq!(left, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 3, 3]);
        // 1 ms late: the next is 1 ms sooner.
        now = Time::from_millis(6);
        pacer.sent(now, 1000, 1e6, 2000);
        pacer.sent(now, 1000, 1e6, 2000);
        assert_eq!(pacer.wait(now), Some(Time::from_millis(7)));
    }

    #[test]
    fn a_burst_is_a_millisecond_and_more_where_the_path_is_short() {
        let ms = Duration::from_millis;
        assert_eq!(quantum(1e6, 1448, 2, ms(40)), 2 * 1448);
        assert_eq!(quantum(1e7, 1448, 2, ms(40)), 6 * 1448);
        assert_eq!(quantum(1e6, 1448, 2, ms(0)), 45 * 1448);
        assert_eq!(quantum(1e9, 1448, 2, ms(40)), 45 * 1448);
    }
}
