//! Unacknowledged segments, and the losses among them.
//!
//! A segment is lost if a later transmission was acknowledged (RACK, RFC 8985 §6.2): at once during recovery or with
//! three segments sacked, else after the reordering window. Lost retransmissions are also detected.

use std::collections::{BTreeSet, VecDeque};

use cellbed_link::{Duration, Time};

use super::ranges::Ranges;
use super::rate::Departure;
use super::segment::Acknowledgement;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SegmentState {
    InFlight,
    Sacked,
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    start: u64,
    end: u64,
    at: Time,
    /// Number of the transmission; each retransmission has a new one.
    transmission: u64,
    state: SegmentState,
    retransmitted: bool,
    departure: Departure,
}

/// Segments that an acknowledgement newly acknowledges, cumulatively or selectively.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NewlyAcked {
    /// Number of segments.
    pub segments: u64,
    /// True if the cumulative acknowledgement has advanced.
    pub advanced: bool,
    /// Round-trip times of the segments sent first and last, as Linux samples them (`tcp_ack_update_rtt`).
    /// Retransmitted segments are excluded (Karn's algorithm), and cumulatively acknowledged ones take precedence for
    /// the first time; else the echoed timestamp is used.
    pub round_trips: Option<(Duration, Duration)>,
    /// Send time of the segment sent last, and the deliveries at that time.
    pub latest: Option<(Time, Departure)>,
    /// Bytes of the segment sent last.
    pub bytes: u64,
}

/// The segments from the first unacknowledged to the last sent one.
#[derive(Clone, Debug, Default)]
pub(super) struct Flight {
    segments: VecDeque<Sent>,
    /// Sacked ranges of the stream, bytes.
    ranges: Ranges,
    /// Buffer for the newly sacked ranges of an acknowledgement.
    new_ranges: Vec<(u64, u64)>,
    /// Transmissions whose loss may still be detected: number and first byte of the segment.
    transmissions: VecDeque<(u64, u64)>,
    /// First bytes of the lost segments.
    lost: BTreeSet<u64>,
    in_flight: u64,
    sacked: u64,
    /// Number of the last transmission.
    transmission: u64,
    /// Number and round-trip time of the latest acknowledged transmission (`RACK.segment`, `RACK.rtt`).
    newest: Option<(u64, Duration)>,
}

impl Flight {
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Return the number of segments in flight: neither sacked nor lost.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Return the number of segments, including sacked and lost ones.
    pub fn length(&self) -> u64 {
        self.segments.len() as u64
    }

    /// Return the number of sacked segments.
    pub fn sacked(&self) -> u64 {
        self.sacked
    }

    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Add a new segment, sent now.
    pub fn send(&mut self, now: Time, start: u64, end: u64, departure: Departure) {
        let transmission = self.add_transmission(start);
        self.segments.push_back(Sent {
            start,
            end,
            at: now,
            transmission,
            state: SegmentState::InFlight,
            retransmitted: false,
            departure,
        });
        self.in_flight += 1;
    }

    /// Retransmit the first lost segment, and return its start and end. Like Linux (`tcp_retrans_try_collapse`), append
    /// the segments after it, lost or not, up to a `full` segment.
    pub fn retransmit_lost(
        &mut self,
        now: Time,
        departure: Departure,
        full: u64,
    ) -> Option<(u64, u64)> {
        let start = self.lost.pop_first()?;
        self.in_flight += 1;
        let index = self.index(start)?;
        while let Some(&next) = self.segments.get(index + 1)
            && next.state != SegmentState::Sacked
            && next.end - start <= full
        {
            self.segments.remove(index + 1);
            self.segments[index].end = next.end;
            self.in_flight -= u64::from(next.state == SegmentState::InFlight);
            self.lost.remove(&next.start);
        }
        self.retransmit(now, index, departure)
    }

    /// Retransmit the last segment, unless it is sacked, and return its start and end.
    pub fn retransmit_last(&mut self, now: Time, departure: Departure) -> Option<(u64, u64)> {
        let index = self.segments.len().checked_sub(1)?;
        let last = self.segments[index];
        match last.state {
            SegmentState::InFlight => {}
            SegmentState::Lost => {
                self.lost.remove(&last.start);
                self.in_flight += 1;
            }
            SegmentState::Sacked => return None,
        }
        self.retransmit(now, index, departure)
    }

    fn retransmit(&mut self, now: Time, index: usize, departure: Departure) -> Option<(u64, u64)> {
        let transmission = self.add_transmission(self.segments[index].start);
        let segment = self.segments.get_mut(index)?;
        segment.at = now;
        segment.transmission = transmission;
        segment.state = SegmentState::InFlight;
        segment.retransmitted = true;
        segment.departure = departure;
        Some((segment.start, segment.end))
    }

    /// Return the number of a new transmission of the segment at `start`.
    fn add_transmission(&mut self, start: u64) -> u64 {
        self.transmission += 1;
        self.transmissions.push_back((self.transmission, start));
        self.transmission
    }

    fn index(&self, start: u64) -> Option<usize> {
        let first = self.segments.front()?;
        // Nearly all segments are full.
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

    /// Process an acknowledgement. least: the minimum round-trip time so far.
    pub fn acknowledge(
        &mut self,
        now: Time,
        ack: &Acknowledgement,
        least: Option<Duration>,
    ) -> NewlyAcked {
        let mut processed = Processed {
            now,
            least,
            ..Processed::default()
        };
        while let Some(sent) = self
            .segments
            .front()
            .copied()
            .filter(|it| it.end <= ack.upto)
        {
            self.segments.pop_front();
            processed.acked.advanced = true;
            processed.repeated |= sent.retransmitted;
            match sent.state {
                SegmentState::Sacked => {
                    self.sacked -= 1;
                    continue;
                }
                SegmentState::Lost => {
                    self.lost.remove(&sent.start);
                }
                SegmentState::InFlight => self.in_flight -= 1,
            }
            processed.add(&sent, Some(ack.echo));
        }
        self.ranges.forget_before(ack.upto);
        let mut new_ranges = std::mem::take(&mut self.new_ranges);
        for (start, end) in ack.blocks {
            self.ranges.insert(start.max(ack.upto), end, |from, to| {
                new_ranges.push((from, to));
            });
        }
        for (from, to) in new_ranges.drain(..) {
            let first = self.segments.partition_point(|sent| sent.start < from);
            for sent in self
                .segments
                .iter_mut()
                .skip(first)
                .take_while(|it| it.end <= to)
            {
                match sent.state {
                    SegmentState::Sacked => continue,
                    SegmentState::Lost => {
                        self.lost.remove(&sent.start);
                    }
                    SegmentState::InFlight => self.in_flight -= 1,
                }
                processed.add(sent, None);
                sent.state = SegmentState::Sacked;
                self.sacked += 1;
            }
        }
        self.new_ranges = new_ranges;
        self.newest = self.newest.max(processed.newest);
        NewlyAcked {
            round_trips: processed.round_trips(ack.echo),
            ..processed.acked
        }
    }

    /// Mark segments as lost that were sent more than `window` before an acknowledged one. Return their number, and the
    /// time of the next loss.
    pub fn detect_losses(&mut self, now: Time, window: Duration) -> (u64, Option<Time>) {
        let Some((newest, round_trip)) = self.newest else {
            return (0, None);
        };
        let mut found = 0;
        while let Some(&(transmission, start)) =
            self.transmissions.front().filter(|it| it.0 < newest)
        {
            if let Some(index) = self.index(start)
                && let sent = &mut self.segments[index]
                && sent.transmission == transmission
                && sent.state == SegmentState::InFlight
            {
                let due = sent.at + round_trip + window;
                if due > now {
                    return (found, Some(due));
                }
                sent.state = SegmentState::Lost;
                self.lost.insert(start);
                self.in_flight -= 1;
                found += 1;
            }
            self.transmissions.pop_front();
        }
        (found, None)
    }

    /// Mark the first segment as lost after a timeout, and those sent more than the latest round-trip time ago (Linux:
    /// `tcp_rack_skb_timeout`). Return the number of new losses.
    pub fn time_out(&mut self, now: Time) -> u64 {
        let before = self.in_flight;
        let recent = self
            .newest
            .map_or(Duration::ZERO, |(_, round_trip)| round_trip);
        let since = now - recent;
        for (index, sent) in self.segments.iter_mut().enumerate() {
            if sent.state == SegmentState::InFlight && (index == 0 || sent.at <= since) {
                sent.state = SegmentState::Lost;
                self.lost.insert(sent.start);
                self.in_flight -= 1;
            }
        }
        before - self.in_flight
    }

    /// Mark the lost segments as in flight, after a spurious timeout.
    pub fn undo_losses(&mut self) {
        for sent in &mut self.segments {
            if sent.state == SegmentState::Lost {
                sent.state = SegmentState::InFlight;
                self.in_flight += 1;
            }
        }
        self.lost.clear();
        let in_flight = self
            .segments
            .iter()
            .filter(|it| it.state == SegmentState::InFlight);
        let mut transmissions: Vec<_> = in_flight
            .map(|sent| (sent.transmission, sent.start))
            .collect();
        transmissions.sort_unstable();
        self.transmissions = transmissions.into();
    }
}

/// The part of an acknowledgement that has been processed.
#[derive(Default)]
struct Processed {
    now: Time,
    least: Option<Duration>,
    acked: NewlyAcked,
    /// End of the segment sent last.
    end: u64,
    /// Round-trip times of segments that were never retransmitted, acknowledged cumulatively and selectively.
    cumulative: Option<(Duration, Duration)>,
    selective: Option<(Duration, Duration)>,
    /// True if a cumulatively acknowledged segment was retransmitted.
    repeated: bool,
    /// See [`Flight::newest`].
    newest: Option<(u64, Duration)>,
}

impl Processed {
    /// Add an acknowledged segment. echo: the echoed timestamp of a cumulative acknowledgement.
    fn add(&mut self, sent: &Sent, echo: Option<Time>) {
        let round_trip = self.now - sent.at;
        let acked = &mut self.acked;
        acked.segments += 1;
        if !sent.retransmitted {
            let spans = if echo.is_some() {
                &mut self.cumulative
            } else {
                &mut self.selective
            };
            let (first, last) = spans.unwrap_or((round_trip, round_trip));
            *spans = Some((first.max(round_trip), last.min(round_trip)));
        }
        let latest = acked.latest;
        if latest.is_none_or(|(at, _)| (sent.at, sent.end) > (at, self.end)) {
            acked.latest = Some((sent.at, sent.departure));
            acked.bytes = sent.end - sent.start;
            self.end = sent.end;
        }
        // The acknowledgement of a retransmission may belong to the original (RFC 8985 §6.2, step 2).
        let early = echo.is_some_and(|echo| echo < sent.at)
            || self.least.is_some_and(|least| round_trip < least);
        if !(sent.retransmitted && early) {
            self.newest = self.newest.max(Some((sent.transmission, round_trip)));
        }
    }

    /// Return the times of [`NewlyAcked::round_trips`].
    fn round_trips(&self, echo: Time) -> Option<(Duration, Duration)> {
        let cumulative = self.cumulative.filter(|_| !self.repeated);
        match (cumulative, self.selective) {
            (Some((first, last)), selective) => Some((first, selective.map_or(last, |it| it.1))),
            (None, Some(selective)) => Some(selective),
            (None, None) => {
                // Without timestamps there is no echo.
                let echoed = self.now - echo;
                (self.acked.advanced && echo < Time::MAX).then_some((echoed, echoed))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(at: u64) -> Time {
        Time::from_millis(at)
    }

    #[test]
    fn small_lost_segments_are_retransmitted_together() {
        let mut flight = Flight::default();
        for number in 0..5 {
            let start = 300 * number;
            flight.send(ms(0), start, start + 300, Departure::default());
        }
        flight.time_out(ms(300));
        let mut retransmit = || flight.retransmit_lost(ms(300), Departure::default(), 1000);
        assert_eq!(retransmit(), Some((0, 900)));
        assert_eq!(retransmit(), Some((900, 1500)));
        assert_eq!(retransmit(), None);
        assert_eq!((flight.length(), flight.in_flight()), (2, 2));
    }

    #[test]
    fn round_trips_of_a_repeated_segment_come_from_others_or_the_echo() {
        let span = |millis| Some((Duration::from_millis(millis), Duration::from_millis(millis)));
        let mut flight = Flight::default();
        for number in 0..3 {
            flight.send(
                ms(number),
                1000 * number,
                1000 * (number + 1),
                Departure::default(),
            );
        }
        assert_eq!(flight.time_out(ms(300)), 3);
        flight.retransmit_lost(ms(300), Departure::default(), 1000);
        let mut acknowledge = |at, upto, block, echo| {
            let ack = Acknowledgement {
                upto,
                blocks: [block, (0, 0), (0, 0)],
                echo: ms(echo),
                ..Acknowledgement::default()
            };
            flight.acknowledge(ms(at), &ack, None).round_trips
        };
        // The original arrives after all, together with the third.
        assert_eq!(acknowledge(400, 1000, (2000, 3000), 0), span(398));
        assert_eq!(acknowledge(405, 2000, (2000, 3000), 1), span(404));
        let mut flight = Flight::default();
        flight.send(ms(0), 0, 1000, Departure::default());
        flight.time_out(ms(300));
        flight.retransmit_lost(ms(300), Departure::default(), 1000);
        let ack = Acknowledgement {
            upto: 1000,
            echo: ms(300),
            ..Acknowledgement::default()
        };
        assert_eq!(
            flight.acknowledge(ms(340), &ack, None).round_trips,
            span(40)
        );
    }
}
