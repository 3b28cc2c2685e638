//! Tables as text (CSV and its like): columns of time and of rates or round-trip times.
//!
//! The caller, which knows the names, gives the meaning and unit of each column.

use std::io::{self, BufReader, Read, Write};

use serde::Deserialize;

use crate::error::{ImportError, Place, Result, Seconds, counted, shown};
use crate::quantity::{decimal_ns, moment_ns};
use crate::series::{Rate, RoundTrip, Table};
use crate::target::{Imported, Part, Target, Written};

/// The longest line, bytes.
const LONGEST_LINE: usize = 1 << 20;
/// Markers of an empty cell.
const EMPTY: [&[u8]; 8] = [
    b"-", b"nan", b"NaN", b"NAN", b"null", b"NULL", b"NA", b"None",
];

/// The format of a column of times.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Time {
    /// A number of units of so many ns.
    Unit(i64),
    /// An ISO 8601 time.
    Moment,
}

/// Treatment of an empty cell of a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Missing {
    /// Refuse it.
    #[default]
    Refuse,
    /// The previous rate continues.
    Hold,
    /// An outage.
    Zero,
}

/// A column of values.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Column {
    /// Its number, from 0.
    pub index: usize,
    /// Its part: a rate of uplink or downlink, or round-trip times.
    pub part: Part,
    /// Its unit in bit/s, or in ns.
    pub unit: f64,
}

/// Options of the conversion of a table.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Request {
    /// Between cells of a text.
    #[serde(default)]
    pub delimiter: u8,
    /// Lines of a text before the first row of values.
    #[serde(default)]
    pub head: u64,
    /// The column of time.
    pub time: usize,
    /// Its format.
    pub unit: Time,
    /// The columns of values.
    pub columns: Vec<Column>,
    /// Treatment of an empty cell of a rate; an empty cell of a round-trip time is a lost probe.
    #[serde(default)]
    pub missing: Missing,
    /// Duration of the last row, ns; if omitted, that of the row before it.
    #[serde(default)]
    pub duration_ns: Option<i64>,
}

/// Makes series of the columns of a table.
pub fn columns(source: impl Read, request: &Request, target: &impl Target) -> Result<Imported> {
    let guarded = BufReader::with_capacity(1 << 16, Guard { source, since: 0 });
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(request.delimiter)
        .has_headers(false)
        .flexible(true)
        .from_reader(guarded);
    let mut series = Tables::new(request, target)?;
    let mut record = csv::ByteRecord::new();
    let mut head = request.head;
    while reader.read_byte_record(&mut record).map_err(failed)? {
        let line = record.position().map_or(0, csv::Position::line);
        if line <= head {
            continue;
        }
        head = 0;
        let place = Place::Line(line);
        let blank = record.iter().all(|cell| cell.trim_ascii().is_empty());
        if blank || record.get(0).is_some_and(|cell| cell.starts_with(b"#")) {
            continue;
        }
        let at_ns = time(cell(&record, request.time, place)?, request, place)?;
        series.begin(at_ns, place)?;
        for (column, made) in request.columns.iter().zip(&mut series.made) {
            let value = number(cell(&record, column.index, place)?, request, place)?;
            made.add(
                series.at_ns,
                value.map(|value| value * column.unit),
                request.missing,
                place,
            )?;
        }
    }
    series.finish(request)
}

fn failed(error: csv::Error) -> ImportError {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => ImportError::Read(error),
        other => ImportError::at(Place::Whole, format!("{other:?}")),
    }
}

fn cell(record: &csv::ByteRecord, index: usize, place: Place) -> Result<&[u8]> {
    record.get(index).map(<[u8]>::trim_ascii).ok_or_else(|| {
        let there = counted(record.len() as u64, "cell", "cells");
        ImportError::at(place, format!("no cell {}: the row has {there}", index + 1))
    })
}

fn time(text: &[u8], request: &Request, place: Place) -> Result<i64> {
    let read = match request.unit {
        Time::Unit(unit) => decimal_ns(text, unit).or_else(|| {
            let ns = float(text)? * unit as f64;
            (ns.abs() < 9e18).then_some(ns.round() as i64)
        }),
        Time::Moment => std::str::from_utf8(text).ok().and_then(moment_ns),
    };
    read.ok_or_else(|| {
        let want = match request.unit {
            Time::Unit(_) if float(text).is_some() => {
                "a possible time in the assumed unit: for another unit, --column time=NAME:UNIT"
            }
            Time::Unit(_) => "a time: not a number",
            Time::Moment => "a time as in 2021-04-30T12:00:00.250Z",
        };
        ImportError::at(place, format!("{} is not {want}", shown(text)))
    })
}

fn float(text: &[u8]) -> Option<f64> {
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    value.is_finite().then_some(value)
}

fn number(text: &[u8], request: &Request, place: Place) -> Result<Option<f64>> {
    if text.is_empty() || EMPTY.contains(&text) {
        return Ok(None);
    }
    let read = std::str::from_utf8(text).ok().and_then(|text| {
        text.parse::<f64>().ok().or_else(|| {
            let point = (request.delimiter != b',').then(|| text.replacen(',', ".", 1))?;
            point.parse().ok()
        })
    });
    match read.filter(|value| value.is_finite()) {
        Some(value) => Ok(Some(value)),
        None => Err(ImportError::at(
            place,
            format!("{} is not a number", shown(text)),
        )),
    }
}

/// The series of a table of rows that come one by one.
pub struct Tables<W: Write + Send> {
    made: Vec<Made<W>>,
    zero_ns: Option<i64>,
    at_ns: i64,
    step_ns: i64,
    /// Rows of the time of the one above, and the first of them.
    again: u64,
    first_again: Option<Place>,
}

impl<W: Write + Send> Tables<W> {
    fn new(request: &Request, target: &impl Target<File = W>) -> Result<Self> {
        let made = request.columns.iter().map(|column| {
            Ok(match column.part {
                Part::RoundTrip => Made::Trips(Table::new(column.part, target)?),
                part => Made::Rates {
                    table: Table::new(part, target)?,
                    missing: 0,
                    held: 0.0,
                },
            })
        });
        Ok(Self {
            made: made.collect::<Result<_>>()?,
            zero_ns: None,
            at_ns: 0,
            step_ns: 0,
            again: 0,
            first_again: None,
        })
    }

    /// The next row's time.
    fn begin(&mut self, stamp_ns: i64, place: Place) -> Result<()> {
        let first = self.zero_ns.is_none();
        let zero = *self.zero_ns.get_or_insert(stamp_ns);
        let at_ns = stamp_ns.saturating_sub(zero);
        if at_ns < self.at_ns {
            let back = Seconds(self.at_ns.saturating_sub(at_ns));
            return Err(ImportError::at(
                place,
                format!(
                    "its time is {back} before that of the row above: rows must be in order of time"
                ),
            ));
        }
        if at_ns > self.at_ns {
            self.step_ns = at_ns - self.at_ns;
        } else if !first {
            self.again += 1;
            self.first_again.get_or_insert(place);
        }
        self.at_ns = at_ns;
        Ok(())
    }

    fn finish(self, request: &Request) -> Result<Imported> {
        let duration_ns = request.duration_ns;
        if self.zero_ns.is_none() {
            return Err(ImportError::at(Place::Whole, "it has no rows of values"));
        }
        let dated = request.unit == Time::Moment;
        let mut done = Imported::begun(self.zero_ns.filter(|_| dated));
        if duration_ns.is_none() {
            if self.step_ns == 0 {
                return Err(ImportError::at(
                    Place::Whole,
                    "all rows have the same time, so the duration is unknown: write --duration",
                ));
            }
            done.notes.push(format!(
                "the last row is assumed to last as long as the previous one, {}; correct with --duration",
                Seconds(self.step_ns)
            ));
        }
        let rates = request.columns.iter().any(|it| it.part != Part::RoundTrip);
        if let Some(place) = self.first_again.filter(|_| rates) {
            let rows = match self.again {
                1 => format!("a row ({place}) has"),
                many => format!("{many} rows (the first: {place}) have"),
            };
            done.notes.push(format!(
                "{rows} the time of the row above: of rates at the same time only the last one counts"
            ));
        }
        let end_ns = duration_ns.unwrap_or(self.at_ns.saturating_add(self.step_ns));
        for made in self.made {
            let (written, note) = made.finish(end_ns)?;
            done.parts.push(written);
            done.notes.extend(note);
        }
        Ok(done)
    }
}

enum Made<W: Write + Send> {
    Rates {
        table: Table<Rate, W>,
        missing: u64,
        held: f64,
    },
    Trips(Table<RoundTrip, W>),
}

impl<W: Write + Send> Made<W> {
    fn add(&mut self, at_ns: i64, value: Option<f64>, policy: Missing, place: Place) -> Result<()> {
        match self {
            Self::Trips(table) => {
                let round_trip_ns = match value {
                    Some(trip) if !(0.0..9e18).contains(&trip) => {
                        return Err(ImportError::at(
                            place,
                            format!("impossible round trip of {} ms", trip / 1e6),
                        ));
                    }
                    value => value.map(|trip| trip.round() as i64),
                };
                table.push(
                    RoundTrip {
                        at_ns,
                        round_trip_ns,
                    },
                    place,
                )
            }
            Self::Rates {
                table,
                missing,
                held,
            } => {
                let bit_s = match (value, policy) {
                    (Some(rate), _) => rate,
                    (None, Missing::Hold) => *held,
                    (None, Missing::Zero) => 0.0,
                    (None, Missing::Refuse) => {
                        return Err(ImportError::at(
                            place,
                            "missing rate: write --missing zero if nothing came through, or --missing hold if the previous rate continued",
                        ));
                    }
                };
                *missing += u64::from(value.is_none());
                *held = bit_s;
                table.push(Rate { at_ns, bit_s }, place)
            }
        }
    }

    fn finish(self, end_ns: i64) -> Result<(Written, Option<String>)> {
        match self {
            Self::Trips(table) => Ok((table.finish(end_ns)?, None)),
            Self::Rates { table, missing, .. } => {
                let written = table.finish(end_ns)?;
                let note = (missing > 0).then(|| {
                    format!(
                        "{} of the {} had no rate",
                        counted(missing, "row", "rows"),
                        written.part.name()
                    )
                });
                Ok((written, note))
            }
        }
    }
}

/// A source with a limit of line length: one without line ends would fill the memory.
struct Guard<R> {
    source: R,
    since: usize,
}

impl<R: Read> Read for Guard<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.since = match memchr::memrchr(b'\n', &buffer[..count]) {
            Some(at) => count - at - 1,
            None => self.since + count,
        };
        if self.since > LONGEST_LINE {
            return Err(io::Error::other("a line is longer than 1 MiB"));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Nowhere;

    fn request(unit: Time, parts: &[Part]) -> Request {
        let column = |(index, &part)| Column {
            index: index + 1,
            part,
            unit: 1e6,
        };
        Request {
            delimiter: b',',
            head: 1,
            time: 0,
            unit,
            columns: parts.iter().enumerate().map(column).collect(),
            missing: Missing::Refuse,
            duration_ns: None,
        }
    }

    fn read(text: &str, request: &Request) -> Result<Imported> {
        columns(text.as_bytes(), request, &Nowhere)
    }

    const SECONDS: Time = Time::Unit(1_000_000_000);

    #[test]
    fn rates_and_round_trips_of_one_table_share_its_time() {
        let both = request(SECONDS, &[Part::Downlink, Part::RoundTrip]);
        let done = read("t,rate,rtt\n5,1.5,20\n5.5,2,\n\n6.5,0,30\n", &both).unwrap();
        let told: Vec<_> = done
            .parts
            .iter()
            .map(|it| (it.part, it.rows, it.duration_ns))
            .collect();
        assert_eq!(
            told,
            [
                (Part::Downlink, 3, 2_500_000_000),
                (Part::RoundTrip, 3, 2_500_000_000)
            ]
        );
        let moments = request(Time::Moment, &[Part::Uplink]);
        let text = "t,rate\n2021-04-30 12:00:00,1\n2021-04-30 12:00:01,\"2\"\n";
        assert_eq!(
            read(text, &moments).unwrap().parts[0].duration_ns,
            2_000_000_000
        );
    }

    #[test]
    fn decimal_commas_are_read_where_they_are_no_delimiter() {
        let mut wanted = request(SECONDS, &[Part::Downlink]);
        wanted.delimiter = b';';
        assert_eq!(
            read("t;rate\n0,5;1,5\n1,0;2\n", &wanted).unwrap().parts[0].duration_ns,
            1_000_000_000
        );
    }

    #[test]
    fn a_refusal_names_its_line() {
        let one = request(SECONDS, &[Part::Downlink]);
        for (text, line, what) in [
            ("t,rate\n1,x\n", 2, "`x` is not a number"),
            ("t,rate\nnow,1\n", 2, "`now` is not a time"),
            ("t,rate\nnan,1\n", 2, "a time: not a number"),
            ("t,rate\n1e12,1\n", 2, "in the assumed unit"),
            ("t,rate\n99999999999999999999,1\n", 2, "in the assumed unit"),
            ("t,rate\n1,1\n0,1\n", 3, "in order of time"),
            ("t,rate\n0,1\n1,-1\n", 3, "-1000000 bit/s"),
            ("t,rate\n0,1\n1,inf\n", 3, "not a number"),
            ("t,rate\n0,1\n1,1e7\n", 3, "impossible rate"),
            ("t,rate\n0,1\n1\n", 3, "no cell 2"),
            ("t,rate\n0,1\n1,\n", 3, "--missing"),
        ] {
            let error = read(text, &one).unwrap_err().in_file("x".as_ref());
            assert!(
                error.starts_with(&format!("x:{line}: ")) && error.contains(what),
                "{text}: {error}"
            );
        }
        for (text, what) in [
            ("t,rate\n", "no rows"),
            ("t,rate\n1,1\n1,2\n", "--duration"),
        ] {
            let error = read(text, &one).unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
        let endless = columns(io::repeat(b'7'), &one, &Nowhere).unwrap_err();
        assert!(endless.to_string().contains("1 MiB"), "{endless}");
    }

    #[test]
    fn rows_of_one_time_are_told_where_only_the_last_counts() {
        let told = |text: &str, parts: &[Part]| {
            let done = read(text, &request(SECONDS, parts)).unwrap();
            let mut notes = done.notes.into_iter();
            notes.find(|it| it.contains("only the last"))
        };
        let one = told("t,rate\n0,12\n1,13\n1,15\n2,14\n", &[Part::Uplink]).unwrap();
        assert!(one.starts_with("a row (line 4) has"), "{one}");
        let two = told("t,rate\n0,12\n0,13\n0,15\n2,14\n", &[Part::Uplink]).unwrap();
        assert!(two.starts_with("2 rows (the first: line 3) have"), "{two}");
        let trips = told("t,rtt\n0,12\n0,13\n2,14\n", &[Part::RoundTrip]);
        assert_eq!(trips, None, "probes may be sent at once");
    }

    #[test]
    fn missing_rates_are_what_is_asked() {
        let mut asked = request(SECONDS, &[Part::Downlink]);
        for policy in [Missing::Hold, Missing::Zero] {
            asked.missing = policy;
            let done = read("t,rate\n0,1\n1,-\n2,1\n", &asked).unwrap();
            assert!(
                done.notes
                    .iter()
                    .any(|it| it.contains("1 row of the downlink")),
                "{:?}",
                done.notes
            );
        }
    }
}
