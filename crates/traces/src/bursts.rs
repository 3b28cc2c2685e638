//! Statistics over opportunities: bursts, silences, and counts per bin of time.

use std::collections::BTreeMap;

const MS: i64 = 1_000_000;
/// Silences before a burst are counted in steps of 0.1 ms up to 2 s; longer ones count as that.
const LONGEST_BATCHING: usize = 20_000;
/// Sizes of bursts below this have a counter each at hand.
const USUAL: usize = 1 << 12;

/// Adds up times that come in order.
///
/// A burst is the opportunities of one millisecond of the clock. The silence before it is the time since the opportunity before its
/// first; for a single one it counts as none, because a receiver that aggregates delivers several.
#[derive(Clone, Debug)]
pub struct Bursts {
    bin_ns: i64,
    last_bin: i64,
    least_ns: i64,
    /// Time of the first, and of the last so far; `None` before the first one.
    pub ends: Option<(i64, i64)>,
    /// The longest time between two, ns.
    pub longest_ns: i64,
    /// Opportunities of bursts after a silence, by its tenths of a millisecond.
    pub batching: Vec<u64>,
    usual: Vec<u64>,
    large: BTreeMap<u64, u64>,
    /// The burst that the next times may continue: its end, its size, the silence before it.
    burst: (i64, u64, i64),
}

/// The results for some times. Bins have increasing numbers and counts; two calls may share one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Numbers of the bins that have any.
    pub bins: Vec<i64>,
    /// How many each has.
    pub counts: Vec<i64>,
    /// When silences of at least the asked length began, ns.
    pub begins: Vec<i64>,
    /// How long they were, ns.
    pub lengths: Vec<i64>,
}

impl Bursts {
    /// `bin_ns`: width of the bins. `duration_ns`: of the series; times at its end count to the last bin, since the end
    /// of the period is its beginning. `least_ns`: minimum length of individually returned silences.
    pub fn new(bin_ns: i64, duration_ns: i64, least_ns: i64) -> Self {
        let bin_ns = bin_ns.max(1);
        Self {
            bin_ns,
            last_bin: ((duration_ns - 1) / bin_ns).max(0),
            least_ns,
            ends: None,
            longest_ns: 0,
            batching: vec![0; LONGEST_BATCHING + 1],
            usual: vec![0; USUAL],
            large: BTreeMap::new(),
            burst: (i64::MIN, 0, 0),
        }
    }

    /// Takes the next times, ns since the start: none below zero or before the one above it.
    pub fn add(&mut self, at: &[i64]) -> Taken {
        let mut taken = Taken::default();
        let Some(&first) = at.first() else {
            return taken;
        };
        let (begun, mut last) = self.ends.unwrap_or((first, first));
        let (mut bin_end, mut count) = (i64::MIN, 0);
        for &now in at {
            let gap = now - last;
            last = now;
            if gap > self.longest_ns {
                self.longest_ns = gap;
            }
            if gap >= self.least_ns {
                taken.begins.push(now - gap);
                taken.lengths.push(gap);
            }
            if now < self.burst.0 {
                self.burst.1 += 1;
            } else {
                self.end_burst();
                self.burst = ((now / MS + 1) * MS, 1, gap);
            }
            if now < bin_end {
                count += 1;
                continue;
            }
            if count > 0 {
                taken.counts.push(count);
            }
            let bin = (now / self.bin_ns).min(self.last_bin);
            taken.bins.push(bin);
            bin_end = if bin == self.last_bin {
                i64::MAX
            } else {
                (bin + 1) * self.bin_ns
            };
            count = 1;
        }
        taken.counts.push(count);
        self.ends = Some((begun, last));
        taken
    }

    /// Ends the series. Returns the different sizes of bursts, increasing, with their counts.
    pub fn finish(&mut self) -> (Vec<u64>, Vec<u64>) {
        self.end_burst();
        let usual = (0..).zip(self.usual.iter().copied());
        let large = self.large.iter().map(|(size, times)| (*size, *times));
        usual.chain(large).filter(|(_, times)| *times > 0).unzip()
    }

    fn end_burst(&mut self) {
        let (_, size, silence) = std::mem::replace(&mut self.burst, (i64::MIN, 0, 0));
        if size == 0 {
            return;
        }
        match self.usual.get_mut(size as usize) {
            Some(times) => *times += 1,
            None => *self.large.entry(size).or_default() += 1,
        }
        let step = if size == 1 { 0 } else { silence / (MS / 10) };
        self.batching[(step as usize).min(LONGEST_BATCHING)] += size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BIN: i64 = 10 * MS;

    #[test]
    fn bursts_go_by_the_clock_and_silences_before_them_by_their_first() {
        let mut bursts = Bursts::new(BIN, 40 * MS, 12 * MS);
        let taken = bursts.add(&[0, 5, MS, 20 * MS, 20 * MS + 1, 40 * MS]);
        assert_eq!(taken.bins, [0, 2, 3]);
        assert_eq!(taken.counts, [3, 2, 1]);
        assert_eq!(taken.begins, [MS, 20 * MS + 1]);
        assert_eq!(taken.lengths, [19 * MS, 20 * MS - 1]);
        assert_eq!(bursts.finish(), (vec![1, 2], vec![2, 2]));
        assert_eq!(bursts.batching[190], 2);
        assert_eq!(bursts.batching[0], 4);
        assert_eq!(bursts.ends, Some((0, 40 * MS)));
        assert_eq!(bursts.longest_ns, 20 * MS - 1);
    }

    #[test]
    fn more_than_the_usual_of_one_millisecond_are_one_burst() {
        let mut bursts = Bursts::new(BIN, MS, MS);
        bursts.add(&[7; 5000]);
        bursts.add(&[8; 5000]);
        assert_eq!(bursts.finish(), (vec![10_000], vec![1]));
    }

    proptest! {
        #[test]
        fn where_batches_end_changes_nothing(
            gaps in prop::collection::vec(prop_oneof![0..3_i64, 0..30 * MS], 1..200),
            cut in any::<prop::sample::Index>(),
        ) {
            let times: Vec<i64> = gaps.iter().scan(0, |at, gap| { *at += gap; Some(*at) }).collect();
            let end = times[times.len() - 1].max(1);
            let mut whole = Bursts::new(BIN, end, 5 * MS);
            let all = whole.add(&times);
            let mut parted = Bursts::new(BIN, end, 5 * MS);
            let (head, tail) = times.split_at(cut.index(times.len()));
            let mut both = parted.add(head);
            let mut rest = parted.add(tail);
            if both.bins.last().is_some() && both.bins.last() == rest.bins.first() {
                *both.counts.last_mut().unwrap() += rest.counts.remove(0);
                rest.bins.remove(0);
            }
            both.bins.append(&mut rest.bins);
            both.counts.append(&mut rest.counts);
            both.begins.append(&mut rest.begins);
            both.lengths.append(&mut rest.lengths);
            prop_assert_eq!(all, both);
            prop_assert_eq!(whole.finish(), parted.finish());
            prop_assert_eq!(whole.batching, parted.batching);
        }
    }
}
