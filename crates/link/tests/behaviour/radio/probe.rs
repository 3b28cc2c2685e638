//! The measurements of Sentosa et al. ("CellReplay", NSDI 2025, §3), made in virtual time on a link of any stages.
#![allow(dead_code)] // each user needs a part

use std::sync::Arc;

use cellbed_link::*;

/// Sizes of trains, in packets: twelve from 1 to 500 (§3.2).
pub const TRAINS: [usize; 12] = [1, 10, 25, 50, 75, 100, 150, 200, 250, 300, 400, 500];
/// Sizes of the paper's packets and acknowledgements.
pub const PACKET: Bytes = Bytes(1400);
pub const ACK: Bytes = Bytes(100);
const GAP: Duration = Duration::from_millis(100);
/// Slightly more than the paper's 50 ms: there, host clocks are not synchronised with the network.
const INTERVAL: Duration = Duration::from_micros(50_037);

/// Both directions of a link.
#[derive(Clone)]
pub struct Link {
    pub uplink: Vec<StageConfig>,
    pub downlink: Vec<StageConfig>,
}

impl Link {
    pub fn radio(profile: Profile, seed: u64) -> Self {
        let way = |way| {
            let mut config = profile.config(way);
            config.seed = Seed(seed);
            vec![config.into()]
        };
        Self {
            uplink: way(Way::Uplink),
            downlink: way(Way::Downlink),
        }
    }

    fn start(&self) -> (Direction<usize>, Direction<usize>) {
        let start = |stages: &Vec<StageConfig>| Direction::new(stages.clone(), Time::ZERO);
        (start(&self.uplink), start(&self.downlink))
    }
}

/// Takes the outcomes up to `until`. Returns number and time of the packets that arrive.
pub fn drain(direction: &mut Direction<usize>, until: Time) -> Vec<(usize, Time)> {
    let mut arrivals = Vec::new();
    while let Some(event) = direction.next_event().filter(|&event| event <= until) {
        while let Some(outcome) = direction.poll(event) {
            if outcome.fate == Fate::Delivered {
                arrivals.push((outcome.packet, outcome.departed));
            }
        }
    }
    arrivals
}

pub fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

/// Returns round-trip times in ms of packets of `size`, one every 50 ms for `seconds`, answered by `answer` (§3.1).
pub fn round_trips(link: &Link, size: Bytes, answer: Bytes, seconds: u64) -> Vec<f64> {
    let (mut up, mut down) = link.start();
    let end = Time::ZERO + Duration::from_secs(seconds);
    let (mut sent, mut now) = (Vec::new(), Time::from_millis(1000));
    let (mut at_server, mut at_client) = (Vec::new(), Vec::new());
    while now < end {
        at_server.extend(drain(&mut up, now));
        up.accept(now, sent.len(), size);
        sent.push(now);
        now += INTERVAL;
    }
    at_server.extend(drain(&mut up, Time::MAX));
    for (packet, arrived) in at_server {
        at_client.extend(drain(&mut down, arrived));
        down.accept(arrived, packet, answer);
    }
    at_client.extend(drain(&mut down, Time::MAX));
    at_client
        .into_iter()
        .map(|(packet, arrived)| millis(arrived - sent[packet]))
        .collect()
}

/// Results of trains of one length.
pub struct Trains {
    /// Mean train completion time, ms: from the first packet's departure to the arrival of the acknowledgement of the
    /// last.
    pub completion: f64,
    /// Mean arrival of each packet after the first one, ms.
    pub relative: Vec<f64>,
}

/// Sends trains of `length` packets downlink for `seconds`, each 100 ms after the previous acknowledgement.
pub fn trains(link: &Link, length: usize, seconds: u64) -> Trains {
    let (mut up, mut down) = link.start();
    let end = Time::ZERO + Duration::from_secs(seconds);
    let mut now = Time::from_millis(1000);
    let (mut count, mut completion) = (0.0, 0.0);
    let mut relative = vec![0.0; length];
    while now < end {
        for packet in 0..length {
            down.accept(now, packet, PACKET);
        }
        let arrivals = drain(&mut down, Time::MAX);
        let (first, last) = (arrivals[0].1, arrivals[arrivals.len() - 1].1);
        for &(packet, arrived) in &arrivals {
            relative[packet] += millis(arrived - first);
        }
        up.accept(last, 0, ACK);
        let done = drain(&mut up, Time::MAX)[0].1;
        completion += millis(done - now);
        count += 1.0;
        // Trains begin anywhere in the grid of slots.
        now = done + GAP + Duration::from_micros(37 * (count as u64 % 271));
    }
    relative.iter_mut().for_each(|sum| *sum /= count);
    Trains {
        completion: completion / count,
        relative,
    }
}

/// Sends trains uplink, without acknowledgements. Returns each packet's mean arrival after the first one, ms.
pub fn uplink_trains(link: &Link, length: usize, seconds: u64) -> Vec<f64> {
    let swapped = Link {
        uplink: vec![],
        downlink: link.uplink.clone(),
    };
    trains(&swapped, length, seconds).relative
}

/// Arrivals at the end of a direction that gets packets at `rate` for `seconds`.
pub fn saturate(stages: &[StageConfig], rate: BitRate, seconds: u64) -> Vec<Time> {
    let mut direction = Direction::new(stages.to_vec(), Time::ZERO);
    let wait = rate.time_for(PACKET).expect("the rate is above zero");
    let end = Time::ZERO + Duration::from_secs(seconds);
    let (mut now, mut arrivals) = (Time::ZERO, Vec::new());
    while now < end {
        direction.accept(now, 0, PACKET);
        now += wait;
        if direction.next_event().is_some_and(|event| event <= now) {
            arrivals.extend(drain(&mut direction, now));
        }
    }
    arrivals.into_iter().map(|(_, arrived)| arrived).collect()
}

/// Results of the saturator of Mahimahi and of the paper: it measures the rate, then sends 25 % more (§4.2).
pub struct Saturation {
    pub arrivals: Vec<Time>,
    pub rate: f64,
}

pub fn saturation(stages: &[StageConfig], seconds: u64) -> Saturation {
    // Two seconds suffice to measure the maximum rate.
    let most = mean_rate(&saturate(stages, BitRate(400_000_000), 2));
    let arrivals = saturate(stages, BitRate((most * 1.25) as u64), seconds);
    Saturation {
        rate: mean_rate(&arrivals),
        arrivals,
    }
}

/// bit/s
fn mean_rate(arrivals: &[Time]) -> f64 {
    let span = arrivals[arrivals.len() - 1] - arrivals[0];
    8.0 * PACKET.0 as f64 * (arrivals.len() - 1) as f64 / span.as_secs_f64()
}

/// The link that replays the saturation of another one with a fixed one-way delay, as Mahimahi does.
pub fn replay(uplink: &Saturation, downlink: &Saturation, one_way: Duration) -> Link {
    let way = |saturation: &Saturation| {
        let millis = saturation
            .arrivals
            .iter()
            .map(|arrival| arrival.as_nanos() / 1_000_000);
        let trace = Trace::from_millis(millis).expect("a recording");
        let bottleneck = BottleneckConfig {
            opportunity: PACKET,
            ..BottleneckConfig::new(Schedule::looped(Arc::new(trace)))
        };
        vec![bottleneck.into(), DelayConfig::Fixed(one_way).into()]
    };
    Link {
        uplink: way(uplink),
        downlink: way(downlink),
    }
}

pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

pub fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

/// Effects of a profile.
pub struct Effects {
    /// Mbit/s of the saturator, down and up.
    pub downlink: f64,
    pub uplink: f64,
    /// Round-trip times of 1400 bytes, ms: live, and in the saturation's replay with half the minimum as delay.
    pub live: Vec<f64>,
    pub replayed: Vec<f64>,
    /// Mean completion time of trains by [`TRAINS`], ms.
    pub completion: Vec<f64>,
    /// Delivery rate of trains by [`TRAINS`], Mbit/s; the first is NaN.
    pub rate: Vec<f64>,
    /// Rate of the second half of trains by [`TRAINS`], as a share of the saturator's.
    pub late: Vec<f64>,
    /// Completion times of trains predicted from one packet and the saturator's rate.
    pub line: Vec<f64>,
    /// Advance of the acknowledgement for 100 bytes over the one for 1400 bytes, ms.
    pub compensation: f64,
}

impl Effects {
    /// Measures a link per seed, for `seconds` each.
    pub fn of(profile: Profile, seeds: std::ops::Range<u64>, seconds: u64) -> Self {
        let count = (seeds.end - seeds.start) as f64;
        let links: Vec<Link> = seeds.map(|seed| Link::radio(profile, seed)).collect();
        let live = links
            .iter()
            .flat_map(|link| round_trips(link, PACKET, PACKET, seconds));
        let live: Vec<f64> = live.collect();
        let least = live.iter().copied().fold(f64::MAX, f64::min);
        let one_way = Duration::from_secs_f64(least / 2e3);
        let (mut downlink, mut uplink, mut replayed) = (0.0, 0.0, Vec::new());
        for link in &links {
            let [up, down] = [&link.uplink, &link.downlink].map(|it| saturation(it, seconds));
            uplink += up.rate / count / 1e6;
            downlink += down.rate / count / 1e6;
            let replay = replay(&up, &down, one_way);
            replayed.extend(round_trips(&replay, PACKET, PACKET, seconds));
        }
        let (mut completion, mut rate, mut late) = (Vec::new(), Vec::new(), Vec::new());
        for length in TRAINS {
            let measured = links.iter().map(|link| trains(link, length, seconds));
            let measured: Vec<Trains> = measured.collect();
            completion.push(mean(measured.iter().map(|trains| trains.completion)));
            let arrival = |packet: usize| mean(measured.iter().map(|it| it.relative[packet]));
            let between = |first: usize, last: usize| {
                let span = arrival(last) - arrival(first);
                8e-3 * PACKET.0 as f64 * (last - first) as f64 / span
            };
            rate.push(between(0, length - 1));
            late.push(between(length / 2, length - 1) / downlink);
        }
        let line = TRAINS
            .iter()
            .map(|&length| completion[0] + 8e-3 * PACKET.0 as f64 * (length - 1) as f64 / downlink)
            .collect();
        let advance = |link: &Link| {
            let of = |size| mean(round_trips(link, size, ACK, seconds).into_iter());
            of(PACKET) - of(Bytes(100))
        };
        let compensation = mean(links.iter().map(advance));
        Self {
            downlink,
            uplink,
            live,
            replayed,
            completion,
            rate,
            late,
            line,
            compensation,
        }
    }

    /// Return how much the replay's median round-trip time is too low, as a share of the live one (§3.1).
    pub fn bias(&self) -> f64 {
        1.0 - median(&self.replayed) / median(&self.live)
    }

    /// Return the excess of the completion times of trains over the prediction by the saturator's rate, by [`TRAINS`].
    pub fn excess(&self) -> Vec<f64> {
        let pairs = self.completion.iter().zip(&self.line);
        pairs.map(|(live, line)| live / line - 1.0).collect()
    }

    /// Return the maximum excess.
    pub fn most_excess(&self) -> f64 {
        self.excess().into_iter().fold(f64::MIN, f64::max)
    }

    /// The rate of trains of 100 packets over the rate of trains of 10 (§1).
    pub fn ratio(&self) -> f64 {
        self.rate[5] / self.rate[1]
    }
}
