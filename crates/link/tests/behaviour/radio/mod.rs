//! The radio access network: invariants of all its links, and profiles compared with published effects.

mod probe;

use cellbed_link::radio::{Band, Condition};
use cellbed_link::*;
use probe::{Effects, Link, uplink_trains};
use proptest::prelude::*;

use crate::arrivals::in_order;
use crate::driving::{call, visit};

fn profile() -> impl Strategy<Value = Profile> {
    prop::sample::select(Profile::all().collect::<Vec<_>>())
}

fn way() -> impl Strategy<Value = Way> {
    prop::sample::select(vec![Way::Uplink, Way::Downlink])
}

/// Times in ns, in order, and sizes.
fn arrivals() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let wait = prop_oneof![
        20 => Just(0),
        10 => 0..3_000_000u64,
        1 => 0..2_000_000_000u64,
    ];
    let size = prop_oneof![3 => Just(1400u64), 1 => 1..1500u64, 1 => Just(0u64)];
    prop::collection::vec((wait, size), 1..200).prop_map(in_order)
}

fn config(profile: Profile, way: Way, seed: u64) -> RadioConfig {
    RadioConfig {
        seed: Seed(seed),
        ..profile.config(way)
    }
}

/// Returns the configuration with those effects that no profile has.
fn with_effects(mut config: RadioConfig) -> RadioConfig {
    let sleep = r#"{"after_ns": 10000000, "cycle_ns": 320000000, "awake_ns": 9000000, "short_ns": 20000000, "short_for_ns": 80000000}"#;
    let release = r#"{"after_ns": 900000000, "least_ns": 9000000, "most_ns": 99000000, "paging_ns": 320000000}"#;
    let second = r#"{"gain": 2.0, "load": 5000, "delay_ns": 9000000, "idle_ns": 99000000}"#;
    let users = r#"{"count": 3, "every_ns": 300000000, "length_ns": 30000000}"#;
    config.sleep = serde_json::from_str(sleep).unwrap();
    config.release = serde_json::from_str(release).unwrap();
    config.second = serde_json::from_str(second).unwrap();
    config.cell.users = serde_json::from_str(users).unwrap();
    config.harq.fade = serde_json::from_str(r#"{"below_db": 3.0, "chance": 0.7}"#).unwrap();
    (config.harq.unacknowledged, config.harq.attempts) = (true, 2);
    config
}

fn run(config: RadioConfig, arrivals: &[(u64, u64)]) -> Vec<Outcome<usize>> {
    let mut direction = Direction::new(vec![config.into()], Time::ZERO);
    let mut outcomes = Vec::new();
    for (packet, &(at, size)) in arrivals.iter().enumerate() {
        let now = Time::from_nanos(at);
        visit(&mut direction, now, &mut outcomes);
        direction.accept(now, packet, Bytes(size));
    }
    visit(&mut direction, Time::MAX, &mut outcomes);
    assert_eq!(direction.held().packets, Packets(0));
    outcomes
}

/// Returns the maximum bytes per slot in the grid of a link: at the highest CQI, with the whole cell.
fn most_per_slot(config: &RadioConfig) -> f64 {
    let symbols = f64::from(*config.slots.symbols.iter().max().unwrap());
    let elements = 12.0 * symbols * f64::from(config.carrier.blocks * config.carrier.layers);
    elements * (1.0 - config.carrier.overhead) * 7.4063 / 8.0
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_packet_ends_once_in_order_and_none_is_early(profile in profile(), way in way(), seed in any::<u64>(), arrivals in arrivals(), effects in any::<bool>()) {
        let config = config(profile, way, seed);
        let config = if effects { with_effects(config) } else { config };
        let (slot, decode) = (config.slots.length, config.harq.decode);
        let outcomes = run(config, &arrivals);
        prop_assert_eq!(outcomes.len(), arrivals.len());
        let mut seen: Vec<_> = outcomes.iter().map(|outcome| outcome.packet).collect();
        let delivered: Vec<_> = outcomes.iter().filter(|outcome| outcome.fate == Fate::Delivered).collect();
        prop_assert!(delivered.is_sorted_by_key(|outcome| outcome.packet));
        prop_assert!(outcomes.is_sorted_by_key(|outcome| outcome.departed));
        for outcome in delivered {
            // At least a slot that begins after the arrival, and its decoding.
            prop_assert!(outcome.released >= outcome.arrived + slot + decode);
            prop_assert!(outcome.departed >= outcome.released);
        }
        seen.sort_unstable();
        prop_assert!(seen.into_iter().eq(0..arrivals.len()));
    }

    #[test]
    fn no_more_leaves_than_the_grid_offers(profile in profile(), way in way(), seed in any::<u64>(), arrivals in arrivals()) {
        let mut config = config(profile, way, seed);
        config.harq.first = Probability::NEVER; // late blocks come in bursts
        let (most, slot) = (most_per_slot(&config), config.slots.length.as_nanos());
        let share = config.slots.symbols.iter().filter(|&&symbols| symbols > 0).count();
        let period = config.slots.symbols.len();
        let outcomes = run(config, &arrivals);
        for (index, first) in outcomes.iter().enumerate() {
            let mut sent = 0;
            for last in &outcomes[index + 1..] {
                if last.fate != Fate::Delivered || first.fate != Fate::Delivered { continue; }
                sent += last.size.0;
                let slots = (last.released - first.released).as_nanos() / slot + 1;
                let usable = (slots as usize / period + 1) * share;
                prop_assert!(sent as f64 <= most * usable.min(slots as usize) as f64);
            }
        }
    }

    #[test]
    fn no_call_panics(
        profile in profile(),
        way in way(),
        calls in prop::collection::vec((any::<u64>(), any::<u64>(), 0..4u8), 0..40),
        zero in any::<u64>(),
        extreme in any::<u64>(),
    ) {
        let mut config = with_effects(config(profile, way, extreme));
        config.path.per_byte_ps = extreme;
        config.handover = Some(radio::Handover {
            every: Duration::from_nanos(extreme),
            least: Duration::from_nanos(extreme.rotate_left(17)),
            most: Duration::from_nanos(extreme.rotate_left(31)),
            spread_db: 3.0,
        });
        config.queue = Discipline::DropTail(Limit { packets: Some(Packets(100)), bytes: Some(Bytes(1_000_000)) });
        let mut direction = Direction::new(vec![config.into()], Time::from_nanos(zero)).with_meter();
        call(&mut direction, calls);
    }
}

#[test]
fn sending_wakes_a_sleeping_device_only_if_its_directions_are_coupled() {
    let arrivals = |coupled, release: &str| {
        let directions = Way::BOTH.map(|way| {
            let mut config = Profile::LOWBAND_GOOD.config(way);
            config.release = serde_json::from_str(release).unwrap();
            config.coupled = coupled;
            if let Some(sleep) = &mut config.sleep {
                sleep.cycle = Duration::from_millis(640);
            }
            vec![StageConfig::from(config)].into()
        });
        let mut config = GraphConfig::default();
        (config.vertices, config.directions) = (1, directions.into());
        let mut graph = Graph::new(config, Time::ZERO).unwrap();
        // A packet waits for the device, which sends 100 ms later; another one comes soon after.
        for (at, direction) in [(700, 1), (800, 0), (900, 1)] {
            graph.accept(Time::from_millis(at), direction, at, Bytes(100));
        }
        let found = std::iter::from_fn(|| graph.poll(Time::from_millis(2000)));
        let found = found.filter(|(direction, _)| *direction == 1);
        found
            .map(|(_, outcome)| outcome.departed.as_nanos() / 50_000_000)
            .collect::<Vec<_>>()
    };
    // In steps of 50 ms: at the next wake-up; at once; at the end of the set-up that the first packet began.
    assert_eq!(arrivals(false, "null"), [25, 25]);
    assert_eq!(arrivals(true, "null"), [16, 18]);
    let release = r#"{"after_ns": 150000000, "least_ns": 150000000, "most_ns": 150000000}"#;
    assert_eq!(arrivals(true, release), [17, 18]);
}

/// Asserts that a value is within a share of the published one.
#[track_caller]
fn near(value: f64, published: f64, share: f64) {
    let off = (value / published - 1.0).abs();
    assert!(off <= share, "{value} instead of {published}");
}

// Sentosa et al., "CellReplay", NSDI 2025, §1 and §3.

#[test]
fn the_low_band_depends_on_the_length_of_a_train_as_published() {
    let effects = Effects::of(Profile::LOWBAND_GOOD, 0..8, 10);
    near(effects.downlink, 60.0, 0.1);
    near(effects.ratio(), 2.6, 0.1);
    near(effects.most_excess(), 0.358, 0.1);
    near(effects.bias(), 0.1325, 0.2);
    near(effects.compensation, 6.8, 0.1);
    let late: Vec<f64> = [5, 7, 9, 11].map(|index| effects.late[index]).into();
    assert!(
        late.is_sorted() && late[0] < 0.7 && late[3] > 0.95,
        "{late:?}"
    );
}

#[test]
fn the_mid_band_only_begins_slowly_as_published() {
    let effects = Effects::of(Profile::MIDBAND_GOOD, 0..8, 10);
    near(effects.most_excess(), 0.115, 0.1);
    near(effects.bias(), 0.1688, 0.2);
    // After some packets the slope is the saturator's, at any length.
    assert!(
        effects.late[6..].iter().all(|late| *late > 0.9),
        "{:?}",
        effects.late
    );
}

#[test]
fn every_condition_shows_the_operators_behaviour_and_is_worse_than_a_good_one() {
    for band in [Band::Midband, Band::Lowband] {
        let of = |condition| Effects::of(Profile { band, condition }, 0..2, 5);
        let conditions = [
            Condition::Good,
            Condition::Weak,
            Condition::Crowded,
            Condition::Walking,
            Condition::Driving,
        ];
        let all = conditions.map(of);
        for (effects, condition) in all.iter().zip(conditions) {
            let tail = effects.late[5];
            match band {
                Band::Midband => assert!(tail > 0.7, "{condition:?}: {tail}"),
                Band::Lowband => {
                    let excess = effects.most_excess();
                    assert!(
                        tail < 0.7 && excess > 0.25,
                        "{condition:?}: {tail}, {excess}"
                    );
                }
            }
            assert!(effects.bias() > 0.0, "{condition:?}: {}", effects.bias());
            assert!(
                effects.compensation > 0.3,
                "{condition:?}: {}",
                effects.compensation
            );
        }
        let p95 = |effects: &Effects| probe::quantile(&effects.live, 0.95);
        for (effects, condition) in all.iter().zip(conditions).skip(1) {
            assert!(effects.downlink < all[0].downlink, "{band:?} {condition:?}");
            assert!(p95(effects) > p95(&all[0]), "{band:?} {condition:?}");
        }
    }
}

#[test]
fn the_uplink_does_not_depend_on_the_length_of_a_train() {
    for profile in [Profile::LOWBAND_GOOD, Profile::MIDBAND_GOOD] {
        let link = Link::radio(profile, 1);
        let rate = |length: usize| {
            let relative = uplink_trains(&link, length, 30);
            // The first packets come in one block.
            (length - 20) as f64 / (relative[length - 1] - relative[19])
        };
        near(rate(60), rate(200), 0.1);
    }
}
