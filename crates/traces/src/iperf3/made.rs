//! Rates of one direction of a test, made of its intervals.

use std::io::Write;

use super::report::{Author, Half, Interval, Start};
use crate::error::{ImportError, Place, Result};
use crate::series::{Rate, Table};
use crate::target::{Part, Target, Written};

/// Intervals shorter than this, ns, are remainders at the end of a test.
const SHORTEST_NS: i64 = 1_000_000;

/// Rates of one direction.
pub(super) struct Made<W: Write + Send> {
    part: Part,
    pub(super) author: Author,
    sends: bool,
    table: Table<Rate, W>,
    pub(super) zero_ns: Option<i64>,
    end_ns: i64,
    number: u64,
    omitted: u64,
}

impl<W: Write + Send> Made<W> {
    pub(super) fn new(
        part: Part,
        author: Author,
        sends: bool,
        target: &impl Target<File = W>,
    ) -> Result<Self> {
        Ok(Self {
            part,
            author,
            sends,
            table: Table::new(part, target)?,
            zero_ns: None,
            end_ns: 0,
            number: 0,
            omitted: 0,
        })
    }

    pub(super) fn add(&mut self, start: &Start, interval: &Interval) -> Result<()> {
        self.number += 1;
        let Some(half) = interval.half(self.sends, self.author, start) else {
            return Ok(());
        };
        if half.omitted {
            self.omitted += 1;
            return Ok(());
        }
        let place = Place::Interval(self.number);
        let (from, to) = span(&half, place)?;
        if to - from < SHORTEST_NS {
            return Ok(());
        }
        let zero = *self.zero_ns.get_or_insert(from);
        let bit_s = half.bit_s();
        self.table.push(
            Rate {
                at_ns: from - zero,
                bit_s,
            },
            place,
        )?;
        self.end_ns = self.end_ns.max(to - zero);
        Ok(())
    }

    /// Notes for users.
    pub(super) fn told(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let name = self.part.name();
        if self.sends {
            let remedy = match self.author {
                Author::Client => "use --get-server-output to record what arrived",
                Author::Server => "the client's report contains what arrived",
            };
            notes.push(format!(
                "the {name} contains what was sent, not what arrived: {remedy}"
            ));
        }
        if self.omitted > 0 {
            notes.push(format!(
                "{} intervals of the {name} were skipped because the test omitted them (-O)",
                self.omitted
            ));
        }
        notes
    }

    pub(super) fn finish(self) -> Result<Written> {
        self.table.finish(self.end_ns)
    }
}

fn span(half: &Half, place: Place) -> Result<(i64, i64)> {
    let ns = |seconds: f64| (seconds * 1e9).round();
    let (from, to) = (ns(half.start), ns(half.end));
    let possible = 0.0..9e18;
    if !possible.contains(&from) || !possible.contains(&to) || to < from {
        return Err(ImportError::at(
            place,
            format!(
                "impossible interval from {} s to {} s",
                half.start, half.end
            ),
        ));
    }
    Ok((from as i64, to as i64))
}
