//! When what is sent: trains in rotation, saturation at a fixed rate, saturation of as much as keeps a queue long.
//!
//! All three are asked by `next_event` when something is due and give it by `emit`; time is an argument. Who sends late
//! loses nothing but time: no workload makes up for a pause with a burst.

mod adaptive;
mod fixed_rate;
mod trains;

pub use adaptive::{AdaptiveSaturator, QueueKeeper};
pub use fixed_rate::FixedRateSaturator;
pub use trains::TrainScheduler;
