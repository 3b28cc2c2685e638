use super::*;
use crate::direction::Direction;
use crate::packet::{Fate, Outcome};
use crate::queue::Discipline;
use crate::random::Probability;
use crate::stage::StageConfig;
use crate::units::Bytes;

fn ms(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn span(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns a link with 1000 bytes per millisecond, without randomness, waiting or delay.
fn plain() -> RadioConfig {
    let mut config = Profile::LOWBAND_GOOD.config(Way::Downlink);
    config.channel.mean_db = 100.0; // the highest CQI
    config.channel.deviation_db = 0.0;
    config.carrier.blocks = 1;
    config.carrier.layers = 1;
    config.carrier.overhead = 0.0;
    let full = 12.0 * 14.0 * 7.4063 / 8.0; // bytes of a slot
    config.cell.share = 1000.5 / full;
    config.cell.deviation = 0.0;
    config.cell.turn = Probability::ALWAYS;
    config.ramp = Ramp::NONE;
    config.harq.first = Probability::NEVER;
    config.harq.decode = Duration::ZERO;
    config.sleep = None;
    config.path = Path {
        delay: Duration::ZERO,
        deviation: Duration::ZERO,
        memory: Duration::ZERO,
        every: Duration::ZERO,
        step: Duration::ZERO,
        per_byte_ps: 0,
    };
    config.queue = Discipline::Infinite;
    config
}

fn outcomes(config: RadioConfig, arrivals: &[(Time, u64)]) -> Vec<Outcome<usize>> {
    let mut direction = Direction::new(vec![config.into()], Time::ZERO);
    for (packet, &(at, size)) in arrivals.iter().enumerate() {
        direction.accept(at, packet, Bytes(size));
    }
    std::iter::from_fn(|| direction.poll(Time::from_millis(1_000_000))).collect()
}

fn departures(config: RadioConfig, arrivals: &[(Time, u64)]) -> Vec<Time> {
    let outcomes = outcomes(config, arrivals);
    outcomes.iter().map(|outcome| outcome.departed).collect()
}

#[test]
fn a_slot_carries_bytes_not_packets() {
    // slot 1 takes 600 and 400 bytes, slot 2 the other 200 and the whole third packet, slot 3 is lost
    let arrivals = [(ms(0), 600), (ms(0), 600), (ms(0), 800), (ms(4), 1000)];
    let arrivals = arrivals.map(|(at, size)| (at + Duration::from_nanos(1), size));
    assert_eq!(departures(plain(), &arrivals), [2, 3, 3, 6].map(ms));
}

#[test]
fn a_direction_of_a_pattern_waits_for_its_slots() {
    let mut config = plain();
    config.slots.symbols = vec![14, 14, 0, 0, 7];
    let late = Duration::from_nanos(1);
    // slots 0, 1 and half of 4, then 5: slot 0 was missed
    let arrivals = [(ms(0) + late, 1000), (ms(1), 1000)];
    assert_eq!(departures(config, &arrivals), [2, 6].map(ms));
}

#[test]
fn small_packets_arrive_sooner() {
    let mut config = plain();
    config.path.delay = span(10);
    config.path.per_byte_ps = 2_000_000;
    let arrivals = [
        (ms(1), 100),
        (ms(100), 1000),
        (ms(200), 1000),
        (ms(200), 10),
    ];
    let departures = departures(config, &arrivals);
    let after = [(3, 200), (102, 2000), (202, 2000)]
        .map(|(slot, more)| ms(slot + 10) + Duration::from_micros(more));
    assert_eq!(departures[..3], after.map(|at| at + span(0)));
    assert_eq!(departures[3], departures[2].max(ms(213))); // none overtakes
}

#[test]
fn blocks_that_fail_hold_up_those_behind_and_take_their_slot() {
    let mut config = plain();
    config.harq.first = Probability::ALWAYS;
    config.harq.round_trip = span(8);
    config.harq.again = Probability::NEVER;
    // Each block arrives 8 ms late; from the ninth slot on retransmissions fill the slots.
    let arrivals = vec![(Time::from_nanos(1), 1000); 9];
    let departures = departures(config, &arrivals);
    assert_eq!(departures[..8], [10, 11, 12, 13, 14, 15, 16, 17].map(ms));
    assert_eq!(departures[8], ms(26)); // sent in slot 17, because slots 9 to 16 carry retransmissions
}

#[test]
fn nothing_passes_during_a_handover_and_nothing_is_lost() {
    let mut config = plain();
    config.handover = Some(Handover {
        every: span(1000),
        least: span(100),
        most: span(100),
        spread_db: 0.0,
    });
    let arrivals: Vec<_> = (0..10_000).map(|at| (ms(at), 500)).collect();
    let departures = departures(config, &arrivals);
    assert_eq!(departures.len(), arrivals.len());
    let gaps = departures
        .windows(2)
        .filter(|pair| pair[1] - pair[0] >= span(100));
    assert_eq!(gaps.count(), 10);
}

#[test]
fn an_hour_of_idleness_is_one_step() {
    let config = Profile::LOWBAND_DRIVING.config(Way::Downlink);
    let mut direction = Direction::new(vec![config.into()], Time::ZERO);
    let mut visits = 0;
    for hour in 0..1000 {
        let now = Time::ZERO + Duration::from_secs(3600 * hour);
        direction.accept(now, hour, Bytes(100));
        while let Some(event) = direction.next_event() {
            while direction.poll(event).is_some() {}
            visits += 1;
        }
    }
    assert!(visits <= 4000, "{visits}");
}

#[test]
fn packets_stay_when_the_link_changes_or_starts_anew() {
    let mut direction = Direction::new(vec![plain().into()], Time::ZERO);
    for packet in 0..4 {
        direction.accept(ms(0), packet, Bytes(1000));
    }
    let mut slow = plain();
    slow.cell.share /= 2.0;
    direction.change(ms(2), 0, StageConfig::from(slow)).unwrap();
    direction.restart(Time::from_micros(5_500), Duration::ZERO);
    let departed = std::iter::from_fn(|| direction.poll(ms(100)));
    let departed: Vec<_> = departed.map(|outcome| outcome.departed).collect();
    // 1000 bytes in slot 1; 500 in slots 2 to 5; from 5.5 ms on slots begin at half milliseconds
    assert_eq!(departed[..2], [2, 4].map(ms));
    assert_eq!(departed[2], ms(6));
    assert_eq!(departed[3], Time::from_micros(7_500));
}

#[test]
fn the_weather_does_not_depend_on_what_is_sent() {
    let config = Profile::MIDBAND_DRIVING.config(Way::Downlink);
    let (all, some) = (Surroundings::new(&config), Surroundings::new(&config));
    let mut known = Cache::default();
    for slot in (0..100_000).filter(|slot| slot % 10 < 8) {
        let offered = all.capacity(slot, &mut known);
        if slot % 997 == 0 {
            assert_eq!(offered, some.capacity(slot, &mut Cache::default()));
        }
    }
}

#[test]
fn a_meter_knows_what_the_slots_could_carry() {
    let mut config = plain();
    config.slots.symbols = vec![14, 0];
    let mut direction = Direction::new(vec![config.into()], ms(3)).with_meter();
    for _ in 0..7 {
        direction.accept(ms(3), 0, Bytes(1000));
    }
    let bins: Vec<_> = direction.finished_bins(ms(23)).collect();
    let offered: Vec<_> = bins.iter().map(|bin| bin.capacity).collect();
    assert_eq!(offered, [Some(Bytes(5000)); 2]);
    assert_eq!((bins[0].used, bins[1].used), (Bytes(4000), Bytes(3000)));
}

#[test]
fn a_lost_block_drops_the_packets_that_have_bytes_in_it() {
    let mut config = plain();
    (config.harq.unacknowledged, config.harq.attempts) = (true, 1);
    config.harq.first = Probability::new(0.2).unwrap();
    let arrivals: Vec<_> = (0..3000).map(|at| (ms(2 * at), 1400)).collect(); // two blocks each
    let (passed, lost): (Vec<_>, Vec<_>) = outcomes(config, &arrivals)
        .into_iter()
        .partition(|it| it.fate == Fate::Delivered);
    let reason = Fate::Dropped(DropReason::Loss);
    assert!(lost.iter().all(|it| it.fate == reason));
    let share = lost.len() as f64 / 3000.0;
    assert!((0.33..0.39).contains(&share), "{share}"); // 1 − 0.8²
    assert!(passed.is_sorted_by_key(|it| it.packet)); // packets behind a lost block wait for the recovery
}

#[test]
fn blocks_are_lost_together_in_deep_fades() {
    let mut config = plain();
    (config.channel.deviation_db, config.channel.memory) = (4.0, span(500));
    (config.harq.unacknowledged, config.harq.attempts) = (true, 1);
    config.harq.fade = serde_json::from_str(r#"{"below_db": 5.0, "chance": 1.0}"#).unwrap();
    let arrivals: Vec<_> = (0..100_000).map(|at| (ms(3 * at), 1000)).collect();
    let mut gone = vec![false; arrivals.len()];
    for outcome in outcomes(config, &arrivals) {
        gone[outcome.packet] = outcome.fate != Fate::Delivered;
    }
    let share = |of: &[bool]| of.iter().filter(|&&it| it).count() as f64 / of.len() as f64;
    assert!((0.07..0.15).contains(&share(&gone)), "{}", share(&gone)); // 1.25 deviations below the mean
    let after: Vec<_> = gone.windows(2).filter(|it| it[0]).map(|it| it[1]).collect();
    assert!(share(&after) > 0.8);
}
