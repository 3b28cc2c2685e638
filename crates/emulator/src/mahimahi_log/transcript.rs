//! The lines of the log, in the order in which the original writes them.

use cellbed_link::{Duration, Time};

use super::{Event, MILLISECOND, OPPORTUNITY, Opportunities, line};
use crate::config::MahimahiLog;

/// Bytes of the header that a TUN device puts in front of a packet; Mahimahi's lengths include it.
const TUN_HEADER: u64 = 4;

/// The lines. Times in them are ms since the first start of the schedule; earlier events are not reported.
pub struct Transcript {
    wanted: MahimahiLog,
    init: Option<Time>,
    opportunities: Option<Opportunities>,
    /// The opportunity that was spent last, in ms, and what is left of it.
    spent: Option<(u64, u64)>,
    /// Packets dropped since the last arrival: their instant, number and bytes.
    dropped: Option<(u64, u64, u64)>,
}

impl Transcript {
    /// Of a direction with these opportunities, if it has any.
    pub fn new(wanted: MahimahiLog, opportunities: Option<Opportunities>) -> Self {
        Self {
            wanted,
            init: None,
            opportunities,
            spent: None,
            dropped: None,
        }
    }

    /// Appends the lines that are certain by this event.
    pub fn tell(&mut self, event: Event, text: &mut Vec<u8>) {
        if let Event::Start {
            zero,
            offset,
            epoch_ms,
        } = event
        {
            self.start(zero, offset, epoch_ms, text);
        }
        let Some(init) = self.init else { return };
        let millis = |at: Time| at.since(init).as_nanos() / MILLISECOND;
        if let Event::Drop { at, size } = event {
            let at = millis(at);
            let size = size.0 + TUN_HEADER;
            match &mut self.dropped {
                Some((when, packets, bytes)) if *when == at => {
                    *packets += 1;
                    *bytes += size;
                }
                _ => {
                    self.tell_drops(text);
                    self.offer_until(at, text);
                    self.dropped = Some((at, 1, size));
                }
            }
            return;
        }
        self.tell_drops(text);
        match event {
            Event::Arrival { at, size } => {
                self.offer_until(millis(at), text);
                line(text, millis(at), b" + ", &[size.0 + TUN_HEADER]);
            }
            Event::Departure { at, arrived, size } => {
                let (at, arrived, size) = (millis(at), millis(arrived), size.0 + TUN_HEADER);
                self.spend(at, arrived, size, text);
                line(text, at, b" - ", &[size, at.saturating_sub(arrived)]);
            }
            Event::Now(at) => self.offer_until(millis(at), text),
            Event::Gate { at, closed } => {
                self.offer_until(millis(at), text);
                if let Some(opportunities) = &mut self.opportunities {
                    opportunities.set_closed(closed);
                }
            }
            Event::Start { .. } | Event::Drop { .. } => {}
        }
    }

    fn start(&mut self, zero: Time, offset: Duration, epoch_ms: u64, text: &mut Vec<u8>) {
        if self.init.is_none() {
            self.init = Some(zero);
            let stamps = [
                format!("init timestamp: {epoch_ms}"),
                "base timestamp: 0".into(),
            ];
            for words in [&self.wanted.heading[..], &stamps, &self.wanted.remarks].concat() {
                text.extend_from_slice(format!("# {words}\n").as_bytes());
            }
        }
        let base = self.init.map_or(0, |init| zero.since(init).as_nanos());
        if let Some(opportunities) = &mut self.opportunities {
            opportunities.restart(base, offset);
        }
    }

    /// A packet of `size` bytes leaves at `at`: reports the opportunities up to the one that sends its last byte.
    fn spend(&mut self, at: u64, arrived: u64, size: u64, text: &mut Vec<u8>) {
        let (last, left) = self.spent.unwrap_or((0, 0));
        // It had a share of the opportunity that the packet before it did not use up, if it waited by then.
        let share = if arrived < last { left } else { 0 };
        if last == at && share >= size {
            self.spent = Some((at, left - size));
            return;
        }
        if at > 0 {
            self.offer_until(at - 1, text);
        }
        if let Some(opportunities) = &mut self.opportunities {
            opportunities.tell_one_at(at, text);
        }
        self.spent = Some((at, (OPPORTUNITY + share).saturating_sub(size)));
    }

    /// Reports the opportunities up to and including the millisecond `until`.
    fn offer_until(&mut self, until: u64, text: &mut Vec<u8>) {
        if let Some(opportunities) = &mut self.opportunities {
            opportunities.tell_until(until, text);
        }
    }

    fn tell_drops(&mut self, text: &mut Vec<u8>) {
        if let Some((at, packets, bytes)) = self.dropped.take() {
            line(text, at, b" d ", &[packets, bytes]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cellbed_link::{Bytes, Trace};

    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_millis(1000 + millis)
    }

    fn transcript(millis: &[u64], looped: bool) -> Transcript {
        let trace = Arc::new(Trace::from_millis(millis.iter().copied()).unwrap());
        let wanted = MahimahiLog {
            path: "log".into(),
            descriptor: None,
            heading: vec!["mahimahi mm-link (Uplink) [up] > log".into()],
            remarks: vec!["mahimahi config: [delay 20 ms] ".into()],
        };
        Transcript::new(wanted, Some(Opportunities::new(trace, looped, 0)))
    }

    fn told(transcript: &mut Transcript, events: &[Event]) -> Vec<String> {
        let mut text = Vec::new();
        let start = Event::Start {
            zero: ms(0),
            offset: Duration::ZERO,
            epoch_ms: 1_700_000_000_000,
        };
        for event in std::iter::once(&start).chain(events) {
            // The way that events take to the other thread.
            transcript.tell(Event::from_bytes(&event.to_bytes()), &mut text);
        }
        let text = String::from_utf8(text).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    fn arrival(at: Time, size: u64) -> Event {
        Event::Arrival {
            at,
            size: Bytes(size),
        }
    }

    fn departure(at: u64, arrived: u64, size: u64) -> Event {
        Event::Departure {
            at: ms(at),
            arrived: ms(arrived),
            size: Bytes(size),
        }
    }

    #[test]
    fn the_header_tells_when_it_began() {
        let lines = told(&mut transcript(&[5], true), &[]);
        assert_eq!(
            lines,
            [
                "# mahimahi mm-link (Uplink) [up] > log",
                "# init timestamp: 1700000000000",
                "# base timestamp: 0",
                "# mahimahi config: [delay 20 ms] ",
            ]
        );
    }

    #[test]
    fn opportunities_come_before_what_arrives_in_their_millisecond() {
        let events = [
            arrival(ms(2) + Duration::from_micros(700), 1500),
            departure(4, 2, 1500),
            Event::Now(ms(6)),
        ];
        assert_eq!(
            told(&mut transcript(&[0, 2, 4], true), &events)[4..],
            [
                "0 # 1504",
                "2 # 1504",
                "2 + 1504",
                "4 # 1504",
                "4 - 1504 2",
                "4 # 1504", // the loop's seam: a leading 0
                "6 # 1504",
            ]
        );
    }

    #[test]
    fn small_packets_share_an_opportunity_and_large_ones_go_over_to_the_next() {
        let events = [
            arrival(ms(0), 996), // 1000 with the header
            arrival(ms(0), 996),
            arrival(ms(0), 996),
            arrival(ms(0), 4),
            departure(1, 0, 996),
            departure(1, 0, 996),
            departure(1, 0, 996),
            departure(1, 0, 4),
            Event::Now(ms(1)),
        ];
        assert_eq!(
            told(&mut transcript(&[1, 1, 1, 5], true), &events)[8..],
            [
                "1 # 1504",
                "1 - 1000 1",
                "1 # 1504",
                "1 - 1000 1",
                "1 - 1000 1", // 504 + 504 + 1504 bytes: the second opportunity had 1008 left for it
                "1 - 8 1",
                "1 # 1504",
            ]
        );
    }

    #[test]
    fn an_outage_offers_nothing() {
        let gate = |at, closed| Event::Gate { at: ms(at), closed };
        let events = [gate(3, true), gate(7, false), Event::Now(ms(9))];
        assert_eq!(
            told(&mut transcript(&[1, 2, 4, 6, 8, 9], true), &events)[4..],
            ["1 # 1504", "2 # 1504", "8 # 1504", "9 # 1504"]
        );
    }

    #[test]
    fn what_one_arrival_pushes_out_is_one_line() {
        let drop = |at, size| Event::Drop {
            at: ms(at),
            size: Bytes(size),
        };
        let events = [
            arrival(ms(1), 1500),
            drop(1, 100),
            drop(1, 200),
            arrival(ms(1), 60),
            drop(1, 60),
        ];
        let mut transcript = transcript(&[9], true);
        let mut lines = told(&mut transcript, &events);
        let mut rest = Vec::new();
        transcript.tell(Event::Now(ms(2)), &mut rest);
        lines.push(String::from_utf8(rest).unwrap().trim().into());
        assert_eq!(lines[4..], ["1 + 1504", "1 d 2 308", "1 + 64", "1 d 1 64"]);
    }

    #[test]
    fn a_trace_played_once_offers_nothing_after_its_end() {
        let lines = told(&mut transcript(&[0, 3, 3], false), &[Event::Now(ms(50))]);
        assert_eq!(lines[4..], ["0 # 1504", "3 # 1504", "3 # 1504"]);
    }
}
