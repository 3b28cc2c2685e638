//! The model of a bottleneck in its plainest form: opportunity by opportunity, byte by byte.

use std::collections::VecDeque;

use cellbed_link::Limit;

/// A bottleneck served by a trace. Times in ns, sizes in bytes.
#[derive(Clone, Debug)]
pub struct Reference {
    /// Timestamps of the trace, ms.
    pub millis: Vec<u64>,
    pub looped: bool,
    pub zero: u64,
    pub offset: u64,
    pub opportunity: u64,
    pub overhead: u64,
    pub limit: Limit,
}

/// Departure of a packet; `None` if dropped on arrival or still waiting at the horizon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Left(u64),
    Dropped,
    Waits,
}

impl Reference {
    /// Returns the opportunities up to and including `horizon`.
    pub fn opportunities(&self, horizon: u64) -> Vec<u64> {
        let period = self.millis.last().unwrap() * 1_000_000;
        let start = if self.looped {
            self.offset % period
        } else {
            self.offset
        };
        let mut opportunities = Vec::new();
        for cycle in 0.. {
            for &millis in &self.millis {
                let position = cycle * period + millis * 1_000_000;
                if position >= start {
                    let at = self.zero + position - start;
                    if at > horizon {
                        return opportunities;
                    }
                    opportunities.push(at);
                }
            }
            if !self.looped {
                break;
            }
        }
        opportunities
    }

    /// Returns the end of each packet (arrival, size), arrivals in order.
    pub fn run(&self, packets: &[(u64, u64)], horizon: u64) -> Vec<End> {
        let mut ends = vec![End::Waits; packets.len()];
        let mut queue: VecDeque<(usize, u64)> = VecDeque::new(); // index, unsent bytes
        let mut arrivals = packets.iter().enumerate().peekable();
        let admit = |index: usize, queue: &mut VecDeque<(usize, u64)>, ends: &mut [End]| {
            let size = packets[index].1;
            let held: u64 = queue.iter().map(|&(waiting, _)| packets[waiting].1).sum();
            let Limit { packets, bytes } = self.limit;
            let fits = packets.is_none_or(|limit| (queue.len() as u64) < limit.0)
                && bytes.is_none_or(|limit| held + size <= limit.0);
            if fits {
                queue.push_back((index, size + self.overhead));
            } else {
                ends[index] = End::Dropped;
            }
        };
        for now in self.opportunities(horizon) {
            while let Some((index, _)) = arrivals.next_if(|(_, packet)| packet.0 < now) {
                admit(index, &mut queue, &mut ends);
            }
            let mut left = self.opportunity;
            while left > 0 {
                // Waiting packets are served first; packets that arrive at this instant may use the rest.
                if queue.is_empty()
                    && let Some((index, _)) = arrivals.next_if(|(_, packet)| packet.0 == now)
                {
                    admit(index, &mut queue, &mut ends);
                    continue;
                }
                let Some((index, owed)) = queue.front_mut() else {
                    break;
                };
                let sent = left.min(*owed);
                left -= sent;
                *owed -= sent;
                if *owed == 0 {
                    ends[*index] = End::Left(now);
                    queue.pop_front();
                }
            }
        }
        for (index, _) in arrivals {
            admit(index, &mut queue, &mut ends);
        }
        ends
    }
}
