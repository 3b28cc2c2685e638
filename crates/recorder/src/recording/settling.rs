//! When an adaptive saturation has filled its queue.

use crate::packet::PacketRecord;

/// Packets of the directions of a run, as far as their saturation is adaptive.
pub(super) struct Settling<'a>(Vec<Way<'a>>);

struct Way<'a> {
    packets: &'a [PacketRecord],
    /// Delay of a packet that waited for the intended queueing delay, ns.
    delay: i64,
}

impl<'a> Settling<'a> {
    /// Packets of each direction, and for how long they are to wait at the least, ns: their delay less the least one of
    /// the run.
    pub(super) fn new(ways: [(&'a Vec<PacketRecord>, Option<u64>); 2]) -> Self {
        let way = |(packets, wait): (&'a Vec<PacketRecord>, Option<u64>)| {
            let least = packets.iter().filter_map(delay).min().unwrap_or(0);
            Some(Way {
                packets,
                delay: least.saturating_add(i64::try_from(wait?).unwrap_or(i64::MAX)),
            })
        };
        Self(ways.into_iter().filter_map(way).collect())
    }

    /// Since when the path carried in a span what it could: since the first packet arrived in each direction that had
    /// waited for long enough. `None` if there is none; the span's start if nothing is adaptive.
    pub(super) fn settling_time(&self, (start, end): (i64, i64)) -> Option<i64> {
        self.0.iter().try_fold(start, |settled, way| {
            let waited = |packet: &&PacketRecord| delay(packet).is_some_and(|it| it >= way.delay);
            let arrivals = way
                .packets
                .iter()
                .filter(waited)
                .filter_map(|it| it.arrived_ns);
            let first = arrivals.filter(|at| (start..end).contains(at)).min()?;
            Some(settled.max(first))
        })
    }
}

fn delay(packet: &PacketRecord) -> Option<i64> {
    Some(packet.arrived_ns? - packet.sent_ns?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One packet each 100 ms that takes 20 ms, and 1 ms more for each one before it from the `busy`-th on.
    fn packets(busy: i64) -> Vec<PacketRecord> {
        let packet = |index: i64| PacketRecord {
            train: 0,
            index: index as u32,
            bytes: 1400,
            sent_ns: Some(index * 100),
            arrived_ns: Some(index * 100 + 20 + (index - busy).max(0)),
            copies: 1,
        };
        (0..100).map(packet).collect()
    }

    #[test]
    fn a_span_begins_when_both_ways_wait() {
        let (up, down) = (packets(10), packets(40));
        let both = Settling::new([(&up, Some(5)), (&down, Some(5))]);
        assert_eq!(both.settling_time((0, 10_000)), Some(45 * 100 + 25));
        assert_eq!(both.settling_time((7_000, 10_000)), Some(7_000 + 20 + 60));
        assert_eq!(both.settling_time((0, 4_000)), None);
        let one = Settling::new([(&up, Some(5)), (&down, None)]);
        assert_eq!(one.settling_time((0, 10_000)), Some(15 * 100 + 25));
        assert_eq!(
            Settling::new([(&up, None), (&down, None)]).settling_time((3, 9)),
            Some(3)
        );
    }
}
