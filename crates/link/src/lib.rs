//! The path model of cellbed: one direction of a link as a pipeline of pure stages.
//!
//! Every call passes the time. Nothing in this crate reads a clock, a socket or a file, starts a thread or draws from a
//! generator that its configuration did not seed. The same stages therefore serve the emulator (monotonic clock), the
//! simulator (an event queue) and the tests (numbers), in the manner of `smoltcp` and `quinn-proto`.
//!
//! ```
//! use std::sync::Arc;
//! use cellbed_link::{BottleneckConfig, Bytes, DelayConfig, Direction, Duration, Schedule, Time, Trace};
//!
//! let trace = Trace::parse(&b"2\n5\n"[..]).unwrap(); // opportunities at 2, 5, 7, 10, … ms
//! let stages = vec![
//!     BottleneckConfig::new(Schedule::looped(Arc::new(trace))).into(),
//!     DelayConfig::Fixed(Duration::from_millis(10)).into(),
//! ];
//! let mut uplink = Direction::new(stages, Time::ZERO);
//! uplink.accept(Time::from_millis(3), "hello", Bytes(1500));
//!
//! let due = uplink.next_event().unwrap();
//! let outcome = uplink.poll(due).unwrap();
//! assert_eq!((outcome.packet, outcome.released, outcome.departed), ("hello", Time::from_millis(5),
//! Time::from_millis(15)));
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod agenda;
pub mod bottleneck;
pub mod cell;
pub mod damage;
pub mod delay;
pub mod direction;
pub mod flow_limit;
pub mod gate;
pub mod graph;
pub mod language;
pub mod lines;
pub mod loss;
pub mod meter;
pub mod packet;
pub mod queue;
pub mod radio;
pub mod random;
pub mod records;
pub mod replay;
pub mod schedule;
pub mod schema;
pub mod stage;
pub mod tally;
pub mod time;
pub mod trace;
pub mod units;

pub use bottleneck::{BottleneckConfig, Clock};
pub use cell::{Begin, CellConfig, CellError, Scheduler, Visit};
pub use damage::{CorruptionConfig, DuplicationConfig};
pub use delay::{DelayConfig, DelaySeries, Distribution, Observed, RandomDelay};
pub use direction::{Change, ChangeError, Direction, InForce};
pub use flow_limit::FlowLimitConfig;
pub use gate::GateConfig;
pub use graph::{DirectionConfig, Graph, GraphConfig, GraphError, Move, Onward};
pub use loss::{LossConfig, LossSeries};
pub use meter::{BIN_WIDTH, Bin};
pub use packet::{DropReason, Ecn, Fate, Outcome, Tag};
pub use queue::*;
pub use radio::{Profile, RadioConfig, Way};
pub use random::{Probability, Seed};
pub use replay::{
    Anchor, Compensation, ConditionalConfig, ConditionalModel, DelayState, Delays, IdleAt,
    LossChain, Saturated, Shift, SizeSamples, TrainGroup, TrainSet, WorkloadDependentConfig,
};
pub use schedule::{LightRow, LightRows, RateSeries, Schedule};
pub use stage::StageConfig;
pub use time::{Duration, Time};
pub use trace::{Repeat, Trace, TraceError, each_timestamp};
pub use units::{BitRate, Bytes, MTU, Opportunities, Packets};

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
