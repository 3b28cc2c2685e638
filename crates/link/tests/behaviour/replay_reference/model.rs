//! The replay in its plainest form: every instant in turn, the schedule written out.

use std::collections::VecDeque;

/// A link as the paper describes it. Times in ns, sizes in bytes.
#[derive(Clone, Debug)]
pub struct Model {
    /// (time, base delay, opportunities in order).
    pub rows: Vec<(u64, u64, Vec<u64>)>,
    /// Timestamps of the heavy trace, ms.
    pub heavy: Vec<u64>,
    pub looped: bool,
    pub zero: u64,
    pub offset: u64,
    /// (size, shift).
    pub compensation: Vec<(u64, i64)>,
    pub idle: u64,
    /// True if idle time is counted at the entry to the queue.
    pub idle_at_queue: bool,
    /// True if light opportunities count from the first packet's entry.
    pub from_first: bool,
    pub limit: Option<u64>,
    pub opportunity: u64,
    pub overhead: u64,
}

/// End of a packet: it left, was dropped, or still waits at the horizon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Left(u64),
    Dropped,
    Waits,
}

#[derive(Clone)]
struct Way {
    index: usize,
    entry: u64,
    schedule: Option<Vec<u64>>,
}

#[derive(Clone)]
struct Run<'a> {
    model: &'a Model,
    packets: &'a [(u64, u64)],
    horizon: u64,
    /// DELAY while active.
    delay: Option<u64>,
    schedule: Vec<u64>,
    way: VecDeque<Way>,
    /// Packet, unsent bytes.
    queue: VecDeque<(usize, u64)>,
    /// Bytes left of the last opportunity, and its instant: they are usable only then.
    spare: (u64, u64),
    last_entry: u64,
    empty_since: u64,
    ends: Vec<End>,
}

impl Model {
    /// Returns the end of each packet (arrival, size), arrivals in order.
    pub fn run(&self, packets: &[(u64, u64)], horizon: u64) -> Vec<End> {
        let mut run = Run {
            model: self,
            packets,
            horizon,
            delay: None,
            schedule: self.heavy_from(0, horizon),
            way: VecDeque::new(),
            queue: VecDeque::new(),
            spare: (0, 0),
            last_entry: 0,
            empty_since: 0,
            ends: vec![End::Waits; packets.len()],
        };
        for (index, &(arrival, _)) in packets.iter().enumerate() {
            run.until(arrival);
            run.arrive(index);
        }
        run.until(horizon);
        run.ends
    }

    fn period(&self) -> u64 {
        self.heavy.last().unwrap() * 1_000_000
    }

    fn start(&self) -> u64 {
        if self.looped {
            self.offset % self.period()
        } else {
            self.offset
        }
    }

    fn position(&self, at: u64) -> u64 {
        let position = self.start() + at.saturating_sub(self.zero);
        if self.looped {
            position % self.period()
        } else {
            position
        }
    }

    /// Returns the heavy opportunities from an instant up to the horizon.
    fn heavy_from(&self, from: u64, horizon: u64) -> Vec<u64> {
        let mut found = Vec::new();
        for cycle in 0.. {
            for &millis in &self.heavy {
                let position = cycle * self.period() + millis * 1_000_000;
                if position < self.start() {
                    continue;
                }
                let at = self.zero + position - self.start();
                if at > horizon {
                    return found;
                }
                if at >= from {
                    found.push(at);
                }
            }
            if !self.looped {
                break;
            }
        }
        found
    }

    fn row(&self, position: u64) -> usize {
        let before = self.rows.iter().rposition(|row| row.0 <= position);
        before.unwrap_or(0)
    }

    fn base_delay(&self, position: u64) -> u64 {
        let row = self.row(position);
        let (time, delay, _) = &self.rows[row];
        match self.rows.get(row + 1) {
            Some((next, after, _)) if *time <= position => {
                line(*time, *delay as i64, *next, *after as i64, position) as u64
            }
            _ => *delay,
        }
    }

    fn shift(&self, size: u64) -> i64 {
        let points = &self.compensation;
        let Some(first) = points.first() else {
            return 0;
        };
        if size <= first.0 {
            return first.1;
        }
        for pair in points.windows(2) {
            if size < pair[1].0 {
                return line(pair[0].0, pair[0].1, pair[1].0, pair[1].1, size);
            }
        }
        points.last().unwrap().1
    }
}

impl Run<'_> {
    fn arrive(&mut self, index: usize) {
        let (now, size) = self.packets[index];
        let model = self.model;
        let later = |delay: u64| (delay as i64 + model.shift(size)).max(0) as u64;
        let position = model.position(now);
        let fresh = model.base_delay(position);
        let active = self
            .delay
            .filter(|&delay| !self.cold(now, now + later(delay), now + later(fresh)));
        let mut schedule = None;
        let delay = active.unwrap_or_else(|| {
            let base = now
                + if model.from_first {
                    later(fresh)
                } else {
                    fresh
                };
            let light = &model.rows[model.row(position)].2;
            let splice = light.last().map_or(base, |last| base + last + 1_000_000);
            let mut instants: Vec<u64> = light.iter().map(|offset| base + offset).collect();
            instants.extend(model.heavy_from(splice, self.horizon));
            schedule = Some(instants);
            fresh
        });
        self.delay = Some(delay);
        self.last_entry = self.last_entry.max(now + later(delay));
        self.way.push_back(Way {
            index,
            entry: self.last_entry,
            schedule,
        });
        self.until(now);
    }

    /// entry, fresh: when the packet would enter the queue with the delay of the active link, and with a new one.
    fn cold(&self, now: u64, entry: u64, fresh: u64) -> bool {
        let (idle, empty) = (
            self.model.idle,
            self.way.is_empty() && self.queue.is_empty(),
        );
        if !self.model.idle_at_queue {
            return empty && now >= self.empty_since + idle;
        }
        let mut alone = self.clone();
        alone.until(self.horizon);
        alone.way.is_empty()
            && alone.queue.is_empty()
            && entry.max(self.last_entry) >= alone.empty_since + idle + 1_000_000 // strictly more, in whole ms
            && fresh.max(self.last_entry) >= alone.empty_since
    }

    /// Processes all events up to and including an instant.
    fn until(&mut self, end: u64) {
        loop {
            let opportunity = match self.queue.is_empty() {
                true => None,
                false => self.schedule.first().copied(),
            };
            let entry = self.way.front().map(|way| way.entry);
            let next = match (opportunity, entry) {
                (Some(one), Some(other)) => one.min(other),
                (one, other) => match one.or(other) {
                    Some(only) => only,
                    None => return,
                },
            };
            if next > end {
                return;
            }
            if opportunity == Some(next) {
                self.schedule.remove(0);
                self.spend(next, self.model.opportunity);
            } else {
                self.enter(next);
            }
            if self.way.is_empty() && self.queue.is_empty() {
                self.empty_since = next;
            }
        }
    }

    fn enter(&mut self, now: u64) {
        let Some(way) = self.way.pop_front() else {
            return;
        };
        if let Some(schedule) = way.schedule {
            self.schedule = schedule;
            self.spare = (now, 0);
        }
        if self.queue.is_empty() {
            self.schedule.retain(|&at| at >= now); // unused opportunities are lost
        }
        let size = self.packets[way.index].1;
        let held: u64 = self.queue.iter().map(|item| self.packets[item.0].1).sum();
        if self.model.limit.is_some_and(|limit| held + size > limit) {
            self.ends[way.index] = End::Dropped;
        } else {
            self.queue
                .push_back((way.index, size + self.model.overhead));
            if self.spare.0 == now {
                self.spend(now, self.spare.1);
            }
        }
    }

    /// Spends bytes at an instant on waiting packets; the rest is for packets that arrive at this instant.
    fn spend(&mut self, now: u64, mut left: u64) {
        while let Some((index, owed)) = self.queue.front_mut()
            && left > 0
        {
            let sent = left.min(*owed);
            left -= sent;
            *owed -= sent;
            if *owed == 0 {
                self.ends[*index] = End::Left(now);
                self.queue.pop_front();
            }
        }
        self.spare = (now, left);
    }
}

/// The line through two points, rounded down.
fn line(low: u64, at_low: i64, high: u64, at_high: i64, position: u64) -> i64 {
    let way = i128::from(at_high - at_low) * i128::from(position - low);
    at_low + way.div_euclid(i128::from(high - low)) as i64
}
