//! Window of the numbers that have been received (RFC 4303, §3.4.3; the ring of words is RFC 6479's).

/// State of a number in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Not seen before.
    New,
    /// Seen before.
    Seen,
    /// So far below the highest that nobody knows any more.
    TooOld,
}

const WORDS: usize = 128;
/// The words other than the one that is being filled are always remembered whole.
const WIDTH: u64 = (WORDS as u64 - 1) * 64;

/// Remembers which of the 8128 numbers up to the highest have been seen: at 2 Gbit/s in packets of 1400 bytes
/// the last 45 ms.
#[derive(Clone)]
pub struct ReplayWindow {
    words: Box<[u64; WORDS]>,
    highest: Option<u64>,
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self {
            words: Box::new([0; WORDS]),
            highest: None,
        }
    }
}

impl ReplayWindow {
    /// Return the state of this number.
    pub fn standing(&self, number: u64) -> Standing {
        match self.highest {
            Some(highest) if number <= highest => {
                if highest - number >= WIDTH {
                    Standing::TooOld
                } else if self.words[word(number)] & bit(number) != 0 {
                    Standing::Seen
                } else {
                    Standing::New
                }
            }
            _ => Standing::New,
        }
    }

    /// Records this number and returns its state before. One that is too old is not recorded.
    pub fn see(&mut self, number: u64) -> Standing {
        let standing = self.standing(number);
        if standing == Standing::New {
            self.advance(number);
            self.words[word(number)] |= bit(number);
        }
        standing
    }

    /// Empties the words between the highest number so far and this one.
    fn advance(&mut self, number: u64) {
        let from = self.highest.map_or(0, |highest| highest / 64 + 1);
        if self.highest.is_none_or(|highest| number > highest) {
            let to = number / 64;
            for block in from.max((to + 1).saturating_sub(WORDS as u64))..=to {
                self.words[(block % WORDS as u64) as usize] = 0;
            }
            self.highest = Some(number);
        }
    }
}

fn word(number: u64) -> usize {
    (number / 64 % WORDS as u64) as usize
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn each_number_is_new_once(steps in prop::collection::vec((0u64..20_000, any::<bool>()), 1..400), start in 0..u64::MAX / 2) {
            let mut window = ReplayWindow::default();
            let (mut seen, mut highest, mut at) = (HashSet::new(), 0, start);
            for (step, back) in steps {
                at = if back { at.saturating_sub(step) } else { at + step / 8 };
                let expected = match seen.contains(&at) {
                    _ if !seen.is_empty() && at <= highest && highest - at >= WIDTH => Standing::TooOld,
                    true => Standing::Seen,
                    false => Standing::New,
                };
                prop_assert_eq!(window.see(at), expected);
                if expected == Standing::New {
                    seen.insert(at);
                    highest = highest.max(at);
                }
            }
        }
    }
}
