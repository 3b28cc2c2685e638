//! Saturation at a fixed rate.

use cellbed_link::{BitRate, Bytes, Duration, Time};

/// Ratio of the fixed rate to the measured maximum (Sentosa et al., "CellReplay", NSDI 2025, §4.2).
const MARGIN: f64 = 1.25;

/// Maximum burst after a delay of the sender: too short for a queue to notice, longer than a scheduler's time slice.
const CATCH_UP: Duration = Duration::from_millis(10);

/// Sends packets of one length at a fixed rate.
#[derive(Clone, Debug)]
pub struct FixedRateSaturator {
    spacing_ns: f64,
    /// Due time of the next packet, ns after the origin: fractions add up to the exact rate.
    due_ns: f64,
    end: Time,
    index: u32,
}

impl FixedRateSaturator {
    /// Packets of `bytes` (IP length) at `rate`, from `start` (included) to `end` (excluded).
    pub fn new(rate: BitRate, bytes: Bytes, start: Time, end: Time) -> Self {
        Self {
            spacing_ns: bytes.0 as f64 * 8e9 / rate.0.max(1) as f64,
            due_ns: start.as_nanos() as f64,
            end,
            index: 0,
        }
    }

    /// Return the saturation rate of a path with the maximum rate `measured`.
    pub fn rate_for(measured: BitRate) -> BitRate {
        BitRate((measured.0 as f64 * MARGIN).ceil() as u64)
    }

    /// Return the time of the next packet; `None` after the end.
    pub fn next_event(&self) -> Option<Time> {
        let due = Time::from_nanos(self.due_ns as u64);
        (due < self.end).then_some(due)
    }

    /// Return the index of a packet due at `now`; call until `None`.
    pub fn emit(&mut self, now: Time) -> Option<u32> {
        if self.next_event()? > now {
            return None;
        }
        let earliest = (now - CATCH_UP).as_nanos() as f64;
        self.due_ns = self.due_ns.max(earliest) + self.spacing_ns;
        let index = self.index;
        self.index = index.checked_add(1)?;
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(saturator: &mut FixedRateSaturator, now: Time) -> usize {
        std::iter::from_fn(|| saturator.emit(now)).count()
    }

    #[test]
    fn the_rate_is_exact_in_the_long_run_however_often_it_is_asked() {
        let end = Time::from_millis(3_000);
        let mut saturator =
            FixedRateSaturator::new(BitRate(30_000_000), Bytes(1400), Time::ZERO, end);
        let mut packets = 0;
        for millisecond in 0..3_010 {
            packets += drain(&mut saturator, Time::from_millis(millisecond));
        }
        assert_eq!(packets, 90_000_000_usize.div_ceil(11_200));
        assert_eq!(saturator.next_event(), None);
    }

    #[test]
    fn a_sender_that_was_held_up_sends_no_long_burst() {
        let mut saturator =
            FixedRateSaturator::new(BitRate(112_000_000), Bytes(1400), Time::ZERO, Time::MAX);
        assert_eq!(drain(&mut saturator, Time::from_millis(1_000)), 101); // 10 ms, one packet per 0.1 ms
        assert_eq!(drain(&mut saturator, Time::from_millis(1_001)), 10);
    }
}
