//! The opportunities of a replayed recording, one line each.

use std::sync::Arc;

use cellbed_link::{BottleneckConfig, Duration, Repeat, Schedule, StageConfig, Trace};

use super::{MILLISECOND, OPPORTUNITY, line};

/// The opportunities of a recording that have not been reported yet.
pub struct Opportunities {
    trace: Arc<Trace>,
    looped: bool,
    /// Position of the recording at its start, as configured.
    offset: u64,
    /// Position at the start.
    start: u64,
    /// The start in ns since the log's.
    base: u64,
    /// Position of the next ones and how many of them are left.
    next: Option<(u64, u64)>,
    /// During an outage they pass without a line.
    closed: bool,
}

impl Opportunities {
    /// Those of the first trace in `stages`.
    pub fn of(stages: &[StageConfig]) -> Option<Self> {
        stages.iter().find_map(|stage| match stage {
            StageConfig::Bottleneck(BottleneckConfig {
                schedule:
                    Schedule::Trace {
                        trace,
                        repeat,
                        offset,
                    },
                ..
            }) => Some(Self::new(
                Arc::clone(trace),
                *repeat == Repeat::Looped,
                offset.as_nanos(),
            )),
            _ => None,
        })
    }

    /// Those of `trace`, `offset` ns into it.
    pub fn new(trace: Arc<Trace>, looped: bool, offset: u64) -> Self {
        Self {
            trace,
            looped,
            offset,
            start: offset,
            base: 0,
            next: None,
            closed: false,
        }
    }

    /// Begins anew, `base` ns after the log's start and `further` into the recording.
    pub fn restart(&mut self, base: u64, further: Duration) {
        self.base = base;
        self.start = self.offset + further.as_nanos();
        if self.looped {
            self.start %= self.trace.duration().as_nanos();
        }
        self.seek(self.start);
    }

    /// Passes over the following ones without a line, or not.
    pub fn set_closed(&mut self, closed: bool) {
        self.closed = closed;
    }

    /// Goes to the first opportunities at or after a position.
    fn seek(&mut self, from: u64) {
        let span = Duration::from_nanos;
        let period = self.trace.duration().as_nanos();
        let at = self.trace.next_opportunity(span(from)).as_nanos();
        let count = |at: u64| {
            let bytes = self.trace.capacity(span(at), span(at + 1));
            bytes.0 / cellbed_link::MTU.0
        };
        self.next = match self.looped {
            true => Some((at, count(at))),
            // There the next pass would begin, had it one.
            false if at == period => Some((at, count(at) - count(0))),
            false => Some((at, count(at))).filter(|_| at < period),
        };
    }

    /// The ms of the next ones.
    fn due(&self) -> Option<u64> {
        let (position, _) = self.next?;
        Some((self.base + position.saturating_sub(self.start)) / MILLISECOND)
    }

    /// Reports those up to and including the millisecond `until`.
    pub fn tell_until(&mut self, until: u64, text: &mut Vec<u8>) {
        while let Some(due) = self.due().filter(|&due| due <= until) {
            self.tell(due, text);
        }
    }

    /// Reports one of the opportunities in the millisecond `at`, if there is one left.
    pub fn tell_one_at(&mut self, at: u64, text: &mut Vec<u8>) {
        if self.due() == Some(at) {
            self.tell(at, text);
        }
    }

    /// Reports the next one.
    fn tell(&mut self, due: u64, text: &mut Vec<u8>) {
        if !self.closed {
            line(text, due, b" # ", &[OPPORTUNITY]);
        }
        match self.next {
            Some((at, left)) if left > 1 => self.next = Some((at, left - 1)),
            Some((at, _)) => self.seek(at + 1),
            None => {}
        }
    }
}
