//! One direction of a link: packets go in at one end and come out, or are dropped, in order of time.

mod change;
mod sharing;

pub use change::{Change, ChangeError, InForce};

use std::collections::VecDeque;

use change::{Pending, What};

use crate::bottleneck::Admission;
use crate::meter::{Bin, Meter};
use crate::packet::{DropReason, Fate, Item, Outcome, Step, Tag};
use crate::queue::QueueLevel;
use crate::radio::Way;
use crate::random::Seed;
use crate::schedule::Offer;
use crate::stage::{Behaviour, Configured, Stage, StageConfig};
use crate::time::{Duration, Time};
use crate::units::{Bytes, Packets};

/// One direction of a link: [stages](StageConfig) in order, driven by the caller's clock.
///
/// `P` identifies a packet for the caller, such as an index. The whole contract:
/// [`accept`](Self::accept) a packet when it arrives, then [`poll`](Self::poll) until it returns `None`, then call
/// again at [`next_event`](Self::next_event) or with the next packet. A late call only delays the caller's knowledge of
/// an outcome: the outcome's times are computed, not observed. Time never runs backwards here; an earlier `now` counts
/// as the latest one seen.
///
/// At one instant, packets leave a stage before others enter it. Once the queues have reached their maximum length,
/// nothing allocates.
///
/// ```
/// use cellbed_link::{BitRate, BottleneckConfig, Bytes, DelayConfig, Direction, Duration, Schedule, Time};
///
/// let stages = vec![
///     BottleneckConfig::new(Schedule::Constant(BitRate(12_000_000))).into(),
///     DelayConfig::Fixed(Duration::from_millis(20)).into(),
/// ];
/// let mut link = Direction::new(stages, Time::ZERO);
/// link.accept(Time::ZERO, 'a', Bytes(1500));
/// link.accept(Time::ZERO, 'b', Bytes(1500));
/// while let Some(due) = link.next_event() {
///     // Here the emulator sleeps until `due`; a simulator jumps there.
///     while let Some(outcome) = link.poll(due) {
///         println!("{} left at {}", outcome.packet, outcome.departed); // a at 21 ms, b at 22 ms
///     }
/// }
/// assert_eq!(link.held().packets.0, 0);
/// ```
#[derive(Clone, Debug)]
pub struct Direction<P> {
    stages: Vec<Stage<P>>,
    outcomes: VecDeque<Outcome<P>>,
    /// Duplicates that are about to enter a stage.
    twins: VecDeque<(usize, Time, Item<P>)>,
    /// The stage with the next event, and its time: read much more often than it changes.
    next: Option<(usize, Time)>,
    held: QueueLevel,
    zero: Time,
    /// Addition of the last restart to the offset of traces and series.
    offset: Duration,
    clock: Time,
    /// Restarts and changes in the future, in order.
    pending: VecDeque<Pending>,
    /// The configurations of the stages at every start.
    configs: Vec<StageConfig>,
    /// Changes after every start.
    changes: Vec<Change>,
    /// Origins, by stage.
    in_force: Vec<InForce>,
    meter: Option<Meter>,
    /// Index of the first bottleneck.
    metered: Option<usize>,
    /// True if gates have closed the queue.
    closed: bool,
    /// True if gates drop packets in flight.
    cuts: bool,
    /// True if the direction is a user of a cell.
    in_cell: bool,
    /// True if the cell serves another user.
    barred: bool,
    /// In a cell: whether packets queued at the last event, and when the queue last became empty.
    queued: bool,
    emptied: Time,
}

impl<P: Clone> Direction<P> {
    /// A direction whose schedules and recorded series start at `zero`; traces offer nothing before.
    pub fn new(stages: Vec<StageConfig>, zero: Time) -> Self {
        let metered = stages.iter().position(|stage| stage.queue().is_some());
        let mut direction = Self {
            stages: stages.iter().map(|stage| Stage::new(stage, zero)).collect(),
            in_force: vec![InForce::Start; stages.len()],
            configs: stages,
            changes: Vec::new(),
            offset: Duration::ZERO,
            outcomes: VecDeque::new(),
            twins: VecDeque::new(),
            next: None,
            held: QueueLevel::default(),
            zero,
            clock: Time::ZERO,
            pending: VecDeque::new(),
            meter: None,
            metered,
            closed: false,
            cuts: false,
            in_cell: false,
            barred: false,
            queued: false,
            emptied: Time::ZERO,
        };
        direction.set_gate(direction.clock);
        direction
    }

    /// Restart schedules, recorded series, random generators and the bins of the meter at `zero`, with `offset`
    /// added to the configured offset of traces and series.
    ///
    /// Packets that are queued or in flight stay. If `zero` lies in the future, nothing changes until then. If it lies
    /// in the past, the schedules continue as if they had started at `zero`. A later call replaces pending restarts
    /// with the same or a later `zero`.
    pub fn restart(&mut self, zero: Time, offset: Duration) {
        self.pending
            .retain(|other| other.at < zero || !other.what.is_restart());
        self.schedule(Pending {
            at: zero,
            what: What::Restart(offset),
        });
        self.settle(self.clock);
    }

    /// Take in a packet of `size` bytes (its IP length) that arrives at `now`, without a tag.
    pub fn accept(&mut self, now: Time, packet: P, size: Bytes) {
        self.accept_tagged(now, packet, size, Tag::default());
    }

    /// Take in a packet of `size` bytes (its IP length) that arrives at `now`.
    pub fn accept_tagged(&mut self, now: Time, packet: P, size: Bytes, tag: Tag) {
        let now = self.settle(now);
        self.held.packets.0 += 1;
        self.held.bytes += size;
        if let Some(meter) = &mut self.meter {
            meter.arrived(now, size);
        }
        self.enter(0, now, Item::new(packet, size, now).tagged(tag));
        self.queued |= self.in_cell && self.queue().packets > Packets(0);
        self.next = self.next_internal();
    }

    /// Return the device of the first radio link, and its direction, if the device's directions are coupled.
    pub(crate) fn device(&self) -> Option<((Seed, u16), Way)> {
        self.stages.iter().find_map(|stage| match stage {
            Stage::Radio(radio) => radio.device(),
            _ => None,
        })
    }

    /// Return when the device of a radio link became or becomes connected, as of the last call.
    pub(crate) fn connected(&self) -> Time {
        let connected = self.stages.iter().map(|stage| match stage {
            Stage::Radio(radio) => radio.connected(),
            _ => Time::ZERO,
        });
        connected.max().unwrap_or(Time::ZERO)
    }

    /// Record that the device of a radio link has data in its other direction at `now`, and is connected from
    /// `connected` on.
    pub fn rouse(&mut self, now: Time, connected: Time) {
        let now = self.settle(now);
        for stage in &mut self.stages {
            if let Stage::Radio(radio) = stage {
                radio.rouse(now, connected);
            }
        }
        self.next = self.next_internal();
    }

    /// Return when [`poll`](Self::poll) may next have an outcome; `None` if only after another packet.
    ///
    /// The instant is never later than the next delivery. If it is earlier, `poll` returns `None`, and this method a
    /// later instant. A drop may be reported late: by the minimum delay of the stages behind it.
    pub fn next_event(&self) -> Option<Time> {
        if !self.outcomes.is_empty() {
            return Some(self.clock);
        }
        let steady = self.pending.iter().all(|pending| pending.what.is_steady());
        let mut behind = Duration::ZERO;
        let mut earliest: Option<Time> = None;
        for stage in self.stages.iter().rev() {
            if let Some(event) = self.event_of(stage) {
                let delivery = event + behind;
                earliest = Some(earliest.map_or(delivery, |other| other.min(delivery)));
            }
            // A change may shorten the delay.
            if let Stage::Delay(delay) = stage
                && steady
            {
                behind += delay.least();
            }
        }
        earliest
    }

    /// Return the minimum time of a packet in the delays of this direction, also after changes that are known.
    pub fn least_delay(&self) -> Duration {
        let delay = |stage: &Stage<P>| match stage {
            Stage::Delay(delay) => delay.least().as_nanos(),
            _ => 0,
        };
        let steady = self.pending.iter().all(|pending| pending.what.is_steady());
        let delays = self.stages.iter().filter(|_| steady).map(delay);
        Duration::from_nanos(delays.sum())
    }

    /// Return the next packet that has left or been dropped by `now`, in order of time; call until `None`.
    pub fn poll(&mut self, now: Time) -> Option<Outcome<P>> {
        self.settle(now);
        self.outcomes.pop_front()
    }

    /// Return the queue of the first bottleneck, as of the last call.
    pub fn queue(&self) -> QueueLevel {
        self.metered
            .and_then(|index| self.stages[index].level())
            .unwrap_or_default()
    }

    /// Return whether gates close the first bottleneck, as of the last call.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Return the packets that have neither left nor been dropped, as of the last call.
    pub fn held(&self) -> QueueLevel {
        self.held
    }

    /// Process all events up to `now`, with pending restarts and changes at their instants. Return the direction's
    /// time.
    fn settle(&mut self, now: Time) -> Time {
        let now = now.max(self.clock);
        while self
            .pending
            .front()
            .is_some_and(|pending| pending.at <= now)
        {
            let Some(pending) = self.pending.pop_front() else {
                break;
            };
            let at = pending.at.max(self.clock);
            // Departures before the instant follow the old schedule, departures at the instant the new one.
            if let Some(before) = at.as_nanos().checked_sub(1).map(Time::from_nanos) {
                self.run(before);
            }
            self.clock = at;
            self.apply(pending, at);
            self.next = self.next_internal();
        }
        self.run(now);
        self.clock = now;
        now
    }

    /// Move packets from stage to stage in order of time, up to and including `until`.
    fn run(&mut self, until: Time) {
        while let Some((index, now)) = self.next.filter(|&(_, now)| now <= until) {
            match self.stages[index].step(now) {
                Some(Step::Left(item)) => {
                    self.report_dropped(index, now);
                    self.left(index, now, item.size);
                    self.enter(index + 1, now, item);
                }
                Some(Step::Within) => {
                    self.offer_changed(index);
                    self.report_dropped(index, now);
                    self.queue_changed(index, now);
                }
                None => return,
            }
            if self.in_cell {
                self.note_emptied(index, now);
            }
            self.next = self.next_internal();
        }
    }

    /// Return the stage with the next event, and its time; the last of several stages at one instant.
    #[inline]
    fn next_internal(&self) -> Option<(usize, Time)> {
        let mut next: Option<(usize, Time)> = None;
        for (index, stage) in self.stages.iter().enumerate() {
            if let Some(event) = stage.next_event()
                && next.is_none_or(|(_, earliest)| event <= earliest)
            {
                next = Some((index, event));
            }
        }
        next
    }

    /// Pass a duplicate to a stage, after the original.
    #[cold]
    fn double(&mut self, first: usize, now: Time, item: Item<P>) {
        self.held = self.held.plus(item.size);
        self.report(now, item.clone(), Fate::Doubled);
        self.twins.push_back((first, now, item));
    }

    /// Pass a packet to the given stage, and through the stages that do not delay it.
    #[inline]
    fn enter(&mut self, first: usize, now: Time, item: Item<P>) {
        self.pass(first, now, item);
        while let Some((first, now, twin)) = self.twins.pop_front() {
            self.pass(first, now, twin);
        }
    }

    #[inline]
    fn pass(&mut self, first: usize, now: Time, mut item: Item<P>) {
        for index in first..self.stages.len() {
            let admission = match &mut self.stages[index] {
                Stage::Loss(loss) => {
                    if loss.strikes(now) {
                        return self.finish(now, item, Fate::Dropped(DropReason::Loss));
                    }
                    continue;
                }
                Stage::Gate(gate) => {
                    if self.metered.is_none() && gate.is_closed(self.zero, now) {
                        return self.finish(now, item, Fate::Dropped(DropReason::Loss));
                    }
                    continue;
                }
                Stage::Duplication(damage) => {
                    if damage.strikes() {
                        self.double(index + 1, now, item.clone());
                    }
                    continue;
                }
                Stage::Corruption(damage) => {
                    if let Some(bit) = damage.bit(item.size) {
                        item.corrupt(bit);
                    }
                    continue;
                }
                Stage::Delay(delay) => return delay.accept(now, item),
                Stage::WorkloadDependent(link) => return link.accept(now, item),
                Stage::Bottleneck(bottleneck) => bottleneck.accept(now, item),
                Stage::Radio(radio) => radio.accept(now, item),
                Stage::FlowLimit(limit) => limit.accept(now, item),
                Stage::Conditional(link) => link.accept(now, item),
            };
            match admission {
                Admission::Queued => {
                    self.report_dropped(index, now);
                    return self.queue_changed(index, now);
                }
                Admission::Refused(item, reason) => {
                    return self.finish(now, item, Fate::Dropped(reason));
                }
                Admission::Passed(passed) => {
                    item = passed;
                    self.left(index, now, item.size);
                }
            }
        }
        self.finish(now, item, Fate::Delivered);
    }

    /// Report the packets that a queue has dropped. Return whether there were any.
    #[inline]
    fn report_dropped(&mut self, index: usize, now: Time) -> bool {
        let dropped = self.stages[index].dropped();
        let has_dropped = dropped.is_some_and(|dropped| !dropped.is_empty());
        if has_dropped {
            self.report_all_dropped(index, now);
        }
        has_dropped
    }

    #[cold]
    fn report_all_dropped(&mut self, index: usize, now: Time) {
        while let Some((item, reason)) = self.stages[index].dropped().and_then(VecDeque::pop_front)
        {
            self.finish(now, item, Fate::Dropped(reason));
        }
    }

    fn finish(&mut self, now: Time, item: Item<P>, fate: Fate) {
        self.held = self.held.less(item.size);
        self.ended(now, item.size, fate);
        self.report(now, item, fate);
    }

    fn report(&mut self, now: Time, item: Item<P>, fate: Fate) {
        self.outcomes.push_back(Outcome {
            corrupt_bit: item.corrupt_bit(),
            packet: item.packet,
            size: item.size,
            arrived: item.arrived,
            released: item.released,
            departed: now,
            fate,
            marked: item.marked,
        });
    }

    /// Return the earliest departure from a stage. A pending restart or change can alter a bottleneck's departure, and
    /// a gate the departure of packets in flight.
    fn event_of(&self, stage: &Stage<P>) -> Option<Time> {
        let event = stage.next_delivery();
        let Some(pending) = self.pending.front() else {
            return event;
        };
        let altered = match stage {
            Stage::Delay(_) => self.cuts && event.is_some(),
            _ => stage.level().is_some_and(|it| it.packets > Packets(0)),
        };
        match event {
            Some(event) if altered => Some(event.min(pending.at)),
            None if altered => Some(pending.at),
            _ => event,
        }
    }
}

impl<P: Clone> Direction<P> {
    /// Return the direction with a meter. Its [bins](Self::finished_bins) accumulate until they are taken.
    pub fn with_meter(mut self) -> Self {
        self.meter = Some(Meter::new(self.zero, self.offer()));
        self
    }

    /// Return the meter's bins that have ended by `now` and were not taken before, in order of time, without a gap.
    ///
    /// The first bin contains `zero`, or the first packet if earlier. Empty without a [meter](Self::with_meter).
    pub fn finished_bins(&mut self, now: Time) -> impl Iterator<Item = Bin> + '_ {
        let now = self.settle(now);
        let mut meter = self.meter.as_mut();
        std::iter::from_fn(move || meter.as_mut()?.next_bin(now))
    }

    /// Count a delivered or dropped packet.
    #[inline]
    fn ended(&mut self, now: Time, size: Bytes, fate: Fate) {
        let Some(meter) = &mut self.meter else {
            return;
        };
        match fate {
            Fate::Dropped(reason) => meter.dropped(now, reason),
            Fate::Delivered if self.metered.is_none() => {
                meter.left(now, size, QueueLevel::default());
            }
            Fate::Delivered | Fate::Doubled => {}
        }
    }

    #[inline]
    fn queue_changed(&mut self, index: usize, now: Time) {
        if self.meter.is_some() && self.metered == Some(index) {
            let level = self.queue();
            if let Some(meter) = &mut self.meter {
                meter.queue(now, level);
            }
        }
    }

    /// Report a changed schedule to the meter.
    fn offer_changed(&mut self, index: usize) {
        if let Stage::WorkloadDependent(link) = &mut self.stages[index]
            && let Some(from) = link.take_spliced()
            && self.metered == Some(index)
            && !self.closed
            && let Some(meter) = &mut self.meter
            && let Some(offer) = link.offer()
        {
            meter.offered(from, offer);
        }
    }

    #[inline]
    fn left(&mut self, index: usize, now: Time, size: Bytes) {
        if self.meter.is_some() && self.metered == Some(index) {
            let level = self.queue();
            if let Some(meter) = &mut self.meter {
                meter.left(now, size, level);
            }
        }
    }

    fn offer(&self) -> Offer {
        if self.closed {
            return Offer::NOTHING;
        }
        self.metered
            .and_then(|index| self.stages[index].behaviour().offer())
            .unwrap_or(Offer::Unlimited)
    }
}
