//! Whatever the path does, applications come to their end, and nothing is made up.

use cellbed_link::*;
use cellbed_simulator::*;
use proptest::prelude::*;

fn stages(rate: u64, queue: u64, loss: f64, seed: u64) -> Vec<StageConfig> {
    let chance = |probability| Probability::new(probability).expect("from 0 to 1");
    let bottleneck = BottleneckConfig::new(Schedule::Constant(BitRate(rate)));
    let queue = Discipline::DropTail {
        packets: None,
        bytes: Some(Bytes(queue)),
    };
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
        // It lets packets overtake each other.
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

proptest! {
    #[test]
    fn all_that_is_asked_for_arrives(
        rate in 100_000u64..100_000_000,
        queue in 3_000u64..1_000_000,
        loss in 0.0..0.2f64,
        seed in 0u64..1000,
        size in 1u64..100_000,
        reno: bool,
    ) {
        let path = || Network::new(stages(rate, queue, loss, seed), stages(rate, queue, loss, seed + 1));
        let tcp = Tcp {
            control: if reno { Control::NewReno } else { Control::Cubic },
            ..Tcp::default()
        };
        let end = Time::from_millis(100_000_000);
        let mut downloads = Downloads::new(&[size, 1, size], tcp);
        downloads.keeps_connection = true;
        let mut network = path();
        network.run(&mut downloads, Time::ZERO, end);
        prop_assert!(downloads.results().len() == 3 && downloads.results()[2].finished.is_some());
        for download in downloads.results() {
            let least = if download.started == Time::ZERO { 40 } else { 20 };
            prop_assert!(download.taken() >= Some(Duration::from_millis(least)));
        }
        let mut page = PageLoad::new(
            if reno { Protocol::Http1 } else { Protocol::Http2 },
            &[PageObject { bytes: size, parent: None }, PageObject { bytes: 0, parent: Some(0) }],
            tcp,
        );
        network.run(&mut page, network.now(), end);
        prop_assert!(page.finished().is_some());
        let mut again = Downloads::new(&[size, 1, size], tcp);
        again.keeps_connection = true;
        path().run(&mut again, Time::ZERO, end);
        prop_assert_eq!(downloads.results(), again.results());
    }
}
