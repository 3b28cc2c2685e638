//! Applications end on any path, and only sent bytes arrive.

use cellbed_link::*;
use cellbed_tcp::*;
use cellbed_virtual::*;
use proptest::prelude::*;

use crate::{at, bottleneck, ms};

/// Stages that lose, double and damage packets and, with an even seed, let them overtake each other.
fn stages(rate: u64, queue: u64, loss: f64, seed: u64) -> Vec<StageConfig> {
    let reorder = seed.is_multiple_of(2);
    let rare = Probability::new(loss / 4.0).unwrap();
    let distribution = Distribution::Uniform {
        mean: ms(12),
        spread: ms(2),
    };
    let delay = RandomDelay {
        distribution,
        correlation: Probability::NEVER,
        reorder,
        seed: Seed(seed),
    };
    let duplication = DuplicationConfig {
        probability: rare,
        seed: Seed(seed),
    };
    let corruption = CorruptionConfig {
        probability: rare,
        seed: Seed(seed),
    };
    vec![
        crate::loss(loss, seed),
        duplication.into(),
        corruption.into(),
        bottleneck(rate, queue),
        DelayConfig::Random(delay).into(),
    ]
}

/// A path.
#[derive(Clone, Copy, Debug)]
struct Case {
    rate: u64,
    queue: u64,
    loss: f64,
    seed: u64,
}

impl Case {
    fn network(self) -> Network {
        let stages = |seed| stages(self.rate, self.queue, self.loss, seed);
        Network::new(stages(self.seed), stages(self.seed + 1))
    }

    fn check(self, size: u64, control: Control) {
        let tcp = Tcp {
            control,
            ..Tcp::default()
        };
        let end = at(100_000_000);
        let download = || {
            let mut downloads = Downloads::new(&[size, 1, size], tcp);
            downloads.keeps_connection = true;
            self.network().run(&mut downloads, Time::ZERO, end);
            downloads.results().to_vec()
        };
        let downloads = download();
        assert_eq!(downloads.len(), 3);
        for download in &downloads {
            let least = if download.started == Time::ZERO {
                40
            } else {
                20
            };
            assert!(download.taken() >= Some(ms(least)));
        }
        assert_eq!(download(), downloads);
    }
}

#[test]
fn a_probe_with_nothing_to_send_is_followed_by_a_timeout() {
    let case = Case {
        rate: 19_090_179,
        queue: 19_500,
        loss: 0.177_316_753_882_395_37,
        seed: 270,
    };
    case.check(39_097, Control::Cubic);
}

/// Laws that need no marks.
fn laws() -> Vec<Control> {
    let all = Control::ALL.iter().copied();
    all.filter(|law| !law.uses_ecn()).collect()
}

proptest! {
    #[test]
    fn all_that_is_asked_for_arrives(
        rate in 100_000u64..100_000_000,
        queue in 3_000u64..1_000_000,
        loss in 0.0..0.2f64,
        seed in 0u64..1000,
        size in 1u64..100_000,
        control in prop::sample::select(laws()),
    ) {
        Case { rate, queue, loss, seed }.check(size, control);
    }
}
