//! The replay of CellReplay in numbers: the cases in figures 3 and 7 of Sentosa et al. (NSDI 2025), whose delays the
//! paper describes only in words. `replay_reference` compares the rules with a model.

use std::sync::Arc;

use cellbed_link::*;

use crate::driving::{delay, departures as all, ms, span};

const PACKET: Bytes = Bytes(1400);

fn light(rows: &str) -> Arc<LightRows> {
    Arc::new(LightRows::parse(rows.as_bytes()).unwrap())
}

fn heavy(millis: impl IntoIterator<Item = u64>) -> Arc<Trace> {
    Arc::new(Trace::from_millis(millis).unwrap())
}

/// Two light rows, and heavy opportunities at every even millisecond for a second. F and light opportunities follow the
/// text of the paper, not the public tool.
fn figure_7() -> WorkloadDependentConfig {
    WorkloadDependentConfig {
        idle: span(10),
        idle_at: IdleAt::Link,
        anchor: Anchor::BaseDelay,
        ..WorkloadDependentConfig::new(
            light("0 20 0 1 3 6\n50 30 0 2 4\n"),
            heavy((1..=500).map(|step| 2 * step)),
        )
    }
}

fn link(config: WorkloadDependentConfig) -> Direction<u64> {
    Direction::new(vec![config.into()], Time::ZERO)
}

/// Returns the departures of packets (ms, bytes), in ms with fractions; `None` for dropped ones.
fn departures(link: &mut Direction<u64>, packets: &[(u64, u64)]) -> Vec<Option<f64>> {
    for (index, &(at, size)) in packets.iter().enumerate() {
        link.accept(ms(at), index as u64, Bytes(size));
    }
    let mut left = vec![None; packets.len()];
    while let Some(outcome) = link.poll(ms(100_000)) {
        if outcome.fate == Fate::Delivered {
            left[outcome.packet as usize] = Some(outcome.departed.as_nanos() as f64 / 1e6);
        }
    }
    left
}

fn whole(times: &[u64]) -> Vec<Option<f64>> {
    times.iter().map(|&time| Some(time as f64)).collect()
}

#[test]
fn figure_3_a_change_of_the_base_delay_reaches_every_packet_after_it() {
    // Packets sent every 10 ms take 20 ms until t₂ = 40 ms and 40 ms from then on: none arrives between 50 and 80 ms.
    let recorded = heavy([20, 30, 40, 50, 80, 90, 100, 110]);
    let sent = [(0, 1400), (24, 1400), (46, 1400), (90, 1400)];

    let mut saturation = Direction::new(
        vec![
            delay(20),
            BottleneckConfig::new(Schedule::looped(Arc::clone(&recorded))).into(),
        ],
        Time::ZERO,
    );
    // The packet in the blackout is late, but the next packet is as early as before: 20 ms instead of 40.
    assert_eq!(
        departures(&mut saturation, &sent),
        whole(&[20, 50, 80, 110]),
        "saturation opportunities behind a fixed delay"
    );

    let rows = light("0 20 0\n10 20 0\n20 20 0\n30 20 0\n40 40 0\n50 40 0\n60 40 0\n70 40 0\n");
    let mut replay = link(WorkloadDependentConfig::new(rows, recorded));
    assert_eq!(
        departures(&mut replay, &sent),
        whole(&[20, 44, 86, 130]),
        "20 ms before the change, 40 ms after it"
    );
}

#[test]
fn figure_7_light_opportunities_are_spliced_to_heavy_ones() {
    // At 25 ms, between rows of 20 and 30 ms, DELAY = 25 ms; the row at 0 ms is the previous one. TempPDO = {50, 51,
    // 53, 56}, then the heavy opportunities from 25 + 25 + 6 + 1 = 57 ms on: 58, 60, 62 …
    let burst = [(25, 1400); 8];
    assert_eq!(
        departures(&mut link(figure_7()), &burst),
        whole(&[50, 51, 53, 56, 58, 60, 62, 64])
    );
}

#[test]
fn the_base_delay_is_no_part_of_queueing_and_service() {
    let mut link = link(figure_7());
    (0..4).for_each(|index| link.accept(ms(25), index, PACKET));
    let parts: Vec<_> = std::iter::from_fn(|| link.poll(ms(1000)))
        .map(|it| (it.released - it.arrived, it.departed - it.released))
        .collect();
    assert_eq!(parts, [0, 1, 3, 6].map(|queued| (span(queued), span(25))));
}

#[test]
fn figure_7_delay_and_schedule_stay_while_the_link_is_active() {
    // Active since 25 ms with a delay of 25 ms. The packet of 45 ms enters the queue at 70 ms, among heavy
    // opportunities. The packet of 79 ms finds the queue empty for 9 of 10 ms: still 25 ms, though the rows have 30 by
    // now. After 104 ms the queue is empty; from 114 ms on the link is inactive.
    let mut link = link(figure_7());
    let sent = [(25, 1400), (45, 1400), (79, 1400), (114, 1400), (114, 1400)];
    assert_eq!(
        departures(&mut link, &sent),
        whole(&[50, 70, 104, 144, 146]),
        "the last two with 30 ms and the light row {{0, 2, 4}}"
    );
}

#[test]
fn a_restart_finds_an_empty_link_inactive_and_leaves_packets_alone() {
    let mut link = link(figure_7());
    link.accept(ms(25), 0, PACKET);
    link.accept(ms(25), 1, PACKET);
    link.restart(ms(30), Duration::ZERO);
    link.restart(ms(60), Duration::ZERO);
    link.accept(ms(60), 2, PACKET);
    assert_eq!(all(&mut link), [50, 51, 80].map(ms), "the last as at 0 ms");
}

#[test]
fn a_change_keeps_packets_and_applies_to_the_next_activation() {
    let mut link = link(figure_7());
    for packet in 0..3 {
        link.accept(ms(0), packet, PACKET);
    }
    let other = WorkloadDependentConfig {
        light: light("0 5 0 7\n"),
        ..figure_7()
    };
    link.change(ms(10), 0, other.into()).unwrap();
    link.accept(ms(40), 3, PACKET);
    assert_eq!(all(&mut link), [20, 21, 23, 45].map(ms));
}

#[test]
fn a_meter_tells_what_the_spliced_schedule_offers() {
    let mut link = link(figure_7()).with_meter();
    for packet in 0..5 {
        link.accept(ms(25), packet, PACKET);
    }
    let bins: Vec<Bin> = link.finished_bins(ms(70)).collect();
    let capacity: Vec<u64> = bins
        .iter()
        .map(|bin| bin.capacity.unwrap().0 / PACKET.0)
        .collect();
    // Heavy opportunities until the light row at 50 ms: {50, 51, 53, 56, 58}, then every other millisecond again.
    assert_eq!(capacity, [4, 5, 5, 5, 5, 5, 5]);
    let used: Vec<u64> = bins.iter().map(|bin| bin.used.0 / PACKET.0).collect();
    assert_eq!(used, [0, 0, 0, 0, 0, 5, 0]);
    assert_eq!(bins[5].peak, Bytes(5600));
}

#[test]
fn queue_management_works_in_front_of_it() {
    let codel = CoDelConfig {
        ecn: true,
        ..CoDelConfig::default()
    };
    let mut config = figure_7();
    config.queue = Discipline::CoDel(codel);
    let mut link = link(config);
    let tag = Tag {
        flow: 1,
        ecn: Ecn::Ect0,
        ..Tag::default()
    };
    for packet in 0..2000 {
        link.accept_tagged(ms(packet / 4), packet, PACKET, tag); // eight times the rate of the heavy recording
    }
    let ends: Vec<_> = std::iter::from_fn(|| link.poll(ms(100_000))).collect();
    assert!(ends.iter().any(|outcome| outcome.marked));
    assert!(ends.iter().all(|outcome| outcome.fate == Fate::Delivered));
    assert_eq!(ends.len(), 2000);
}
