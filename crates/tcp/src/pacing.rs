//! Pacing: segments leave at a rate instead of all at once.

use cellbed_link::{Duration, Time};

/// Number of segments that leave before pacing begins in Linux.
const UNPACED: u64 = 10;
/// Duration of a burst in Linux, about a millisecond (`sk_pacing_shift`).
const TICK: f64 = 1.0 / 1024.0;
/// Maximum burst, bytes.
const LARGEST: f64 = 65_536.0;
/// Part of the path's delay that halves the additional burst of Linux, which is at its maximum without delay
/// (`tcp_tso_rtt_log`).
const HALVED: Duration = Duration::from_nanos(512_000);

/// Bursts at a rate, as Linux's TCP sends them without a pacing queueing discipline.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pacer {
    /// When the next burst may leave.
    next: Time,
    /// Remaining bytes of the burst.
    burst: u64,
    /// Delay of the burst relative to its schedule.
    late: Duration,
    sent: u64,
}

impl Pacer {
    /// Return when the next segment may leave, if not now.
    pub fn wait(&self, now: Time) -> Option<Time> {
        (self.burst == 0 && self.next > now).then_some(self.next)
    }

    /// Return the time until the next burst may leave.
    pub fn ahead(&self, now: Time) -> Duration {
        self.next - now
    }

    /// Record that a segment leaves. rate: bytes per second. quantum: bytes of a burst.
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
            // A late burst brings the next one forward, by half at most.
            let sooner = Duration::from_nanos(takes / 2).min(self.late);
            self.late = self.late.saturating_sub(sooner);
            self.next += Duration::from_nanos(takes).saturating_sub(sooner);
        }
    }

    /// End the burst: no more data can leave now.
    pub fn pause(&mut self) {
        self.burst = 0;
    }
}

/// Return the bytes of a burst at a rate in bytes per second, at least `at_least` segments. least: the minimum round
/// trip.
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
