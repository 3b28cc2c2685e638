//! Run time of the path model: a trace of 100 MB, and packets through a whole direction.
//!
//! `cargo run --release -p cellbed-link --example timing`

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use cellbed_link::*;

fn main() {
    let text = large_trace(100_000_000);
    let (trace, seconds) = timed(|| Trace::parse(&text[..]).expect("the generated trace is sound"));
    println!(
        "trace of {:.0} MB, {} opportunities, {} at {}: parsed in {seconds:.3} s, {:.0} MB/s",
        text.len() as f64 / 1e6,
        trace.opportunities().0,
        trace.duration(),
        trace.mean_bit_rate(),
        text.len() as f64 / 1e6 / seconds,
    );

    let trace = Arc::new(trace);
    let steps = 1_000_000;
    let (found, seconds) = timed(|| {
        let period = trace.duration().as_nanos();
        let position =
            |step: u64| Duration::from_nanos(step.wrapping_mul(0x9E37_79B9_7F4A_7C15) % period);
        (0..steps)
            .map(|step| trace.next_opportunity(position(step)).as_nanos() % 2)
            .sum::<u64>()
    });
    println!(
        "next opportunity at random positions: {:.0} ns each ({found})",
        seconds * 1e9 / steps as f64
    );

    println!(
        "{:16} {:>28} {:>30} {:>30}",
        "offered", "bottleneck and delay", "replay of two workloads", "conditional replay"
    );
    let saturated = Arc::new(saturated(&trace));
    for megabits in [100, 1_000, 10_000] {
        let rate = BitRate(megabits * 1_000_000);
        let mut nanos: [Vec<f64>; 3] = Default::default();
        for _ in 0..ROUNDS {
            let kinds = [plain(&trace), replay(&trace), conditional(&saturated)];
            for (nanos, stages) in nanos.iter_mut().zip(kinds) {
                let (packets, seconds) = timed(|| saturate(stages, rate));
                nanos.push(seconds * 1e9 / packets as f64);
            }
        }
        let [plain, two, conditional] = &nanos;
        println!(
            "{:16} {:>18.0} ns a packet {:>30} {:>30}",
            format!("{megabits} Mbit/s"),
            median(plain.clone()),
            throughput(two, plain),
            throughput(conditional, plain)
        );
    }
}

/// Interleaved runs of each kind.
const ROUNDS: usize = 51;

/// The throughput of one kind as a share of that of another: the median of the pairs, with their quartiles.
fn throughput(nanos: &[f64], other: &[f64]) -> String {
    let mut ratios: Vec<f64> = other
        .iter()
        .zip(nanos)
        .map(|(other, own)| other / own)
        .collect();
    ratios.sort_by(f64::total_cmp);
    let at = |part: f64| 100.0 * ratios[((ratios.len() - 1) as f64 * part).round() as usize];
    format!("{:.0} % ({:.0}–{:.0}) of that", at(0.5), at(0.25), at(0.75))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// About `size` bytes of a trace of 2.04 Gbit/s.
fn large_trace(size: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(size + 16);
    for line in 0.. {
        if text.len() >= size {
            break;
        }
        writeln!(text, "{}", 1 + line / 170).expect("memory takes what is written");
    }
    text
}

/// A trace behind a queue, and a delay.
fn plain(trace: &Arc<Trace>) -> Vec<StageConfig> {
    vec![
        BottleneckConfig::new(Schedule::looped(Arc::clone(trace)))
            .with_queue(queue())
            .into(),
        DelayConfig::Fixed(Duration::from_millis(10)).into(),
    ]
}

/// The same trace as heavy recording, with trains of 50 packets every 50 ms as the light one.
fn replay(trace: &Arc<Trace>) -> Vec<StageConfig> {
    let rows = (0..1200).map(|row| LightRow {
        time: Duration::from_millis(50 * row),
        base_delay: Duration::from_millis(10),
        opportunities: (0..50).map(|at| Duration::from_micros(at * 100)).collect(),
    });
    let light = LightRows::new(rows).expect("the times of the rows increase");
    let config = WorkloadDependentConfig {
        idle: Duration::from_millis(5),
        opportunity: MTU,
        queue: queue(),
        ..WorkloadDependentConfig::new(Arc::new(light), Arc::clone(trace))
    };
    vec![config.into()]
}

/// Return the model that a recorder of 20 s would measure of that network: opportunities with microseconds, trains of
/// 50 packets, warm after 100 ms.
fn saturated(trace: &Trace) -> ConditionalModel {
    let period = Duration::from_secs(20);
    let width = Duration::from_millis(1);
    let arrivals = trace
        .bins(width)
        .take(20_000)
        .enumerate()
        .flat_map(|(bin, bytes)| {
            let count = bytes.0 / MTU.0;
            let begin = 1_000_000 * bin as u64;
            (0..count).map(move |number| Duration::from_nanos(begin + 1_000_000 * number / count))
        });
    let millis = Duration::from_millis;
    let shift = |micros: i64| Shift::from_nanos(1000 * micros);
    let states = [0, 20, 100].map(|idle| DelayState {
        idle: millis(idle),
        compensation: Compensation::default(),
        sizes: vec![SizeSamples {
            bytes: MTU,
            usual: shift(2000),
            samples: (0..400)
                .map(|number| (millis(50 * number), shift(number as i64 * 7 % 2500)))
                .collect(),
        }],
    });
    let floor = [(Bytes(100), shift(-3000)), (MTU, shift(-1000))];
    let trains = (0..200).map(|number| {
        let packets = (0..50)
            .map(|packet| Duration::from_micros(1000 + 20 * packet))
            .collect();
        (millis(100 * number), packets)
    });
    ConditionalModel {
        delays: Delays::new(
            (0..40)
                .map(|point| (millis(500 * point), millis(10 + point % 5)))
                .collect(),
            Compensation::new(floor).expect("sizes increase"),
            states.into(),
            8,
        )
        .expect("times increase"),
        trains: vec![TrainSet::new(MTU, trains.collect()).expect("trains are alike")],
        reach: 2.5,
        saturated: Saturated::new(arrivals, period, MTU).expect("bins are in order"),
        warm_up: WarmUp::new(
            [0, 20, 100].map(millis).into(),
            vec![WarmUpCurve {
                waiting: Bytes(50 * 1500),
                shares: vec![0.5, 0.8, 1.0],
            }],
            millis(100),
        )
        .expect("edges increase"),
    }
}

fn conditional(model: &Arc<ConditionalModel>) -> Vec<StageConfig> {
    let config = ConditionalConfig {
        queue: queue(),
        ..ConditionalConfig::new(Arc::clone(model))
    };
    vec![config.into()]
}

fn queue() -> Discipline {
    Discipline::DropTail(Limit {
        packets: None,
        bytes: Some(Bytes(1_000_000)),
    })
}

/// Offers packets at a steady rate for half a second, and visits at every event. Returns their number.
fn saturate(mut stages: Vec<StageConfig>, rate: BitRate) -> u64 {
    let loss = LossConfig::Independent {
        probability: Probability::new(0.001).expect("a probability"),
        seed: Seed(1),
    };
    stages.insert(0, loss.into());
    let mut direction = Direction::new(stages, Time::ZERO).with_meter();
    let wait = rate.time_for(MTU).expect("the rate is above zero");
    let (mut now, mut packets) = (Time::ZERO, 0);
    while now < Time::from_millis(500) {
        direction.accept(now, packets, MTU);
        packets += 1;
        now += wait;
        while direction.next_event().is_some_and(|event| event <= now) {
            while direction.poll(now).is_some() {}
        }
        direction.finished_bins(now).count();
    }
    packets
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed().as_secs_f64())
}
