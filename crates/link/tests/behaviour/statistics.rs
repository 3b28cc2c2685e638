//! The random stages, compared with their specified distributions. The seeds are fixed: no result is by chance. The
//! tolerances are four standard deviations of the measured value.

use cellbed_link::*;

use crate::driving::{probability, span as ms};

const PACKETS: usize = 200_000;

/// Sends packets of 100 bytes `spacing` apart through one stage. Returns outcomes in order of time.
fn outcomes(stage: impl Into<StageConfig>, spacing: Duration) -> Vec<Outcome<usize>> {
    let mut direction = Direction::new(vec![stage.into()], Time::ZERO);
    let mut outcomes = Vec::new();
    for packet in 0..PACKETS {
        let at = Time::from_nanos(packet as u64 * spacing.as_nanos());
        direction.accept(at, packet, Bytes(100));
        outcomes.extend(std::iter::from_fn(|| direction.poll(at)));
    }
    outcomes.extend(std::iter::from_fn(|| direction.poll(Time::MAX)));
    outcomes
}

fn number(values: &[bool]) -> usize {
    values.iter().filter(|&&value| value).count()
}

/// Asserts that the number of hits in trials with a probability is within four standard deviations.
#[track_caller]
fn assert_share(trials: impl IntoIterator<Item = bool>, probability: f64) {
    let trials: Vec<bool> = trials.into_iter().collect();
    assert_binomial(number(&trials), trials.len(), probability);
}

#[track_caller]
fn assert_binomial(count: usize, trials: usize, probability: f64) {
    let expected = trials as f64 * probability;
    let deviation = (expected * (1.0 - probability)).sqrt();
    let off = (count as f64 - expected) / deviation;
    assert!(
        off.abs() < 4.0,
        "{count} of {trials} at {probability}: {off} standard deviations"
    );
}

/// Asserts that a value is within four of its standard errors.
#[track_caller]
fn assert_near(value: f64, expected: f64, error: f64) {
    let off = (value - expected) / error;
    assert!(
        off.abs() < 4.0,
        "{value}, not {expected}: {off} standard errors"
    );
}

fn losses(config: LossConfig) -> Vec<bool> {
    let outcomes = outcomes(config, ms(1));
    outcomes
        .iter()
        .map(|outcome| outcome.fate != Fate::Delivered)
        .collect()
}

fn gilbert_elliott(parameters: [f64; 4]) -> Vec<bool> {
    let [to_bad, to_good, loss_good, loss_bad] = parameters.map(probability);
    losses(LossConfig::GilbertElliott {
        to_bad,
        to_good,
        loss_good,
        loss_bad,
        seed: Seed(1),
    })
}

/// Lengths of the runs of `value`, without those at either end.
fn runs(values: &[bool], value: bool) -> Vec<usize> {
    let mut lengths: Vec<usize> = values
        .split(|&other| other != value)
        .map(<[bool]>::len)
        .collect();
    lengths.pop();
    lengths.drain(..1);
    lengths.retain(|&length| length > 0);
    lengths
}

#[test]
fn independent_losses_have_no_memory() {
    let lost = losses(LossConfig::Independent {
        probability: probability(0.1),
        seed: Seed(7),
    });
    let after_a_loss = lost.windows(2).filter(|pair| pair[0]);
    assert_share(after_a_loss.map(|pair| pair[1]), 0.1);
    assert_share(lost, 0.1);
}

/// Gilbert's channel: bursts and gaps are geometric, with means 1 / r and 1 / p.
#[test]
fn bursts_and_gaps_of_gilbert_s_channel_are_geometric() {
    let (p, r) = (0.02, 0.25);
    let lost = gilbert_elliott([p, r, 0.0, 1.0]);
    for (value, leaving) in [(true, r), (false, p)] {
        let runs = runs(&lost, value);
        let mean = runs.iter().sum::<usize>() as f64 / runs.len() as f64;
        let deviation = (1.0 - leaving).sqrt() / leaving;
        assert_near(mean, 1.0 / leaving, deviation / (runs.len() as f64).sqrt());
        for length in 1..12 {
            let share = leaving * (1.0 - leaving).powi(length - 1);
            assert_share(runs.iter().map(|&run| run == length as usize), share);
        }
    }
}

/// Elliott's channel: the share of losses; its variance includes the memory of the chain, λ = 1 − p − r.
#[test]
fn both_states_of_elliott_s_channel_lose() {
    let [p, r, good, bad] = [0.02, 0.08, 0.05, 0.6];
    let lost = gilbert_elliott([p, r, good, bad]);
    let in_bad = p / (p + r);
    let expected = (1.0 - in_bad) * good + in_bad * bad;
    let memory = 1.0 - p - r;
    let shared = (bad - good).powi(2) * in_bad * (1.0 - in_bad);
    let variance = expected * (1.0 - expected) + 2.0 * shared * memory / (1.0 - memory);
    let share = number(&lost) as f64 / PACKETS as f64;
    assert_near(share, expected, (variance / PACKETS as f64).sqrt());
}

/// Exponential spells, sampled every ms, are a Markov chain with transition probabilities π (1 − e^(−(1/on + 1/off) · 1
/// ms)).
#[test]
fn exponential_spells_have_no_memory() {
    let (on, off) = (30.0f64, 10.0);
    let lost = losses(LossConfig::OnOff {
        on: ms(30),
        off: ms(10),
        exponential: true,
        seed: Seed(1),
    });
    assert!(!lost[0], "begins with passing");
    let change = 1.0 - (-(1.0 / on + 1.0 / off)).exp();
    for (from, share) in [(false, off / (on + off)), (true, on / (on + off))] {
        let steps = lost.windows(2).filter(|pair| pair[0] == from);
        assert_share(steps.map(|pair| pair[1] != from), share * change);
    }
}

#[test]
fn a_series_of_losses_has_each_step_s_probability() {
    let steps = vec![
        (ms(0), probability(0.0)),
        (ms(50_000), probability(0.3)),
        (ms(150_000), probability(1.0)),
    ];
    let series = std::sync::Arc::new(LossSeries::new(steps).unwrap());
    let lost = losses(LossConfig::Series {
        series,
        seed: Seed(3),
    });
    assert_eq!(number(&lost[..50_000]), 0);
    assert_eq!(number(&lost[150_000..]), PACKETS - 150_000);
    assert_share(lost[50_000..150_000].iter().copied(), 0.3);
}

/// Returns delays in order of sending, ms. Packets are sent 10 s apart: none waits for another.
fn delays(distribution: Distribution, correlation: f64) -> Vec<f64> {
    let config = RandomDelay {
        distribution,
        correlation: probability(correlation),
        reorder: false,
        seed: Seed(1),
    };
    let outcomes = outcomes(DelayConfig::Random(config), ms(10_000));
    outcomes
        .iter()
        .map(|outcome| (outcome.departed - outcome.arrived).as_secs_f64() * 1e3)
        .collect()
}

/// Returns the mean, and the central moments of order 2, 3 and 4.
fn moments(values: &[f64]) -> (f64, [f64; 3]) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let central = |order| {
        values
            .iter()
            .map(|value| (value - mean).powi(order))
            .sum::<f64>()
            / count
    };
    (mean, [2, 3, 4].map(central))
}

#[test]
fn normal_delays_are_normal() {
    let values = delays(
        Distribution::Normal {
            mean: ms(50),
            deviation: ms(10),
        },
        0.0,
    );
    let count = PACKETS as f64;
    let (mean, [second, third, fourth]) = moments(&values);
    assert_near(mean, 50.0, 10.0 / count.sqrt());
    assert_near(second, 100.0, 100.0 * (2.0 / count).sqrt());
    assert_near(third / second.powf(1.5), 0.0, (6.0 / count).sqrt());
    assert_near(fourth / second.powi(2), 3.0, (24.0 / count).sqrt());
    for (z, below) in [
        (-3.0, 0.001_349_898),
        (-2.0, 0.022_750_13),
        (-1.0, 0.158_655_3),
        (0.5, 0.691_462_5),
        (1.5, 0.933_192_8),
    ] {
        assert_share(values.iter().map(|&value| value < 50.0 + 10.0 * z), below);
    }
}

/// The table of netem's `pareto.c`: x = u^(−1/3), less 1.5, times 4/3, cut at 4 (`NETEM_DIST_SCALE` in 16 bits).
#[test]
fn pareto_delays_are_netem_s() {
    let values = delays(
        Distribution::Pareto {
            mean: ms(50),
            deviation: ms(10),
        },
        0.0,
    );
    let cut: f64 = 32_767.0 / 8_192.0 * 0.75 + 1.5; // in terms of x
    let expected = 50.0 + 10.0 * 4.0 / 3.0 * -0.5 / (cut * cut); // E min(x, c) = 1.5 − 1 / (2 c²)
    let square = 3.0 - 2.0 / cut; // E min(x, c)²
    let variance = (square - (1.5 - 0.5 / (cut * cut)).powi(2)) * (40.0f64 / 3.0).powi(2);
    let (mean, [second, _, fourth]) = moments(&values);
    assert_near(mean, expected, (variance / PACKETS as f64).sqrt());
    assert_near(
        second,
        variance,
        ((fourth - second * second) / PACKETS as f64).sqrt(),
    );
    for x in [1.01f64, 1.1, 1.26, 2.0, 3.0, 4.0] {
        let below = 50.0 + 10.0 * 4.0 / 3.0 * (x - 1.5);
        assert_share(values.iter().map(|&value| value < below), 1.0 - x.powi(-3));
    }
}

/// netem's `get_crandom`: x′ = (1 − ρ) u + ρ x. Neighbours are correlated by ρ, and the variance is (1 − ρ) / (1 + ρ)
/// times the variance of u.
#[test]
fn correlated_delays_are_netem_s() {
    for rho in [0.25, 0.5, 0.9] {
        let values = delays(
            Distribution::Uniform {
                mean: ms(100),
                spread: ms(100),
            },
            rho,
        );
        let (mean, [variance, ..]) = moments(&values);
        let joint: f64 = values
            .windows(2)
            .map(|pair| (pair[0] - mean) * (pair[1] - mean))
            .sum();
        let correlation = joint / (values.len() - 1) as f64 / variance;
        let count = values.len() as f64;
        assert_near(correlation, rho, ((1.0 - rho * rho) / count).sqrt());
        let expected = 100.0 * 100.0 / 3.0 * (1.0 - rho) / (1.0 + rho);
        // the mean's variance grows by (1 + ρ) / (1 − ρ), the variance's by (1 + ρ²) / (1 − ρ²)
        assert_near(
            mean,
            100.0,
            (expected / count * (1.0 + rho) / (1.0 - rho)).sqrt(),
        );
        let spread = 2.0 / count * (1.0 + rho * rho) / (1.0 - rho * rho);
        assert_near(variance, expected, expected * spread.sqrt());
    }
}

#[test]
fn empirical_delays_are_the_observed_ones() {
    let observed: Vec<Duration> = (1..=20).map(|value| ms(value * value)).collect();
    let values = delays(Distribution::empirical(observed.clone()).unwrap(), 0.0);
    let mut counts = std::collections::BTreeMap::new();
    for value in &values {
        *counts.entry((value * 1e6).round() as u64).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), observed.len());
    for value in observed {
        assert_binomial(counts[&value.as_nanos()], PACKETS, 1.0 / 20.0);
    }
}

#[test]
fn packets_are_doubled_and_damaged_as_often_as_asked() {
    let doubled = outcomes(
        DuplicationConfig {
            probability: probability(0.03),
            seed: Seed(4),
        },
        ms(1),
    );
    let count = doubled.iter().filter(|it| it.fate == Fate::Doubled).count();
    assert_eq!(doubled.len(), PACKETS + 2 * count);
    assert!(
        doubled
            .iter()
            .all(|it| matches!(it.fate, Fate::Doubled | Fate::Delivered))
    );
    assert_binomial(count, PACKETS, 0.03);
    let damaged = outcomes(
        CorruptionConfig {
            probability: probability(0.5),
            seed: Seed(5),
        },
        ms(1),
    );
    assert_share(damaged.iter().map(|it| it.corrupt_bit.is_some()), 0.5);
    let bits: Vec<u32> = damaged.iter().filter_map(|it| it.corrupt_bit).collect();
    // Pearson's χ² of the 800 bits: mean 799, variance 2 · 799
    let mut counts = [0.0f64; 800];
    bits.iter().for_each(|&bit| counts[bit as usize] += 1.0);
    let each = bits.len() as f64 / 800.0;
    let chi2: f64 = counts
        .iter()
        .map(|count| (count - each).powi(2) / each)
        .sum();
    assert_near(chi2, 799.0, (2.0 * 799.0f64).sqrt());
}
