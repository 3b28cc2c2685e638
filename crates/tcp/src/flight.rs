//! Segments that a sender has sent without an acknowledgement, and those of them that are lost.
//!
//! A segment is lost when one that was sent later has arrived (RACK, RFC 8985 §6.2), at once when three have or losses are
//! being repaired, else after a grace; so lost repairs are detected, too.

use std::collections::{BTreeSet, VecDeque};

use cellbed_link::{Duration, Time};

use super::ranges::Ranges;
use super::rate::Departure;
use super::segment::Acknowledgement;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Flying,
    Arrived,
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    start: u64,
    end: u64,
    at: Time,
    /// Number of the transmission; each repair is a new one.
    order: u64,
    standing: Standing,
    repaired: bool,
    departure: Departure,
}

/// The news in an acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct News {
    /// Newly acknowledged segments.
    pub segments: u64,
    /// True if the first missing byte has changed.
    pub advanced: bool,
    /// From the sending of the first and of the last of them, if none was sent twice.
    pub round_trips: Option<(Duration, Duration)>,
    /// When the last of them was sent.
    pub latest: Option<(Time, Departure)>,
    /// Bytes of the last of them.
    pub bytes: u64,
}

/// The segments between the first that is missing and the last that was sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Flight {
    segments: VecDeque<Sent>,
    /// Those of them that have arrived, in bytes.
    arrived: Ranges,
    /// Room for the parts of them that an acknowledgement adds.
    fresh: Vec<(u64, u64)>,
    /// Transmissions in order that may yet be found lost.
    transmissions: VecDeque<(u64, u64)>,
    lost: BTreeSet<u64>,
    flying: u64,
    selected: u64,
    order: u64,
    /// The latest transmission that has arrived, and how long it took.
    newest: Option<(u64, Duration)>,
}

impl Flight {
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Segments that are presumably in flight.
    pub fn flying(&self) -> u64 {
        self.flying
    }

    /// Segments from the first missing to the last sent.
    pub fn length(&self) -> u64 {
        self.segments.len() as u64
    }

    /// Segments that have arrived behind a missing one.
    pub fn selected(&self) -> u64 {
        self.selected
    }

    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// A new segment is sent.
    pub fn send(&mut self, now: Time, start: u64, end: u64, departure: Departure) {
        let order = self.transmitted(start);
        self.segments.push_back(Sent {
            start,
            end,
            at: now,
            order,
            standing: Standing::Flying,
            repaired: false,
            departure,
        });
        self.flying += 1;
    }

    /// Retransmits the first lost segment.
    pub fn repair(&mut self, now: Time, departure: Departure) -> Option<(u64, u64)> {
        let start = self.lost.pop_first()?;
        self.flying += 1;
        self.again(now, self.index(start)?, departure)
    }

    /// Retransmits the last segment, in any state.
    pub fn repeat_last(&mut self, now: Time, departure: Departure) -> Option<(u64, u64)> {
        let index = self.segments.len().checked_sub(1)?;
        let last = self.segments[index];
        match last.standing {
            Standing::Flying => {}
            Standing::Lost => {
                self.lost.remove(&last.start);
                self.flying += 1;
            }
            Standing::Arrived => return None,
        }
        self.again(now, index, departure)
    }

    fn again(&mut self, now: Time, index: usize, departure: Departure) -> Option<(u64, u64)> {
        let order = self.transmitted(self.segments[index].start);
        let segment = self.segments.get_mut(index)?;
        segment.at = now;
        segment.order = order;
        segment.standing = Standing::Flying;
        segment.repaired = true;
        segment.departure = departure;
        Some((segment.start, segment.end))
    }

    fn transmitted(&mut self, start: u64) -> u64 {
        self.order += 1;
        self.transmissions.push_back((self.order, start));
        self.order
    }

    fn index(&self, start: u64) -> Option<usize> {
        let first = self.segments.front()?;
        // Nearly all segments are full ones.
        let guess = start.checked_sub(first.start)? / (first.end - first.start);
        if self
            .segments
            .get(guess as usize)
            .is_some_and(|it| it.start == start)
        {
            return Some(guess as usize);
        }
        let index = self.segments.partition_point(|sent| sent.start < start);
        (self.segments.get(index)?.start == start).then_some(index)
    }

    /// Processes an acknowledgement. least: the shortest round trip so far.
    pub fn acknowledge(
        &mut self,
        now: Time,
        ack: &Acknowledgement,
        least: Option<Duration>,
    ) -> News {
        let mut news = Fresh::new(now, least);
        let mut advanced = false;
        while let Some(sent) = self
            .segments
            .front()
            .copied()
            .filter(|it| it.end <= ack.upto)
        {
            self.segments.pop_front();
            advanced = true;
            match sent.standing {
                Standing::Arrived => self.selected -= 1,
                Standing::Lost => {
                    self.lost.remove(&sent.start);
                    news.came(&sent, ack.echo);
                }
                Standing::Flying => {
                    self.flying -= 1;
                    news.came(&sent, ack.echo);
                }
            }
        }
        self.arrived.forget_before(ack.upto);
        let mut fresh = std::mem::take(&mut self.fresh);
        for (start, end) in ack.blocks {
            self.arrived
                .insert(start.max(ack.upto), end, |from, to| fresh.push((from, to)));
        }
        for (from, to) in fresh.drain(..) {
            let first = self.segments.partition_point(|sent| sent.start < from);
            for sent in self
                .segments
                .iter_mut()
                .skip(first)
                .take_while(|it| it.end <= to)
            {
                match sent.standing {
                    Standing::Arrived => continue,
                    Standing::Lost => {
                        self.lost.remove(&sent.start);
                    }
                    Standing::Flying => self.flying -= 1,
                }
                news.came(sent, Time::MAX);
                sent.standing = Standing::Arrived;
                self.selected += 1;
            }
        }
        self.fresh = fresh;
        if let Some(newest) = news.newest
            && self.newest.is_none_or(|(order, _)| order < newest.0)
        {
            self.newest = Some(newest);
        }
        News {
            segments: news.segments,
            advanced,
            round_trips: news.first.zip(news.last).filter(|_| !news.repaired),
            latest: news.latest.map(|(at, _, departure)| (at, departure)),
            bytes: news.bytes,
        }
    }

    /// Marks segments as lost that were sent more than `grace` before one that has arrived. Returns their number, and
    /// when the next may be.
    pub fn find_lost(&mut self, now: Time, grace: Duration) -> (u64, Option<Time>) {
        let Some((newest, took)) = self.newest else {
            return (0, None);
        };
        let mut found = 0;
        while let Some(&(order, start)) = self.transmissions.front().filter(|it| it.0 < newest) {
            if let Some(index) = self.index(start)
                && let sent = &mut self.segments[index]
                && sent.order == order
                && sent.standing == Standing::Flying
            {
                let due = sent.at + took + grace;
                if due > now {
                    return (found, Some(due));
                }
                sent.standing = Standing::Lost;
                self.lost.insert(start);
                self.flying -= 1;
                found += 1;
            }
            self.transmissions.pop_front();
        }
        (found, None)
    }

    /// After a timeout: marks as lost the first segment and those sent before `since`. Returns their number.
    pub fn give_up(&mut self, since: Time) -> u64 {
        let before = self.flying;
        for (index, sent) in self.segments.iter_mut().enumerate() {
            if sent.standing == Standing::Flying && (index == 0 || sent.at <= since) {
                sent.standing = Standing::Lost;
                self.lost.insert(sent.start);
                self.flying -= 1;
            }
        }
        before - self.flying
    }

    /// The timeout was spurious: segments marked as lost are in flight.
    pub fn take_back(&mut self) {
        for sent in &mut self.segments {
            if sent.standing == Standing::Lost {
                sent.standing = Standing::Flying;
                self.flying += 1;
            }
        }
        self.lost.clear();
        let flying = self
            .segments
            .iter()
            .filter(|it| it.standing == Standing::Flying);
        let mut transmissions: Vec<_> = flying.map(|sent| (sent.order, sent.start)).collect();
        transmissions.sort_unstable();
        self.transmissions = transmissions.into();
    }
}

/// The news in an acknowledgement, while it is read.
struct Fresh {
    now: Time,
    least: Option<Duration>,
    segments: u64,
    repaired: bool,
    first: Option<Duration>,
    last: Option<Duration>,
    newest: Option<(u64, Duration)>,
    latest: Option<(Time, u64, Departure)>,
    bytes: u64,
}

impl Fresh {
    fn new(now: Time, least: Option<Duration>) -> Self {
        Self {
            now,
            least,
            segments: 0,
            repaired: false,
            first: None,
            last: None,
            newest: None,
            latest: None,
            bytes: 0,
        }
    }

    /// echo: the stamp that came with it, if it is that of the segment.
    fn came(&mut self, sent: &Sent, echo: Time) {
        let took = self.now - sent.at;
        self.segments += 1;
        self.repaired |= sent.repaired;
        self.first = Some(self.first.map_or(took, |other| other.max(took)));
        self.last = Some(self.last.map_or(took, |other| other.min(took)));
        let is_later = |&(at, end, _): &(Time, u64, _)| (sent.at, sent.end) > (at, end);
        if self.latest.as_ref().is_none_or(is_later) {
            self.latest = Some((sent.at, sent.end, sent.departure));
            self.bytes = sent.end - sent.start;
        }
        // That of a repair may be that of the original (RFC 8985 §6.2, step 2).
        let early = echo < sent.at || self.least.is_some_and(|least| took < least);
        let ambiguous = sent.repaired && early;
        if !ambiguous && self.newest.is_none_or(|(order, _)| order < sent.order) {
            self.newest = Some((sent.order, took));
        }
    }
}
