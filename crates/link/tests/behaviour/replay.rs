//! The replay of CellReplay in numbers: the cases that Sentosa et al. (NSDI 2025) draw in their figures 3 and 7, and its rules one
//! by one. The paper gives the figures' delays in words only; the other numbers are ours.

use std::sync::Arc;

use cellbed_link::*;

const PACKET: Bytes = Bytes(1400);

fn ms(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn span(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn light(rows: &str) -> Arc<LightRows> {
    Arc::new(LightRows::parse(rows.as_bytes()).unwrap())
}

fn heavy(millis: impl IntoIterator<Item = u64>) -> Arc<Trace> {
    Arc::new(Trace::from_millis(millis).unwrap())
}

/// Two light rows, and heavy opportunities at every even millisecond for a second; F and light opportunities as the text of
/// the paper can be read, not as the public tool counts them.
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

/// When the packets (ms, bytes) leave, in ms with fractions; `None` for one that is dropped.
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
            DelayConfig::Fixed(span(20)).into(),
            BottleneckConfig::new(Schedule::looped(Arc::clone(&recorded))).into(),
        ],
        Time::ZERO,
    );
    // The one that meets the blackout is late, but the one after it is as early as before: 20 ms in place of 40.
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
    // At 25 ms, between rows of 20 and 30 ms, DELAY = 25 ms; the row at 0 ms is the last before. TempPDO = {50, 51, 53, 56},
    // then the heavy ones from 25 + 25 + 6 + 1 = 57 ms on: 58, 60, 62 …
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
    // Active since 25 ms with a delay of 25 ms. The one at 45 ms comes to the queue at 70 ms, where heavy opportunities are.
    // The one at 79 ms finds the queue empty for 9 of 10 ms: still 25 ms, though rows say 30 by now. After 104 ms it is empty,
    // and inactive from 114 ms on.
    let mut link = link(figure_7());
    let sent = [(25, 1400), (45, 1400), (79, 1400), (114, 1400), (114, 1400)];
    assert_eq!(
        departures(&mut link, &sent),
        whole(&[50, 70, 104, 144, 146]),
        "the last two with 30 ms and the light row {{0, 2, 4}}"
    );
}

#[test]
fn the_link_is_inactive_f_after_its_last_packet_has_left() {
    let sent_after = |at| departures(&mut link(figure_7()), &[(0, 1400), (at, 1400), (at, 1400)]);
    // The first one leaves at 20 ms. Active: DELAY = 20, heavy opportunities at even ms. Inactive: 20 + at/5, and {0, 1, …}.
    assert_eq!(sent_after(29), whole(&[20, 50, 52]));
    assert_eq!(sent_after(30), whole(&[20, 56, 57]));
}

#[test]
fn a_packet_on_its_way_to_the_queue_keeps_the_link_active() {
    let config = WorkloadDependentConfig {
        idle: span(1),
        ..figure_7()
    };
    // The second comes 15 ms after the first, which enters the queue 5 ms later still.
    assert_eq!(
        departures(&mut link(config), &[(0, 1400), (15, 1400)]),
        whole(&[20, 36])
    );
}

/// The reading of the public tool.
fn tool() -> WorkloadDependentConfig {
    WorkloadDependentConfig {
        idle_at: IdleAt::Queue,
        anchor: Anchor::FirstPacket,
        ..figure_7()
    }
}

#[test]
fn the_reading_of_the_public_tool_is_the_default() {
    let config = figure_7();
    let default = WorkloadDependentConfig::new(config.light, config.heavy);
    assert_eq!(default.idle_at, IdleAt::Queue);
    assert_eq!(default.anchor, Anchor::FirstPacket);
}

#[test]
fn idleness_is_counted_where_packets_enter_the_queue() {
    // The queue is empty from 23 ms on. A second train after 14 ms would enter it at 34 ms, with the active link's 20 ms: 11 ms,
    // more than F. Its base delay is 20 + 14 · 10/50 = 22.8 ms.
    let sent_after = |at| [(0, 1400), (0, 1400), (0, 1400), (at, 1400), (at, 1400)];
    let tenths = |times: [u64; 5]| times.map(|time| Some(time as f64 / 10.0)).to_vec();
    assert_eq!(
        departures(&mut link(tool()), &sent_after(14)),
        tenths([200, 210, 230, 368, 378])
    );
    // After 13 ms it is exactly F, which is not enough: heavy opportunities, at even milliseconds.
    assert_eq!(
        departures(&mut link(tool()), &sent_after(13)),
        tenths([200, 210, 230, 340, 360])
    );
    // Counted at the sender, the link has not been empty for 10 ms after 14 ms.
    assert_eq!(
        departures(&mut link(figure_7()), &sent_after(14)),
        tenths([200, 210, 230, 340, 360])
    );
}

#[test]
fn a_burst_activates_a_link_once_though_f_is_zero() {
    // All packets enter the queue at 120 ms, where the first leaves at once.
    let config = WorkloadDependentConfig {
        idle: span(0),
        light: light("0 120 0 2 4 6 8 10\n"),
        ..tool()
    };
    let left = whole(&[120, 122, 124, 126, 128, 130]);
    assert_eq!(
        departures(&mut link(config.clone()), &[(0, 1400); 6]),
        left,
        "one instant"
    );
    // Sockets deliver a burst within some microseconds.
    let mut direction = link(config);
    for packet in 0..6 {
        direction.accept(Time::from_nanos(packet * 20_000), packet, PACKET);
    }
    let times: Vec<_> = std::iter::from_fn(|| direction.poll(ms(1000)))
        .map(|outcome| Some(outcome.departed.as_nanos() as f64 / 1e6))
        .collect();
    assert_eq!(times, left, "20 µs from one to the next");
}

#[test]
fn sizes_shift_the_way_to_the_queue_and_never_reorder() {
    let compensation = Compensation::parse(&b"100 -6.5\n1400 0\n"[..]).unwrap();
    let config = WorkloadDependentConfig {
        compensation,
        idle: span(1000),
        ..figure_7()
    };
    // Active from 0 with 20 ms. A small packet at 100 ms comes to the queue at 113.5 ms and leaves at 114; one that was sent
    // 2 ms after a large one would overtake it, and stays behind, too late for the opportunity that the large one fills.
    let sent = [(0, 1400), (100, 100), (200, 1400), (202, 100)];
    assert_eq!(
        departures(&mut link(config), &sent),
        whole(&[20, 114, 220, 222])
    );
}

#[test]
fn the_first_light_opportunity_waits_for_the_base_delay_or_for_the_packet() {
    let compensation = Compensation::parse(&b"100 -6.5\n1400 0\n"[..]).unwrap();
    let text = WorkloadDependentConfig {
        compensation,
        ..figure_7()
    };
    let tool = WorkloadDependentConfig {
        anchor: Anchor::FirstPacket,
        ..text.clone()
    };
    let sent = [(0, 100), (0, 1400)];
    assert_eq!(departures(&mut link(text), &sent), [Some(20.0), Some(21.0)]);
    // The light row counts from 13.5 ms; the second packet comes at 20 ms, when the heavy recording is on.
    assert_eq!(departures(&mut link(tool), &sent), [Some(13.5), Some(22.0)]);
}

#[test]
fn service_is_byte_wise() {
    // Opportunities of 1400 bytes at 20, 21, 23, 26, 28 … ms: 14 packets of 100 bytes in one; one of 2000 bytes in two, and 800
    // bytes of the second for the next.
    let mut sent = vec![(0, 100); 14];
    sent.extend([(0, 2000), (0, 800), (0, 1500)]);
    let mut expected = vec![20; 14];
    expected.extend([23, 23, 28]);
    assert_eq!(departures(&mut link(figure_7()), &sent), whole(&expected));
    let wider = WorkloadDependentConfig {
        opportunity: Bytes(1500),
        ..figure_7()
    };
    assert_eq!(
        departures(&mut link(wider), &[(0, 1500), (0, 1500), (0, 1500)]),
        whole(&[20, 21, 23])
    );
}

#[test]
fn the_queue_drops_beyond_b_bytes_and_counts_nothing_on_the_way() {
    let config = WorkloadDependentConfig {
        queue: Discipline::DropTail(Limit {
            packets: None,
            bytes: Some(Bytes(4200)),
        }),
        ..figure_7()
    };
    // All five come to the queue at 20 ms; the first leaves at once.
    let mut left = whole(&[20, 21, 23, 26]);
    left.push(None);
    assert_eq!(departures(&mut link(config), &[(0, 1400); 5]), left);
}

#[test]
fn light_rows_and_heavy_recording_start_again_together() {
    // Period 100 ms. At 1 ms of the second round the row at 0 counts again, and so does the delay between it and the next one.
    let config = WorkloadDependentConfig::new(light("0 10 0 1\n50 20 0 4\n"), heavy([98, 100]));
    let mut link = link(config);
    let sent = [(60, 1400), (101, 1400), (101, 1400), (150, 1400)];
    let left = departures(&mut link, &sent);
    assert_eq!(left, [Some(80.0), Some(111.2), Some(112.2), Some(170.0)]);
}

#[test]
fn an_offset_and_a_late_start_shift_the_whole_recording() {
    let config = WorkloadDependentConfig {
        offset: span(50),
        ..figure_7()
    };
    let mut link = Direction::new(vec![config.into()], ms(1001));
    // Position 54 at 1005 ms: row {0, 2, 4} at 30 ms, splice from 1040 ms, which is position 89.
    let left = departures(&mut link, &[(1005, 1400); 5]);
    assert_eq!(left, whole(&[1035, 1037, 1039, 1041, 1043]));
}

#[test]
fn a_recording_played_once_ends() {
    let config = WorkloadDependentConfig {
        repeat: Repeat::Once,
        ..WorkloadDependentConfig::new(light("0 10 0\n"), heavy([20]))
    };
    let mut link = link(config);
    // The last row goes on to serve who comes alone; there are no heavy opportunities any more.
    let left = departures(&mut link, &[(500, 1400), (500, 1400)]);
    assert_eq!(left, [Some(510.0), None]);
    assert_eq!(link.held().packets, Packets(1));
}

#[test]
fn a_restart_finds_an_empty_link_inactive_and_leaves_packets_alone() {
    let mut link = link(figure_7());
    link.accept(ms(25), 0, PACKET);
    link.accept(ms(25), 1, PACKET);
    link.restart(ms(30), Duration::ZERO);
    link.restart(ms(60), Duration::ZERO);
    link.accept(ms(60), 2, PACKET);
    let left: Vec<_> = std::iter::from_fn(|| link.poll(ms(1000)))
        .map(|outcome| outcome.departed)
        .collect();
    assert_eq!(left, [50, 51, 80].map(ms), "the last as at 0 ms");
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
    let left: Vec<_> = std::iter::from_fn(|| link.poll(ms(1000)))
        .map(|outcome| outcome.departed)
        .collect();
    assert_eq!(left, [20, 21, 23, 45].map(ms));
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
    // Heavy ones until the light row begins at 50 ms: {50, 51, 53, 56, 58}, then every other millisecond again.
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
    let config = WorkloadDependentConfig {
        queue: Discipline::CoDel(codel),
        ..figure_7()
    };
    let mut link = link(config);
    let tag = Tag {
        flow: 1,
        ecn: Ecn::Ect0,
    };
    for packet in 0..2000 {
        link.accept_tagged(ms(packet / 4), packet, PACKET, tag); // eight times what the heavy recording carries
    }
    let ends: Vec<_> = std::iter::from_fn(|| link.poll(ms(100_000))).collect();
    assert!(ends.iter().any(|outcome| outcome.marked));
    assert!(ends.iter().all(|outcome| outcome.fate == Fate::Delivered));
    assert_eq!(ends.len(), 2000);
}
