//! Networks in virtual time by their public interface. One program: all tests are linked once, and run in parallel.

mod downloads;
mod graph;
mod proxy;
mod robustness;
mod senders;

use cellbed_link::*;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Time {
    Time::from_millis(millis)
}

/// A drop-tail bottleneck. queue: bytes.
fn bottleneck(rate: u64, queue: u64) -> StageConfig {
    let bottleneck = BottleneckConfig::new(Schedule::Constant(BitRate(rate)));
    let queue = Discipline::DropTail(Limit::bytes(queue));
    bottleneck.with_queue(queue).into()
}

fn delay(millis: u64) -> StageConfig {
    DelayConfig::Fixed(ms(millis)).into()
}

fn loss(probability: f64, seed: u64) -> StageConfig {
    let probability = Probability::new(probability).unwrap();
    let seed = Seed(seed);
    LossConfig::Independent { probability, seed }.into()
}

fn direction(from: u16, to: u16, stages: Vec<StageConfig>) -> DirectionConfig {
    DirectionConfig {
        from,
        to,
        stages,
        ..DirectionConfig::default()
    }
}

/// A queue that never fills, bytes.
const ENDLESS: u64 = 1 << 40;
