//! Reports of iperf3 as JSON (`--json`, or a line for each event, `--json-stream`): rates of each direction, interval by interval.
//!
//! Arrivals show what a link carried, sending shows the load. So a direction is taken from its receiver, which for an
//! upload is in the report only with `--get-server-output`. A report is read twice: for an overview, and for the rates.

mod made;
mod report;

use std::io::{BufReader, Read, Seek, SeekFrom};

use crate::error::{ImportError, Place, Result, told};
use crate::target::{Imported, Part, Target};
use made::Made;
use report::{Author, Interval, Report, Start, read};

/// Bytes read at a time.
const BUFFER: usize = 1 << 16;
/// The device's end of the test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The end that ran `iperf3 -c`.
    #[default]
    Client,
    /// The end that ran `iperf3 -s`.
    Server,
}

/// Makes rates of a report's intervals, of each direction that was tested or only of `part`.
pub fn iperf3(
    mut source: impl Read + Seek,
    device: Device,
    part: Option<Part>,
    target: &impl Target,
) -> Result<Imported> {
    let mut counts = Counts::default();
    let report = read(
        BufReader::with_capacity(BUFFER, &mut source),
        |author, start, interval| {
            counts.add(author, start, &interval);
            Ok(())
        },
    )?;
    let wanted = [Part::Uplink, Part::Downlink]
        .into_iter()
        .filter(|it| part.is_none_or(|part| part == *it));
    let chosen: Vec<(Part, Author, bool)> = wanted
        .filter_map(|part| {
            counts
                .best(part, device)
                .map(|(author, sends)| (part, author, sends))
        })
        .collect();
    if chosen.is_empty() {
        return Err(nothing(&report, part));
    }

    source.seek(SeekFrom::Start(0))?;
    let mut series: Vec<Made<_>> = chosen
        .iter()
        .map(|&(part, author, sends)| Made::new(part, author, sends, target))
        .collect::<Result<_>>()?;
    read(
        BufReader::with_capacity(BUFFER, &mut source),
        |author, start, interval| {
            for made in series.iter_mut().filter(|made| made.author == author) {
                made.add(start, &interval)?;
            }
            Ok(())
        },
    )?;
    let first_ns = series.iter().filter_map(|made| made.zero_ns).min();
    let begun_ns = report
        .start
        .stamp_ns()
        .and_then(|stamp| stamp.checked_add(first_ns.unwrap_or(0)));
    let mut done = Imported {
        notes: report.told(device),
        ..Imported::begun(begun_ns)
    };
    for made in series {
        done.notes.extend(made.told());
        done.parts.push(made.finish()?);
    }
    Ok(done)
}

fn nothing(report: &Report, part: Option<Part>) -> ImportError {
    let reason = match (&report.error, part) {
        (Some(error), _) => format!(
            "the test failed and has no intervals: iperf3 reports {}",
            told(error)
        ),
        (None, Some(part)) => format!("it has no intervals of the {}", part.name()),
        (None, None) => {
            "no intervals: expected a report of iperf3 --json of a test of at least one second"
                .into()
        }
    };
    ImportError::at(Place::Whole, reason)
}

/// Number of intervals of sending and receiving, by author.
#[derive(Default)]
struct Counts([u64; 4]);

impl Counts {
    const KINDS: [(Author, bool); 4] = [
        (Author::Client, false),
        (Author::Server, false),
        (Author::Client, true),
        (Author::Server, true),
    ];

    fn add(&mut self, author: Author, start: &Start, interval: &Interval) {
        for (count, (by, sends)) in self.0.iter_mut().zip(Self::KINDS) {
            if by == author && interval.half(sends, author, start).is_some() {
                *count += 1;
            }
        }
    }

    /// The source for a direction: its receiver, else its sender.
    fn best(&self, part: Part, device: Device) -> Option<(Author, bool)> {
        let told = |(author, sends): &(Author, bool)| {
            let is_device = (*author == Author::Client) == (device == Device::Client);
            (*sends == is_device) == (part == Part::Uplink)
        };
        let mut there = Self::KINDS.into_iter().zip(self.0);
        there
            .find(|(kind, count)| *count > 0 && told(kind))
            .map(|(kind, _)| kind)
    }
}

impl Report {
    fn told(&self, device: Device) -> Vec<String> {
        let mut notes = Vec::new();
        let device = match device {
            Device::Client => "client",
            Device::Server => "server",
        };
        let protocol = self
            .start
            .protocol()
            .map(|it| format!(" by {it}"))
            .unwrap_or_default();
        let streams = self.start.streams();
        let streams = if streams > 1 {
            format!(", the sum of {streams} streams")
        } else {
            String::new()
        };
        notes.push(format!(
            "a test{protocol}{streams}; the {device} is assumed to be the device"
        ));
        if let Some(error) = &self.error {
            notes.push(format!("iperf3 ended with an error: {}", told(error)));
        }
        if self.cut {
            notes.push("the report is truncated: the intervals before the end were read".into());
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::target::Nowhere;

    fn sample(from: u32, rate: f64, sender: bool) -> String {
        let to = from + 1;
        format!(
            r#"{{"start":{from},"end":{to},"seconds":1,"bytes":{},"bits_per_second":{rate},"omitted":false,"sender":{sender}}}"#,
            rate / 8.0
        )
    }

    fn report(who: &str, options: &str, intervals: &str, rest: &str) -> String {
        format!(
            r#"{{"start":{{"{who}":{{"host":"h","port":5201}},"test_start":{{"protocol":"TCP","num_streams":1,{options}"duration":2}}}},
            "intervals":[{intervals}],"end":{{}}{rest}}}"#
        )
    }

    fn made(text: &str) -> Result<Imported> {
        iperf3(Cursor::new(text), Device::Client, None, &Nowhere)
    }

    fn parts(done: &Imported) -> Vec<(Part, u64, i64)> {
        done.parts
            .iter()
            .map(|it| (it.part, it.rows, it.duration_ns))
            .collect()
    }

    fn upload() -> String {
        [0, 1]
            .map(|it| format!(r#"{{"streams":[{0}],"sum":{0}}}"#, sample(it, 8e6, true)))
            .join(",")
    }

    #[test]
    fn directions_follow_from_who_sent() {
        let two = 2_000_000_000;
        let sent = made(&report("connecting_to", "\"reverse\":0,", &upload(), "")).unwrap();
        assert_eq!(parts(&sent), [(Part::Uplink, 2, two)]);
        assert!(
            sent.notes
                .iter()
                .any(|it| it.contains("--get-server-output")),
            "{:?}",
            sent.notes
        );
        // The server's report of the same kind of interval is a download.
        let at_server = made(&report(
            "accepted_connection",
            "\"reverse\":1,",
            &upload(),
            "",
        ))
        .unwrap();
        assert_eq!(parts(&at_server), [(Part::Downlink, 2, two)]);
        // Old versions do not state the sender.
        let old = upload().replace(",\"sender\":true", "");
        let reverse = made(&report("connecting_to", "\"reverse\":1,", &old, "")).unwrap();
        assert_eq!(parts(&reverse), [(Part::Downlink, 2, two)]);
        let both: String = [0, 1]
            .map(|it| {
                let (up, down) = (sample(it, 1e6, true), sample(it, 9e6, false));
                format!(r#"{{"streams":[{up},{down}],"sum":{up},"sum_bidir_reverse":{down}}}"#)
            })
            .join(",");
        let bidir = made(&report("connecting_to", "\"bidir\":1,", &both, "")).unwrap();
        assert_eq!(
            parts(&bidir),
            [(Part::Uplink, 2, two), (Part::Downlink, 2, two)]
        );
        // Without sums the streams are summed.
        let bare = both.replace("\"sum", "\"other");
        assert_eq!(
            parts(&made(&report("connecting_to", "\"bidir\":1,", &bare, "")).unwrap()),
            parts(&bidir)
        );
    }

    #[test]
    fn what_arrived_is_preferred_to_what_was_sent() {
        let received = format!(r#"{{"streams":[],"sum":{}}}"#, sample(0, 5e6, false));
        let server = report("accepted_connection", "\"reverse\":0,", &received, "");
        let text = report(
            "connecting_to",
            "\"reverse\":0,",
            &upload(),
            &format!(r#","server_output_json":{server}"#),
        );
        let done = made(&text).unwrap();
        assert_eq!(parts(&done), [(Part::Uplink, 1, 1_000_000_000)]);
        assert!(!done.notes.iter().any(|it| it.contains("not what arrived")));
    }

    #[test]
    fn a_stream_of_events_is_the_same_report_and_may_be_cut_short() {
        let line = |it| {
            format!(
                r#"{{"event":"interval","data":{{"streams":[],"sum":{}}}}}"#,
                sample(it, 8e6, false)
            )
        };
        let start = r#"{"event":"start","data":{"connecting_to":{},"test_start":{"reverse":1}}}"#;
        let whole = format!("{start}\n{}\n{}\n", line(0), line(1));
        let want = [(Part::Downlink, 2, 2_000_000_000)];
        assert_eq!(parts(&made(&whole).unwrap()), want);
        let cut = made(&format!("{whole}{}", &line(2)[..30])).unwrap();
        assert_eq!(parts(&cut), want);
        assert!(
            cut.notes.iter().any(|it| it.contains("truncated")),
            "{:?}",
            cut.notes
        );
    }

    #[test]
    fn a_refusal_says_what_is_wrong() {
        let one = |sample: &str| {
            report(
                "connecting_to",
                "",
                &format!(r#"{{"streams":[],"sum":{sample}}}"#),
                "",
            )
        };
        for (text, what) in [
            (
                r#"{"start":{},"error":"unable to connect to server - server may have stopped running or use a different port"}"#.into(),
                "or use a different port`",
            ),
            (
                r#"{"start":{},"intervals":[],"end":{}}"#.into(),
                "no intervals",
            ),
            (
                one(&sample(0, -1.0, true)),
                "interval 1: impossible rate of -1 bit/s",
            ),
            (
                one(&sample(0, 1.0, true).replace("\"end\":1", "\"end\":-4")),
                "from 0 s to -4 s",
            ),
            (
                report("connecting_to", "", &upload(), "")[..200].into(),
                "truncated",
            ),
            (report("connecting_to", "", &upload(), "") + "{}", "data follows"),
            ("[1]".into(), "report"),
        ] {
            let error = made(&text).unwrap_err().in_file("x".as_ref());
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
