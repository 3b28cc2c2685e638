//! The largest value of a sliding window, from three of its samples (Kathleen Nichols' algorithm, which Linux has).

/// The best sample of the window, the best one since that, and the best one since the second, each with its time.
///
/// Only a new sample moves the window: without one, the largest value stands however long ago it was taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Maximum([(u64, f64); 3]);

impl Maximum {
    pub fn value(&self) -> f64 {
        self.0[0].1
    }

    /// Takes in a sample. A value is at most `window` older than the sample that is taken in.
    pub fn note(&mut self, window: u64, at: u64, value: f64) {
        let Self(best) = self;
        let new = (at, value);
        if value >= best[0].1 || at - best[2].0 > window {
            *best = [new; 3];
            return;
        }
        if value >= best[1].1 {
            (best[1], best[2]) = (new, new);
        } else if value >= best[2].1 {
            best[2] = new;
        }
        if at - best[0].0 > window {
            *best = [best[1], best[2], new];
            if at - best[0].0 > window {
                *best = [best[1], best[2], new];
            }
        } else if best[1].0 == best[0].0 && at - best[0].0 > window / 4 {
            // Later choices come from later parts of the window, so that they outlive the first.
            (best[1], best[2]) = (new, new);
        } else if best[2].0 == best[1].0 && at - best[0].0 > window / 2 {
            best[2] = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maximum_expires_with_a_new_sample_only() {
        let mut maximum = Maximum::default();
        let mut after = |at, value| {
            maximum.note(10, at, value);
            maximum.value()
        };
        assert_eq!([after(0, 9.0), after(3, 7.0), after(6, 5.0)], [9.0; 3]);
        assert_eq!(
            [after(10, 1.0), after(11, 1.0), after(14, 1.0)],
            [9.0, 7.0, 5.0]
        );
        assert_eq!(after(1000, 2.0), 2.0);
    }
}
