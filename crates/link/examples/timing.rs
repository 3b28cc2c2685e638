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

    for megabits in [100, 1_000, 10_000] {
        let (packets, seconds) = timed(|| saturate(&trace, BitRate(megabits * 1_000_000)));
        println!(
            "loss, bottleneck, delay and meter, {megabits} Mbit/s offered: {:.0} ns a packet",
            seconds * 1e9 / packets as f64
        );
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

/// Offers packets at a steady rate for two seconds, and visits at every event. Returns their number.
fn saturate(trace: &Arc<Trace>, rate: BitRate) -> u64 {
    let loss = LossConfig::Independent {
        probability: Probability::new(0.001).expect("a probability"),
        seed: Seed(1),
    };
    let queue = Discipline::DropTail {
        packets: None,
        bytes: Some(Bytes(1_000_000)),
    };
    let stages = vec![
        loss.into(),
        BottleneckConfig::new(Schedule::looped(Arc::clone(trace)))
            .with_queue(queue)
            .into(),
        DelayConfig::Fixed(Duration::from_millis(10)).into(),
    ];
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
