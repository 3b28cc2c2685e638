//! Trains at jittered intervals.

use cellbed_link::random::Random;
use cellbed_link::{Duration, Seed, Time};

use crate::plan::{Train, TrainPlan};

/// Emits the trains of a plan: train *n*, counted from 0, is `rotation[n mod length]`.
#[derive(Clone, Debug)]
pub struct TrainScheduler {
    plan: TrainPlan,
    random: Random,
    number: u32,
    due: Time,
}

impl TrainScheduler {
    /// A scheduler whose first train is due at `start`.
    pub fn new(plan: TrainPlan, start: Time) -> Self {
        let random = Random::new(Seed(plan.seed));
        Self {
            plan,
            random,
            number: 0,
            due: start,
        }
    }

    /// Return the time of the next train; `None` after the last.
    pub fn next_event(&self) -> Option<Time> {
        let more = self.plan.count.is_none_or(|count| self.number < count);
        (more && !self.plan.rotation.is_empty()).then_some(self.due)
    }

    /// Return the train due at `now`, and its number. After a pause longer than several gaps, only one train is due;
    /// the next follows a gap later.
    pub fn emit(&mut self, now: Time) -> Option<(u32, Train)> {
        if self.next_event()? > now {
            return None;
        }
        let number = self.number;
        self.number = number.checked_add(1)?;
        let train = self.plan.rotation[number as usize % self.plan.rotation.len()];
        let gap = self.gap_after(&train);
        self.due += gap;
        if self.due <= now {
            self.due = now + gap;
        }
        Some((number, train))
    }

    /// Draw a gap from gap · (1 ± jitter).
    fn gap_after(&mut self, train: &Train) -> Duration {
        let gap_ns = train.gap_ns.unwrap_or(self.plan.gap_ns);
        let jitter = self.plan.jitter.clamp(0.0, 1.0);
        let factor = 1.0 + jitter * (2.0 * self.random.unit() - 1.0);
        Duration::from_nanos(((gap_ns as f64 * factor) as u64).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn train(up: u16, down: u16) -> Train {
        Train::new((up, 1400), (down, 1400))
    }

    fn plan(jitter: f64, count: Option<u32>) -> TrainPlan {
        TrainPlan {
            rotation: vec![train(25, 50), train(1, 1), train(5, 100)],
            gap_ns: 50_000_000,
            jitter,
            count,
            seed: 7,
        }
    }

    /// Run a plan with punctual calls.
    fn run(plan: TrainPlan) -> Vec<(Time, u32, Train)> {
        let mut scheduler = TrainScheduler::new(plan, Time::from_millis(3));
        let mut emitted = Vec::new();
        while let Some(due) = scheduler.next_event() {
            let (number, train) = scheduler.emit(due).unwrap();
            emitted.push((due, number, train));
        }
        emitted
    }

    #[test]
    fn trains_come_in_rotation_each_after_the_gap_of_the_one_before() {
        let mut plan = plan(0.0, Some(4));
        plan.rotation[1].gap_ns = Some(400_000_000);
        let [one, two, three] = [0, 1, 2].map(|place| plan.rotation[place]);
        let [first, second, third, last] = [3, 53, 453, 503].map(Time::from_millis);
        let expected = [
            (first, 0, one),
            (second, 1, two),
            (third, 2, three),
            (last, 3, one),
        ];
        assert_eq!(run(plan), expected);
    }

    #[test]
    fn jittered_gaps_spread_evenly_round_their_mean() {
        let emitted = run(plan(0.4, Some(2001)));
        let gaps: Vec<f64> = emitted
            .windows(2)
            .map(|pair| (pair[1].0 - pair[0].0).as_secs_f64())
            .collect();
        assert!(gaps.iter().all(|gap| (0.030..=0.070).contains(gap)));
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert!((0.049..0.051).contains(&mean), "{mean}");
        let early = gaps.iter().filter(|gap| **gap < 0.040).count();
        assert!((400..600).contains(&early), "{early} of 2000 below 40 ms");
    }

    #[test]
    fn a_pause_is_not_made_up_for() {
        let mut scheduler = TrainScheduler::new(plan(0.0, None), Time::ZERO);
        let late = Time::from_millis(1_010);
        assert_eq!(scheduler.emit(late), Some((0, train(25, 50))));
        assert_eq!(scheduler.emit(late), None);
        assert_eq!(scheduler.next_event(), Some(Time::from_millis(1_060)));
    }
}
