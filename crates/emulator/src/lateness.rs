//! Lateness of the event loop: delay of writing packets after their departure, for the whole run and per second.

use cellbed_link::records::{Layout, RECORD_BYTES};
use cellbed_link::{Duration, Time};

/// First bytes of the file of the emulator's lateness.
pub const LATENESS_MAGIC: &[u8; 16] = b"cellbed lateness";

/// Maximum delay of a punctual packet after its modelled departure: 1 % of a request of 100 ms.
const LATE: Duration = Duration::from_millis(1);

/// Minimum time between two accounts of an undelayed thread: an account costs a microsecond.
const BETWEEN_ACCOUNTS: Duration = Duration::from_millis(2);

/// Duration of a [`Second`].
const SECOND: Duration = Duration::from_secs(1);

/// Number of bins per doubling: values are accurate within 1/32.
const STEPS: u64 = 32;

/// A histogram with logarithmic bins. Recording costs a few instructions and no memory.
pub struct Lateness {
    bins: Box<[u64]>,
    most: u64,
}

impl Default for Lateness {
    fn default() -> Self {
        Self {
            bins: vec![0; bin(u64::MAX) + 1].into(),
            most: 0,
        }
    }
}

/// Return the bin of a value: exact below [`STEPS`], otherwise by the leading six bits.
fn bin(nanos: u64) -> usize {
    let shift = (u64::BITS - (nanos | 1).leading_zeros()).saturating_sub(STEPS.ilog2() + 1);
    (u64::from(shift) * STEPS + (nanos >> shift)) as usize
}

/// Return the maximum value in a bin.
fn upper(bin: usize) -> u64 {
    let shift = (bin as u64 / STEPS).saturating_sub(1);
    let leading = bin as u64 - shift * STEPS;
    (leading << shift) | ((1 << shift) - 1)
}

impl Lateness {
    /// Count one packet.
    pub fn record(&mut self, late: Duration) {
        self.bins[bin(late.as_nanos())] += 1;
        self.most = self.most.max(late.as_nanos());
    }

    /// Return the value in ns not exceeded by `share` (0 to 1) of the packets; `None` without packets.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let count: u64 = self.bins.iter().sum();
        let rank = ((share * count as f64).ceil() as u64).max(1);
        let mut below = 0;
        let found = self.bins.iter().position(|packets| {
            below += packets;
            below >= rank
        })?;
        Some(upper(found).min(self.most))
    }

    /// Return the maximum value in ns; `None` without packets.
    pub fn max(&self) -> Option<u64> {
        self.quantile(1.0).map(|_| self.most)
    }
}

/// Times of the loop's thread since its start, as the kernel counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Time on a processor.
    pub ran: Duration,
    /// Time for which the thread could run and other threads had the processors.
    pub waited: Duration,
}

impl Account {
    /// Return both times in µs as two 32-bit integers, little-endian: 71 minutes at most.
    fn to_bytes(self) -> [u8; 8] {
        let micros = |time: Duration| u32::try_from(time.as_nanos() / 1000).unwrap_or(u32::MAX);
        (u64::from(micros(self.ran)) | u64::from(micros(self.waited)) << 32).to_le_bytes()
    }
}

/// Lateness of the event loop within a second, counted from the start of the schedules.
///
/// The second is longer if the loop did not run at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Begin of the second.
    pub start: Time,
    /// End of the second.
    pub end: Time,
    /// Packets written.
    pub packets: u64,
    /// Packets written more than 1 ms after their modelled departure.
    pub late: u64,
    /// Maximum lateness of a packet.
    pub most: Duration,
    /// Maximum delay of the loop after the requested time.
    pub standstill: Duration,
    /// End of the longest delay.
    pub stood_until: Time,
    /// Times of the thread within the longest delay of the loop or a packet, if that exceeds 1 ms; up to 2 ms before it
    /// count as well. Zero if the kernel does not count them.
    pub account: Account,
}

impl Second {
    /// Return the record in the file's format.
    pub fn to_bytes(self) -> [u8; RECORD_BYTES] {
        Layout::default()
            .time(self.start)
            .time(self.end)
            .field(self.packets.to_le_bytes())
            .field(self.late.to_le_bytes())
            .field(self.most.as_nanos().to_le_bytes())
            .field(self.standstill.as_nanos().to_le_bytes())
            .time(self.stood_until)
            .field(self.account.to_bytes())
            .done()
    }
}

/// The current second.
pub struct Seconds {
    zero: Time,
    current: Second,
    looked: Time,
    /// Times of the thread before it last slept, and when they were read.
    account: Account,
    accounted: Time,
}

impl Seconds {
    /// Count seconds from `now` on.
    pub fn new(now: Time) -> Self {
        let mut seconds = Self {
            zero: now,
            current: Second::default(),
            looked: now,
            account: Account::default(),
            accounted: now,
        };
        seconds.begin(now);
        seconds
    }

    /// Return the end of the current second.
    pub fn end(&self) -> Time {
        self.current.end
    }

    /// Count one packet. account: returns the thread's times so far.
    pub fn record(&mut self, late: Duration, account: impl FnOnce() -> Account) {
        self.explain(late, account);
        self.current.packets += 1;
        self.current.late += u64::from(late > LATE);
        self.current.most = self.current.most.max(late);
    }

    /// Record that the loop runs at `now` and had requested to run by `deadline`. Sleeping until `deadline` is no
    /// standstill; being stopped or waiting for a processor is.
    pub fn on_look(&mut self, now: Time, deadline: Time, account: impl FnOnce() -> Account) {
        let standstill = now.since(self.looked.max(deadline));
        self.explain(standstill, account);
        if standstill > self.current.standstill {
            self.current.standstill = standstill;
            self.current.stood_until = now;
        }
        self.looked = now;
    }

    /// Record the thread's times within a delay, if it is the longest of the second.
    fn explain(&mut self, delay: Duration, account: impl FnOnce() -> Account) {
        if delay > LATE.max(self.current.most).max(self.current.standstill) {
            let Account { ran, waited } = account();
            self.current.account = Account {
                ran: ran.saturating_sub(self.account.ran),
                waited: waited.saturating_sub(self.account.waited),
            };
        }
    }

    /// Record the thread's times before it sleeps, unless the last account is recent.
    pub fn on_sleep(&mut self, now: Time, account: impl FnOnce() -> Account) {
        if now >= self.accounted + BETWEEN_ACCOUNTS {
            self.account = account();
            self.accounted = now;
        }
    }

    /// Return the current second if it has ended; then the next one begins.
    pub fn next(&mut self, now: Time) -> Option<Second> {
        (now >= self.current.end).then(|| self.finish(now))
    }

    /// End the current second, and count seconds from `zero`.
    pub fn restart(&mut self, now: Time, zero: Time) -> Second {
        self.zero = zero;
        self.finish(now)
    }

    /// End the current second at `now`.
    pub fn finish(&mut self, now: Time) -> Second {
        let finished = Second {
            end: now,
            ..self.current
        };
        self.begin(now);
        finished
    }

    /// Begin the second that contains `now`. The last second before `zero` may be shorter.
    fn begin(&mut self, now: Time) {
        let span = SECOND.as_nanos();
        let into = now.since(self.zero).as_nanos() % span;
        let until = self.zero.since(now).as_nanos() % span;
        let (start, rest) = if now >= self.zero {
            (now - Duration::from_nanos(into), span - into)
        } else {
            (now, if until == 0 { span } else { until })
        };
        self.current = Second {
            start,
            end: now + Duration::from_nanos(rest),
            ..Second::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn a_loop_that_was_stopped_stood_still_and_one_that_slept_did_not() {
        let mut seconds = Seconds::new(ms(0));
        let ran = |ran, waited| Account {
            ran: Duration::from_millis(ran),
            waited: Duration::from_millis(waited),
        };
        let unread = || panic!("the loop was not late");
        seconds.on_look(ms(100), ms(100), unread);
        seconds.on_sleep(ms(100), || ran(7, 2));
        seconds.on_sleep(ms(101), unread);
        seconds.on_look(ms(200), ms(200), unread);
        assert_eq!(seconds.next(ms(200)), None);
        seconds.record(Duration::from_millis(1), unread);
        seconds.record(Duration::from_millis(3), || ran(7, 4));
        seconds.on_look(ms(14_250), ms(300), || ran(8, 13_900));
        let stopped = seconds.next(ms(14_250)).unwrap();
        let expected = Second {
            start: ms(0),
            end: ms(14_250),
            packets: 2,
            late: 1,
            most: Duration::from_millis(3),
            standstill: Duration::from_millis(13_950),
            stood_until: ms(14_250),
            account: ran(1, 13_898),
        };
        seconds.on_sleep(ms(14_250), || ran(8, 13_900));
        assert_eq!(stopped, expected);
        // Busy all the time: the deadline has long passed, but the loop runs.
        seconds.on_look(ms(14_252), ms(300), || ran(10, 13_900));
        let next = seconds.finish(ms(14_300));
        assert_eq!((next.start, next.end), (ms(14_000), ms(14_300)));
        assert_eq!(next.standstill, Duration::from_millis(2));
        assert_eq!(next.account, ran(2, 0));
    }

    #[test]
    fn seconds_begin_at_the_start_of_the_schedules() {
        let mut seconds = Seconds::new(ms(0));
        assert_eq!(seconds.restart(ms(400), ms(420)).end, ms(400));
        assert_eq!(seconds.end(), ms(420));
        assert_eq!(seconds.next(ms(421)).unwrap().start, ms(400));
        assert_eq!(seconds.end(), ms(1420));
        assert_eq!(seconds.next(ms(1420)).unwrap().start, ms(420));
        assert_eq!(seconds.end(), ms(2420));
    }

    proptest! {
        #[test]
        fn bins_hold_their_values_to_within_a_step(nanos in any::<u64>()) {
            let top = upper(bin(nanos));
            prop_assert!(top >= nanos);
            prop_assert!(top - nanos <= nanos / STEPS);
        }
    }

    #[test]
    fn quantiles_of_a_known_sample() {
        let mut lateness = Lateness::default();
        assert_eq!((lateness.quantile(0.5), lateness.max()), (None, None));
        for nanos in 1..=100 {
            lateness.record(Duration::from_nanos(nanos * 1000));
        }
        let median = lateness.quantile(0.5).unwrap();
        assert!((50_000..=52_000).contains(&median), "{median}");
        assert_eq!(lateness.max(), Some(100_000));
        assert_eq!(lateness.quantile(1.0), Some(100_000));
    }
}
