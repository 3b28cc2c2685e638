//! Workloads: trains in rotation, saturation at a fixed rate, saturation that keeps a queue long.
//!
//! `next_event` returns the time of the next packet, `emit` the packet; time is an argument. After a late call, no
//! workload makes up for the pause with a burst.

mod adaptive;
mod fixed_rate;
mod trains;

pub use adaptive::{AdaptiveSaturator, QueueKeeper};
pub use fixed_rate::FixedRateSaturator;
pub use trains::TrainScheduler;
