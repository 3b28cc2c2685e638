//! How long the path model takes: a trace of 100 MB, and packets through a whole direction.
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

    let kinds = [
        (
            "bottleneck, delay",
            plain as fn(&Arc<Trace>) -> Vec<StageConfig>,
        ),
        ("replay of two workloads", replay),
    ];
    for megabits in [100, 1_000, 10_000] {
        for (name, stages) in kinds {
            let rate = BitRate(megabits * 1_000_000);
            let (packets, seconds) = timed(|| saturate(stages(&trace), rate));
            println!(
                "loss, {name} and meter, {megabits} Mbit/s offered: {:.0} ns a packet",
                seconds * 1e9 / packets as f64
            );
        }
    }
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

fn queue() -> Discipline {
    Discipline::DropTail {
        packets: None,
        bytes: Some(Bytes(1_000_000)),
    }
}

/// Offers packets at a steady rate for two seconds, and visits at every event. Returns their number.
fn saturate(mut stages: Vec<StageConfig>, rate: BitRate) -> u64 {
    let loss = LossConfig::Independent {
        probability: Probability::new(0.001).expect("a probability"),
        seed: Seed(1),
    };
    stages.insert(0, loss.into());
    let mut direction = Direction::new(stages, Time::ZERO).with_meter();
    let wait = rate.time_for(MTU).expect("the rate is above zero");
    let (mut now, mut packets) = (Time::ZERO, 0);
    while now < Time::from_millis(2000) {
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
