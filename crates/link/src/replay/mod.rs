//! Replay of a network that depends on its load, by the method of CellReplay (Sentosa et al., "CellReplay: Towards
//! accurate record-and-replay for cellular networks", NSDI 2025, §4.3).

mod conditional;
mod parse;
mod stage;

pub(crate) use conditional::{Conditional, SaturatedPlayback};
pub use conditional::{
    ConditionalConfig, ConditionalModel, DelayState, Delays, LossChain, Saturated, SizeSamples,
    TrainGroup, TrainSet,
};
pub(crate) use stage::WorkloadDependent;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bottleneck::{BottleneckConfig, Clock};
use crate::delay::on_line;
use crate::queue::Discipline;
use crate::schedule::{LightRows, Schedule};
use crate::schema::JsonSchema;
use crate::time::Duration;
use crate::trace::{Repeat, Trace};
use crate::units::Bytes;

/// A link that serves short flows as the recorded network served a light workload, and long flows as it served a heavy
/// one.
///
/// A packet that finds the link inactive at `t` activates it: the link looks up the base delay at `t` (DELAY) and the
/// light row at or before `t`. The schedule becomes the row's opportunities from `t` + DELAY on, followed by the heavy
/// opportunities from 1 ms after the last one on. While the link is active, each packet is delayed by DELAY +
/// comp(size), without overtaking; then it enters the queue, which the schedule serves byte by byte. After `idle` with
/// an empty queue, as [`IdleAt`] counts it, the link is inactive.
///
/// Light rows and heavy recording are positions of one recording and share the direction's time zero. In a loop, both
/// start again at the heavy recording's last timestamp: rows at or after this timestamp are never used, and the base
/// delay is constant after the last row. Before the first row, the first row applies.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadDependentConfig {
    /// Base delay and light opportunities.
    pub light: Arc<LightRows>,
    /// Opportunities under saturation.
    pub heavy: Arc<Trace>,
    /// Continuation after the end of the recording.
    pub repeat: Repeat,
    /// Start position in the recording.
    pub offset: Duration,
    /// comp(s).
    pub compensation: Compensation,
    /// F: time without packets until the link is inactive.
    pub idle: Duration,
    /// Place at which F is counted.
    pub idle_at: IdleAt,
    /// Anchor of the light opportunities.
    pub anchor: Anchor,
    /// Discipline of the queue; B is the limit of a drop-tail queue in bytes. Packets on the way to the queue do not
    /// count.
    pub queue: Discipline,
    /// Bytes that one opportunity carries: the size of the recorder's packets.
    pub opportunity: Bytes,
    /// Bytes that a packet is charged beyond its size.
    pub overhead: Bytes,
}

/// Place at which the time without packets is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum IdleAt {
    /// At the link, one reading of the paper's text: from the departure of the last packet until the next one arrives
    /// at the link, at least F.
    Link,
    /// At the queue, as in the public tool and in the paper's calibration of F (§4.4): from the departure of the last
    /// packet until the next one would enter the queue of the active link, DELAY + comp(size) after its arrival. The
    /// time is more than F on a clock of whole milliseconds, so at least F + 1 ms.
    #[default]
    Queue,
}

/// Origin of the times of the light opportunities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Anchor {
    /// `t` + DELAY, one reading of the paper's text. A small first packet that reaches the queue earlier must wait.
    BaseDelay,
    /// The instant at which the first packet enters the queue, `t` + DELAY + comp(size): the compensation counts for
    /// the first packet too, as in the public tool.
    #[default]
    FirstPacket,
}

impl WorkloadDependentConfig {
    /// Capacity of an opportunity in the recordings of the public tool.
    pub const OPPORTUNITY: Bytes = Bytes(1400);

    /// A looped recording with an infinite queue, no compensation, F = 0 and opportunities of 1400 bytes. A packet is
    /// charged its IP length. F and the light opportunities are interpreted as in the public tool.
    pub fn new(light: Arc<LightRows>, heavy: Arc<Trace>) -> Self {
        Self {
            light,
            heavy,
            repeat: Repeat::Looped,
            offset: Duration::ZERO,
            compensation: Compensation::default(),
            idle: Duration::ZERO,
            idle_at: IdleAt::default(),
            anchor: Anchor::default(),
            queue: Discipline::Infinite,
            opportunity: Self::OPPORTUNITY,
            overhead: Bytes(0),
        }
    }

    /// Return a bottleneck of the heavy recording and the same queue.
    fn bottleneck(&self) -> BottleneckConfig {
        BottleneckConfig {
            schedule: Schedule::Trace {
                trace: Arc::clone(&self.heavy),
                repeat: self.repeat,
                offset: self.offset,
            },
            queue: self.queue.clone(),
            opportunity: self.opportunity,
            overhead: self.overhead,
            clock: Clock::Exact,
        }
    }
}

/// A span: later or, if negative, sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Deserialize)]
pub struct Shift(i64);

impl Shift {
    /// No shift.
    pub const ZERO: Self = Self(0);

    /// `nanos` ns later.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Return the shifted span, at least zero.
    pub const fn applied_to(self, span: Duration) -> Duration {
        Duration::from_nanos(span.as_nanos().saturating_add_signed(self.0))
    }
}

impl TryFrom<Vec<(Bytes, Shift)>> for Compensation {
    type Error = &'static str;

    fn try_from(points: Vec<(Bytes, Shift)>) -> Result<Self, Self::Error> {
        Self::new(points).ok_or("the sizes of a compensation must increase")
    }
}

/// comp(s): the delay of a packet of `s` bytes less the delay at the recorder's size (Sentosa et al., "CellReplay",
/// NSDI 2025, §4.4 and §A.1). Linear between the calibrated sizes, constant outside of them.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "Vec<(Bytes, Shift)>")]
pub struct Compensation {
    /// (size, ns), strictly increasing in size.
    points: Vec<(u64, i64)>,
}

impl Compensation {
    /// Return the compensation through `points`, zero without points; `None` if their sizes do not increase.
    pub fn new(points: impl IntoIterator<Item = (Bytes, Shift)>) -> Option<Self> {
        let points: Vec<_> = points
            .into_iter()
            .map(|(size, shift)| (size.0, shift.0))
            .collect();
        let increasing = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
        increasing.then_some(Self { points })
    }

    /// The calibrated points.
    pub fn points(&self) -> impl Iterator<Item = (Bytes, Shift)> + '_ {
        let point = |&(size, shift): &(u64, i64)| (Bytes(size), Shift(shift));
        self.points.iter().map(point)
    }

    /// Return comp(size), rounded down to the nanosecond.
    pub fn of(&self, size: Bytes) -> Shift {
        let after = self.points.partition_point(|&(other, _)| other <= size.0);
        let before = after.checked_sub(1).map(|index| self.points[index]);
        Shift(match (before, self.points.get(after)) {
            (Some((low, under)), Some(&(high, over))) => {
                let shift = on_line((low, under.into()), (high, over.into()), size.0);
                i64::try_from(shift).unwrap_or(0) // lies between the two
            }
            (Some((_, shift)), None) | (None, Some(&(_, shift))) => shift,
            (None, None) => 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shift_is_linear_between_sizes_and_constant_outside() {
        let point = |size, micros: i64| (Bytes(size), Shift::from_nanos(micros * 1000));
        let comp = Compensation::new([point(100, -6800), point(200, -6000), point(1400, 0)]);
        let comp = comp.unwrap();
        for (size, micros) in [(40, -6800), (100, -6800), (150, -6400), (800, -3000)] {
            assert_eq!(comp.of(Bytes(size)), point(size, micros).1, "{size} bytes");
        }
        assert_eq!(comp.of(Bytes(1500)), Shift::ZERO);
        assert_eq!(Compensation::default().of(Bytes(40)), Shift::ZERO);
        assert_eq!(Compensation::new([point(200, 1), point(200, 1)]), None);
    }

    #[test]
    fn no_delay_is_less_than_none() {
        let sooner = Shift::from_nanos(-6_800_000);
        assert_eq!(
            sooner.applied_to(Duration::from_millis(20)),
            Duration::from_micros(13_200)
        );
        assert_eq!(sooner.applied_to(Duration::from_millis(5)), Duration::ZERO);
    }
}
