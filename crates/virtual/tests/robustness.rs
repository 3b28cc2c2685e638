//! Applications end on any path, and only sent bytes arrive.

use cellbed_link::*;
use cellbed_tcp::*;
use cellbed_virtual::*;
use proptest::prelude::*;

fn stages(rate: u64, queue: u64, loss: f64, seed: u64) -> Vec<StageConfig> {
    let chance = |probability| Probability::new(probability).expect("from 0 to 1");
    let bottleneck = BottleneckConfig::new(Schedule::Constant(BitRate(rate)));
    let queue = Discipline::DropTail(Limit::bytes(queue));
    vec![
        LossConfig::Independent {
            probability: chance(loss),
            seed: Seed(seed),
        }
        .into(),
        StageConfig::Duplication(DuplicationConfig {
            probability: chance(loss / 4.0),
            seed: Seed(seed),
        }),
        StageConfig::Corruption(CorruptionConfig {
            probability: chance(loss / 4.0),
            seed: Seed(seed),
        }),
        bottleneck.with_queue(queue).into(),
        // This stage lets packets overtake each other.
        DelayConfig::Random(RandomDelay {
            distribution: Distribution::Uniform {
                mean: Duration::from_millis(12),
                spread: Duration::from_millis(2),
            },
            correlation: Probability::NEVER,
            reorder: seed.is_multiple_of(2),
            seed: Seed(seed),
        })
        .into(),
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
        let end = Time::from_millis(100_000_000);
        let download = |network: &mut Network| {
            let mut downloads = Downloads::new(&[size, 1, size], tcp);
            downloads.keeps_connection = true;
            network.run(&mut downloads, Time::ZERO, end);
            downloads.results().to_vec()
        };
        let mut network = self.network();
        let downloads = download(&mut network);
        assert_eq!(downloads.len(), 3);
        for download in &downloads {
            let least = if download.started == Time::ZERO {
                40
            } else {
                20
            };
            let taken = download.taken().expect("it comes to its end");
            assert!(taken >= Duration::from_millis(least));
        }
        assert_eq!(download(&mut self.network()), downloads);
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
