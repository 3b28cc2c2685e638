//! A report as iperf3 writes it: its parts in the order of the file, intervals handed on one by one.

use std::fmt;
use std::io::{BufRead, Cursor, Read};

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::error::{ImportError, Place, Result, TRUNCATED_JSON, malformed};

/// The author of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Author {
    Client,
    Server,
}

/// Facts in a report beside its intervals.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub start: Start,
    pub error: Option<String>,
    /// True if the report was truncated but readable.
    pub cut: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Start {
    accepted_connection: Option<IgnoredAny>,
    test_start: TestStart,
    timestamp: serde_json::Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TestStart {
    protocol: Option<String>,
    num_streams: f64,
    reverse: f64,
}

impl Start {
    pub(super) fn protocol(&self) -> Option<&str> {
        let known = ["TCP", "UDP", "SCTP"];
        known
            .into_iter()
            .find(|it| self.test_start.protocol.as_deref() == Some(it))
    }

    /// When the test began, ns since 1970.
    pub(super) fn stamp_ns(&self) -> Option<i64> {
        let seconds = self.timestamp.get("timesecs")?.as_i64()?;
        seconds.checked_mul(1_000_000_000)
    }

    pub(super) fn streams(&self) -> u64 {
        self.test_start.num_streams as u64
    }

    fn author(&self) -> Author {
        match self.accepted_connection {
            Some(_) => Author::Server,
            None => Author::Client,
        }
    }
}

/// The traffic of an interval.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Interval {
    streams: Vec<Half>,
    sum: Option<Half>,
    sum_bidir_reverse: Option<Half>,
}

/// The traffic sent or received.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Half {
    pub start: f64,
    pub end: f64,
    bytes: f64,
    bits_per_second: Option<f64>,
    pub omitted: bool,
    sender: Option<bool>,
}

impl Half {
    pub(super) fn bit_s(&self) -> f64 {
        self.bits_per_second
            .unwrap_or(self.bytes * 8.0 / (self.end - self.start))
    }
}

impl Interval {
    /// The traffic that the author sent, or received; `None` if missing.
    pub(super) fn half(&self, sends: bool, author: Author, start: &Start) -> Option<Half> {
        // Before version 3.7 an interval does not state the sender; then all traffic had one direction.
        let reverse = start.test_start.reverse != 0.0;
        let usual = (author == Author::Client) != reverse;
        let is = |half: &&Half| half.sender.unwrap_or(usual) == sends;
        let sums = [&self.sum, &self.sum_bidir_reverse];
        if sums.iter().any(|sum| sum.is_some()) {
            return sums.into_iter().flatten().find(is).cloned();
        }
        let mut streams = self.streams.iter().filter(is);
        let mut total = streams.next()?.clone();
        let mut rate = total.bit_s();
        for stream in streams {
            rate += stream.bit_s();
            total.start = total.start.min(stream.start);
            total.end = total.end.max(stream.end);
        }
        total.bits_per_second = Some(rate);
        Some(total)
    }
}

type Take<'a> = dyn FnMut(Author, &Start, Interval) -> Result<()> + 'a;

/// Hands each interval to `take`.
pub(super) fn read(
    mut source: impl BufRead,
    mut take: impl FnMut(Author, &Start, Interval) -> Result<()>,
) -> Result<Report> {
    let head = head(&mut source)?;
    let events = head
        .iter()
        .filter(|it| !it.is_ascii_whitespace())
        .take(8)
        .copied();
    let events = events.eq(*b"{\"event\"");
    let whole = Cursor::new(head).chain(source);
    let mut failure = None;
    let mut report = Report::default();
    let read =
        if events {
            each_event(whole, &mut report, &mut take, &mut failure)
        } else {
            let mut json = serde_json::Deserializer::from_reader(whole);
            let document = Document {
                report: &mut report,
                author: None,
                take: &mut take,
                failure: &mut failure,
            };
            document.deserialize(&mut json).and_then(|()| match json.end() {
            Err(error) if error.is_syntax() => Err(de::Error::custom(format!(
                "data follows the report: a file must contain one report at line {} column 0",
                error.line()
            ))),
            ended => ended,
        })
        };
    match (failure, read) {
        (Some(error), _) => Err(error),
        (None, Err(error)) => Err(malformed(error)),
        (None, Ok(())) => Ok(report),
    }
}

/// The first bytes of a source.
fn head(source: &mut impl Read) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    source.take(256).read_to_end(&mut head)?;
    Ok(head)
}

#[derive(Deserialize)]
struct Event<'a> {
    event: String,
    #[serde(borrow)]
    data: Option<&'a serde_json::value::RawValue>,
}

/// The longest event, bytes: enough for a thousand streams.
const LONGEST_EVENT: u64 = 1 << 24;

fn each_event(
    mut source: impl BufRead,
    report: &mut Report,
    take: &mut Take<'_>,
    failure: &mut Option<ImportError>,
) -> std::result::Result<(), serde_json::Error> {
    let mut line = Vec::new();
    let mut number = 0;
    loop {
        line.clear();
        number += 1;
        let read = (&mut source)
            .take(LONGEST_EVENT)
            .read_until(b'\n', &mut line);
        let stop = match read {
            Err(error) => Err(error.into()),
            Ok(0) => return Ok(()),
            Ok(_) => match event(&line, report, take) {
                Err(ImportError::Malformed { reason, .. })
                    if line.last() != Some(&b'\n') && reason == TRUNCATED_JSON =>
                {
                    report.cut = true;
                    return Ok(());
                }
                Err(ImportError::Malformed {
                    place: Place::Line(_),
                    reason,
                }) => Err(ImportError::at(Place::Line(number), reason)),
                done => done,
            },
        };
        if let Err(error) = stop {
            *failure = Some(error);
            return Ok(());
        }
    }
}

fn event(line: &[u8], report: &mut Report, take: &mut Take<'_>) -> Result<()> {
    if line.trim_ascii().is_empty() {
        return Ok(());
    }
    let event: Event<'_> = serde_json::from_slice(line).map_err(malformed)?;
    let data = event.data.map_or("null", |it| it.get());
    match event.event.as_str() {
        "start" => report.start = serde_json::from_str(data).map_err(malformed)?,
        "interval" => {
            let interval = serde_json::from_str(data).map_err(malformed)?;
            take(report.start.author(), &report.start, interval)?;
        }
        "error" => report.error = serde_json::from_str(data).unwrap_or_default(),
        "server_output_json" => {
            let mut server = Report::default();
            let mut failure = None;
            let document = Document {
                report: &mut server,
                author: Some(Author::Server),
                take,
                failure: &mut failure,
            };
            let done = document.deserialize(&mut serde_json::Deserializer::from_str(data));
            failure.map_or(Ok(()), Err)?;
            done.map_err(malformed)?;
        }
        _ => {}
    }
    Ok(())
}

/// A report that is one object.
struct Document<'a, 'b> {
    report: &'a mut Report,
    /// Its author, if known.
    author: Option<Author>,
    take: &'a mut Take<'b>,
    failure: &'a mut Option<ImportError>,
}

impl<'de> DeserializeSeed<'de> for Document<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a report of iperf3, an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "start" => self.report.start = map.next_value()?,
                "error" => self.report.error = Some(map.next_value()?),
                "intervals" => map.next_value_seed(Intervals {
                    author: self.author.unwrap_or(self.report.start.author()),
                    start: &self.report.start,
                    take: &mut *self.take,
                    failure: &mut *self.failure,
                })?,
                "server_output_json" if self.author.is_none() => {
                    let mut server = Report::default();
                    map.next_value_seed(Document {
                        report: &mut server,
                        author: Some(Author::Server),
                        take: &mut *self.take,
                        failure: &mut *self.failure,
                    })?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

struct Intervals<'a, 'b> {
    author: Author,
    start: &'a Start,
    take: &'a mut Take<'b>,
    failure: &'a mut Option<ImportError>,
}

impl<'de> DeserializeSeed<'de> for Intervals<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Intervals<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of intervals")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<(), A::Error> {
        while let Some(interval) = list.next_element::<Interval>()? {
            (self.take)(self.author, self.start, interval).map_err(|error| {
                let told = error.to_string();
                *self.failure = Some(error);
                de::Error::custom(told)
            })?;
        }
        Ok(())
    }
}
