//! Output of `ping`: round-trip times of probes, and lost probes.
//!
//! iputils (with `-D` or without, in any language that keeps `icmp_seq=`), BusyBox, the BSDs, macOS and Windows. With `-D` the times are
//! the stamps'; else probes are an interval apart by their numbers, or by their order where they have none (Windows).

mod line;

use std::collections::BTreeMap;
use std::io::{Read, Write};

use cellbed_link::lines::each_line;

use crate::error::{ImportError, Place, Result, counted};
use crate::series::{RoundTrip, Table};
use crate::target::{Imported, Part, Target};
use line::{Heard, Line};

/// The default interval of every ping, ns.
const USUAL_INTERVAL_NS: i64 = 1_000_000_000;
/// The longest line, bytes.
const LONGEST_LINE: usize = 4096;
/// Out-of-order answers wait for at most this number of others.
const WINDOW: usize = 4096;
/// Maximum of probes known only by missing numbers, plus as many for each line: a long outage is possible, but a file
/// with gaps only is not from ping.
const MOST_MISSING: u64 = 1 << 20;
const MISSING_PER_LINE: u64 = 16;
/// Maximum backward step of the clock, ns.
const MOST_BACKWARDS_NS: i64 = 1_000_000_000;

/// Makes round-trip times from ping's output. interval_ns: between probes without stamps; a second if `None`.
pub fn ping(source: impl Read, interval_ns: Option<i64>, target: &impl Target) -> Result<Imported> {
    let mut session = Session::new(interval_ns, target)?;
    each_line(source, LONGEST_LINE, |number, text| {
        session.take(line::read(text), Place::Line(number as u64))
    })?;
    session.finish()
}

/// A probe: its send time, if known, and the time until its answer.
#[derive(Clone, Copy, Debug, Default)]
struct Probe {
    sent_ns: Option<i64>,
    trip_ns: Option<i64>,
}

struct Session<W: Write + Send> {
    table: Table<RoundTrip, W>,
    interval_ns: Option<i64>,
    /// Probes whose turn has not come, by number.
    waiting: BTreeMap<u64, Probe>,
    /// The next number in order, and the newest one seen.
    next: Option<u64>,
    newest: u64,
    /// The first number of this ping, if its first line shows it.
    first: Option<u64>,
    /// The last probe with a known time: its time, and the number of later ones without.
    known_ns: Option<i64>,
    step_ns: i64,
    unknown: u64,
    zero_ns: Option<i64>,
    heard: u64,
    probes: u64,
    stamped: Option<bool>,
    begun: u64,
    imprecise: u64,
    copies: u64,
    number_of_session: u64,
    /// The number of probes in the summary.
    sent: u64,
}

impl<W: Write + Send> Session<W> {
    fn new(interval_ns: Option<i64>, target: &impl Target<File = W>) -> Result<Self> {
        Ok(Self {
            table: Table::new(Part::RoundTrip, target)?,
            interval_ns,
            waiting: BTreeMap::new(),
            next: None,
            newest: 0,
            first: None,
            known_ns: None,
            step_ns: interval_ns.unwrap_or(USUAL_INTERVAL_NS),
            unknown: 0,
            zero_ns: None,
            heard: 0,
            probes: 0,
            stamped: None,
            begun: 0,
            imprecise: 0,
            copies: 0,
            number_of_session: 0,
            sent: 0,
        })
    }

    fn take(&mut self, line: Line, place: Place) -> Result<()> {
        match line {
            Line::Begins { first } => self.begin(first, place),
            Line::Heard(heard) => self.hear(heard, place),
            Line::Sent(count) => {
                self.sent = self.sent.saturating_add(count);
                self.close(Some(count), place)
            }
            Line::Other => Ok(()),
        }
    }

    fn begin(&mut self, first: Option<u64>, place: Place) -> Result<()> {
        self.close(None, place)?;
        if self.heard > 0 && self.stamped != Some(true) {
            return Err(ImportError::at(
                place,
                "another ping begins at an unknown time, since there are no timestamps (-D): split the file",
            ));
        }
        self.begun += 1;
        self.first = first;
        Ok(())
    }

    fn hear(&mut self, heard: Heard, place: Place) -> Result<()> {
        if heard.duplicate {
            self.copies += 1;
            return Ok(());
        }
        if heard.trip_ns.is_some()
            && *self.stamped.get_or_insert(heard.stamp_ns.is_some()) != heard.stamp_ns.is_some()
        {
            return Err(ImportError::at(
                place,
                "some answers have timestamps (-D) and others do not",
            ));
        }
        self.heard += 1;
        self.imprecise += u64::from(heard.at_most);
        let turn = self.turn(heard.number);
        let probe = Probe {
            // A stamp is of the answer's arrival.
            sent_ns: heard
                .stamp_ns
                .zip(heard.trip_ns)
                .map(|(stamp, trip)| stamp.saturating_sub(trip)),
            trip_ns: heard.trip_ns,
        };
        if self.next.is_some_and(|next| turn < next) {
            return Ok(()); // an answer so late that its turn has gone: it counts as lost
        }
        self.newest = self.newest.max(turn);
        let known = self.waiting.entry(turn).or_default();
        if known.trip_ns.is_none() {
            *known = probe;
        } else if probe.trip_ns.is_some() {
            self.copies += 1;
        }
        let ahead = self.newest.saturating_sub(self.next.unwrap_or(self.newest));
        let passing = ahead.saturating_sub(WINDOW as u64);
        self.believable(self.probes.saturating_add(passing), place)?;
        while self.newest.saturating_sub(self.next.unwrap_or(self.newest)) > WINDOW as u64
            || self.waiting.len() > WINDOW
        {
            self.pass(place)?;
        }
        Ok(())
    }

    /// The position of a number, which wraps around at 16 bits.
    fn turn(&mut self, number: Option<u64>) -> u64 {
        const TURN: u64 = 1 << 16;
        let Some(number) = number else {
            return self.newest + u64::from(self.next.is_some() || !self.waiting.is_empty());
        };
        if self.next.is_none() && self.waiting.is_empty() {
            // Room below for what comes out of order.
            self.newest = TURN + number;
            if let Some(first) = self
                .first
                .filter(|first| *first < number && number - first < WINDOW as u64)
            {
                self.next = Some(TURN + first);
            }
            return self.newest;
        }
        if number >= TURN {
            return number + TURN;
        }
        let around = self.newest - self.newest % TURN + number;
        let near = [around.saturating_sub(TURN), around, around + TURN];
        near.into_iter()
            .min_by_key(|turn| turn.abs_diff(self.newest))
            .unwrap_or(around)
    }

    /// Passes the next probe, answered or not.
    fn pass(&mut self, place: Place) -> Result<()> {
        let first = self.waiting.first_key_value().map(|(turn, _)| *turn);
        let Some(turn) = self.next.or(first) else {
            return Ok(());
        };
        let probe = self.waiting.remove(&turn).unwrap_or_default();
        self.next = Some(turn + 1);
        self.probes += 1;
        self.believable(self.probes, place)?;
        if self.stamped == Some(true) {
            return self.pass_stamped(probe, place);
        }
        let at_ns = self
            .known_ns
            .map_or(0, |known| known.saturating_add(self.step_ns));
        self.known_ns = Some(at_ns);
        self.table.push(
            RoundTrip {
                at_ns,
                round_trip_ns: probe.trip_ns,
            },
            place,
        )
    }

    fn believable(&self, probes: u64, place: Place) -> Result<()> {
        if probes <= MOST_MISSING + MISSING_PER_LINE * self.heard {
            return Ok(());
        }
        Err(ImportError::at(
            place,
            format!(
                "its sequence numbers imply {probes} probes in {} lines: not output of ping",
                self.heard
            ),
        ))
    }

    fn pass_stamped(&mut self, probe: Probe, place: Place) -> Result<()> {
        let Some(sent) = probe.sent_ns else {
            self.unknown += 1;
            return Ok(());
        };
        let unknown = self.unknown as i64;
        let before = match self.known_ns {
            Some(known) => {
                if known.saturating_sub(sent) > MOST_BACKWARDS_NS {
                    return Err(ImportError::at(
                        place,
                        "its timestamp is before that of the line above: the clock was set",
                    ));
                }
                known
            }
            None => sent.saturating_sub(self.step_ns.saturating_mul(unknown + 1)),
        };
        let sent = sent.max(before);
        let span = i128::from(sent) - i128::from(before);
        for index in 1..=unknown {
            let share = span * i128::from(index) / i128::from(unknown + 1);
            self.write(before.saturating_add(share as i64), None, place)?;
        }
        if self.known_ns.is_some() {
            self.step_ns = (span / i128::from(unknown + 1)) as i64;
        }
        self.unknown = 0;
        self.known_ns = Some(sent);
        self.write(sent, probe.trip_ns, place)
    }

    fn write(&mut self, sent_ns: i64, round_trip_ns: Option<i64>, place: Place) -> Result<()> {
        let zero = *self.zero_ns.get_or_insert(sent_ns);
        let at_ns = sent_ns.saturating_sub(zero);
        self.table.push(
            RoundTrip {
                at_ns,
                round_trip_ns,
            },
            place,
        )
    }

    /// Ends a ping with the number of probes that it sent.
    fn close(&mut self, sent: Option<u64>, place: Place) -> Result<()> {
        while self.next.unwrap_or(0) <= self.newest
            && !(self.waiting.is_empty() && self.next.is_none())
        {
            self.pass(place)?;
        }
        let told = self.probes - self.number_of_session;
        if let Some(missing) = sent.and_then(|sent| sent.checked_sub(told)) {
            // A single one may have been in flight at the end.
            if missing > 1 && told > 0 {
                self.believable(self.probes.saturating_add(missing), place)?;
                for _ in 0..missing {
                    self.pass(place)?;
                }
            }
        }
        if self.stamped == Some(true) && self.unknown > 0 {
            let known = self.known_ns.unwrap_or(0);
            for index in 1..=self.unknown as i64 {
                let sent = known.saturating_add(self.step_ns.saturating_mul(index));
                self.write(sent, None, place)?;
                self.known_ns = Some(sent);
            }
            self.unknown = 0;
        }
        self.waiting.clear();
        self.next = None;
        self.newest = 0;
        self.first = None;
        self.number_of_session = self.probes;
        Ok(())
    }

    fn finish(mut self) -> Result<Imported> {
        self.close(None, Place::Whole)?;
        if self.table.is_empty() && self.sent > 0 {
            let probes = counted(self.sent, "probe", "probes");
            return Err(ImportError::at(
                Place::Whole,
                format!("none of its {probes} was answered: no round-trip time"),
            ));
        }
        if self.table.is_empty() {
            let reason = "no answer to a ping, such as `64 bytes from 192.0.2.1: icmp_seq=1 ttl=57 time=21.3 ms`";
            return Err(ImportError::at(Place::Whole, reason));
        }
        let mut notes = Vec::new();
        if self.stamped != Some(true) {
            let apart = self.step_ns as f64 / 1e9;
            let why = match self.interval_ns {
                Some(_) => String::new(),
                None => "; correct with --interval".into(),
            };
            notes.push(format!(
                "no timestamps (ping -D): probes are assumed to be {apart} s apart{why}"
            ));
        }
        if self.imprecise > 0 {
            notes.push(format!(
                "{} of less than 1 ms, without a value, count as 1 ms",
                counted(self.imprecise, "round trip", "round trips")
            ));
        }
        if self.copies > 0 {
            notes.push(format!(
                "{} left out",
                counted(
                    self.copies,
                    "second copy of an answer was",
                    "second copies of answers were"
                )
            ));
        }
        if self.begun > 1 {
            notes.push(format!(
                "contains {} pings in sequence; the time between them is empty",
                self.begun
            ));
        }
        let end_ns = self.table.last_ns().saturating_add(self.step_ns.max(1));
        let stamped = self.stamped == Some(true);
        Ok(Imported {
            parts: vec![self.table.finish(end_ns)?],
            notes,
            ..Imported::begun(self.zero_ns.filter(|_| stamped))
        })
    }
}

#[cfg(test)]
mod tests;
