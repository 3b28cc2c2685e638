//! Configurations of netem-trace, which Rattan replays: models of bandwidth or delay over time, as JSON.
//!
//! A model is an object whose one key is the model's name (netem-trace's documentation, crate `netem-trace` 0.4, `model::bw` and
//! `model::delay`). Spans and rates are written for machines (`{"secs":1,"nanos":0}`, `{"gbps":0,"bps":12000000}`; numbers of ms and
//! Mbit/s in a `TraceBwConfig`) or for people (`"1s"`, `"12Mbps"`), by how netem-trace was compiled. All are read.

mod amounts;
mod expansion;
mod models;

use std::io::{BufReader, Read};

use serde::Deserialize;
use serde::de::DeserializeSeed;

use crate::error::{ImportError, Place, Result, malformed};
use crate::series::{Rate, RoundTrip, Table};
use crate::target::{Imported, Part, Target};
use expansion::{Expansion, Step};
use models::Model;

/// Interval of probes in the round-trip times made from a delay, ns.
const PROBE_NS: i64 = 100_000_000;
/// The longest delay trace, ns: ten days.
const LONGEST_DELAY_TRACE_NS: i64 = 864_000_000_000_000;

/// The meaning of a file's delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delays {
    /// Of one direction; the other is assumed equal.
    OneWay,
    /// There and back.
    RoundTrip,
}

/// Options of the conversion of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The direction of a bandwidth; `None` if unknown.
    pub direction: Option<Part>,
    /// The meaning of a delay; `None` if unknown.
    pub delays: Option<Delays>,
}

/// Reads a configuration: a model of bandwidth becomes rates, one of delay round-trip times.
///
/// Of a pattern that repeats as a whole one repetition is kept, since a replay repeats it. Random models are refused:
/// the output of netem-trace's generator is unknown.
pub fn netem(source: impl Read, request: Request, target: &impl Target) -> Result<Imported> {
    let mut made = Made::Nothing;
    let mut at_ns = 0_i64;
    let mut failure = None;
    let mut notes = Vec::new();
    let mut take = |step: Step, duration_ns: i64| {
        made.add(step, at_ns, duration_ns, request, target)?;
        at_ns = at_ns.saturating_add(duration_ns);
        Ok(())
    };
    let mut expansion = Expansion::new(&mut take, &mut failure, &mut notes);
    let mut json = serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 16, source));
    let read = Model::outermost(&mut expansion)
        .deserialize(&mut json)
        .and_then(|()| json.end());
    if let Some(error) = failure {
        return Err(error);
    }
    read.map_err(malformed)?;
    let part = made.finish(at_ns)?;
    Ok(Imported {
        parts: vec![part],
        notes,
        ..Imported::default()
    })
}

/// The series of the steps.
enum Made<W: std::io::Write + Send> {
    Nothing,
    Rates(Table<Rate, W>),
    Trips(Table<RoundTrip, W>),
}

impl<W: std::io::Write + Send> Made<W> {
    fn add(
        &mut self,
        step: Step,
        at_ns: i64,
        duration_ns: i64,
        request: Request,
        target: &impl Target<File = W>,
    ) -> Result<()> {
        if matches!(self, Self::Nothing) {
            *self = match step {
                Step::Bandwidth(_) => Self::Rates(Table::new(direction(request)?, target)?),
                Step::Delay(_) => Self::Trips(Table::new(Part::RoundTrip, target)?),
            };
        }
        let place = Place::Whole;
        match (self, step) {
            (Self::Rates(rates), Step::Bandwidth(bit_s)) => {
                rates.push(Rate { at_ns, bit_s }, place)
            }
            (Self::Trips(trips), Step::Delay(delay_ns)) => {
                let times = match request.delays {
                    Some(Delays::OneWay) => 2,
                    Some(Delays::RoundTrip) => 1,
                    None => {
                        return Err(ImportError::at(
                            place,
                            "it is a delay over time, and does not say of what: write --delays one-way, to have it for each direction, or \
                             --delays round-trip",
                        ));
                    }
                };
                let end_ns = at_ns.saturating_add(duration_ns);
                if end_ns > LONGEST_DELAY_TRACE_NS {
                    return Err(ImportError::at(place, "it lasts more than ten days"));
                }
                let round_trip_ns = Some(delay_ns.saturating_mul(times));
                let mut probe_ns = at_ns;
                while probe_ns < end_ns {
                    trips.push(
                        RoundTrip {
                            at_ns: probe_ns,
                            round_trip_ns,
                        },
                        place,
                    )?;
                    probe_ns += PROBE_NS;
                }
                Ok(())
            }
            _ => Err(ImportError::at(
                place,
                "mixes bandwidth and delay: a file must contain only one of them",
            )),
        }
    }

    fn finish(self, end_ns: i64) -> Result<crate::target::Written> {
        match self {
            Self::Rates(rates) => rates.finish(end_ns),
            Self::Trips(trips) => trips.finish(end_ns),
            Self::Nothing => Err(ImportError::at(Place::Whole, "its pattern is empty")),
        }
    }
}

fn direction(request: Request) -> Result<Part> {
    request.direction.ok_or_else(|| {
        ImportError::at(
            Place::Whole,
            "contains a bandwidth over time without a direction: write --direction uplink or --direction downlink",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Nowhere;

    const DOWN: Request = Request {
        direction: Some(Part::Downlink),
        delays: Some(Delays::OneWay),
    };

    fn read(text: &str) -> Result<Imported> {
        netem(text.as_bytes(), DOWN, &Nowhere)
    }

    #[test]
    fn rates_for_people_and_for_machines_are_the_same() {
        let people = r#"{"RepeatedBwPatternConfig":{"pattern":[{"StaticBwConfig":{"bw":"12Mbps","duration":"1s"}},
            {"TraceBwConfig":{"pattern":[["500ms",["1Mbps","2Mbps"]]]}}],"count":0}}"#;
        let machines = r#"{"RepeatedBwPatternConfig":{"pattern":[
            {"StaticBwConfig":{"bw":{"gbps":0,"bps":12000000},"duration":{"secs":1,"nanos":0}}},
            {"TraceBwConfig":[[500.0,[1.0,2.0]]]}],"count":2}}"#;
        let (one, other) = (read(people).unwrap(), read(machines).unwrap());
        assert_eq!(one.parts, other.parts);
        assert_eq!(
            (one.parts[0].rows, one.parts[0].duration_ns),
            (3, 2_000_000_000)
        );
    }

    #[test]
    fn a_pattern_within_a_pattern_is_written_out() {
        let inner = r#"{"RepeatedBwPatternConfig":{"count":3,"pattern":[{"StaticBwConfig":{}},{"StaticBwConfig":{"bw":"1kbps"}}]}}"#;
        let done = read(&format!(
            r#"{{"RepeatedBwPatternConfig":{{"pattern":[{inner},{inner}],"count":1}}}}"#
        ))
        .unwrap();
        assert_eq!(
            (done.parts[0].rows, done.parts[0].duration_ns),
            (12, 12_000_000_000)
        );
        let endless = inner.replace("\"count\":3", "\"count\":0");
        let error = read(&format!(
            r#"{{"RepeatedBwPatternConfig":{{"pattern":[{endless},{inner}]}}}}"#
        ))
        .unwrap_err();
        assert!(error.to_string().contains("for ever"), "{error}");
        let huge = inner.replace("\"count\":3", "\"count\":1000000000000");
        let error = read(&format!(
            r#"{{"RepeatedBwPatternConfig":{{"pattern":[{huge}]}}}}"#
        ))
        .unwrap_err();
        assert!(error.to_string().contains("steps"), "{error}");
    }

    #[test]
    fn a_sawtooth_without_noise_is_computed_and_chance_is_refused() {
        let text = r#"{"SawtoothBwConfig":{"bottom":"12Mbps","top":"16Mbps","interval":"500ms","duty_ratio":0.8,
            "duration":"1s","step":"100ms"}}"#;
        assert_eq!(read(text).unwrap().parts[0].rows, 10);
        let noisy = text.replace("\"step\"", "\"std_dev\":\"1Mbps\",\"step\"");
        for text in [
            noisy.as_str(),
            r#"{"NormalizedBwConfig":{"mean":"12Mbps"}}"#,
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains("random generator"), "{error}");
        }
    }

    #[test]
    fn delays_become_round_trips_only_when_it_is_said_what_they_are() {
        let text = r#"{"RepeatedDelayPatternConfig":{"pattern":[{"StaticDelayConfig":{"delay":"10ms","duration":"1s"}}]}}"#;
        assert_eq!(read(text).unwrap().parts[0].rows, 10);
        let unknown = Request {
            direction: None,
            delays: None,
        };
        let error = netem(text.as_bytes(), unknown, &Nowhere).unwrap_err();
        assert!(error.to_string().contains("--delays"), "{error}");
    }

    #[test]
    fn a_refusal_names_its_line() {
        for (text, line, what) in [
            ("{\n\"StaticBwConfig\":\n{\"bw\": 5}}", 3, "bandwidth"),
            ("{\n\"PoissonBwConfig\": {}}", 2, "PoissonBwConfig"),
            ("{\"StaticBwConfig\":{\"bw\":\"12Mbps\"", 1, "truncated"),
            ("{\"StaticLossConfig\": {}}", 1, "no such series"),
            ("[]", 1, "model"),
            (
                "{\"StaticBwConfig\":{\"bandwidth\":\"12Mbps\"}}",
                1,
                "bandwidth",
            ),
            ("{\"TraceBwConfig\":[[-1.0,[1.0]]]}", 1, "-0.001 s"),
        ] {
            let error = read(text).unwrap_err().in_file("x".as_ref());
            assert!(error.starts_with(&format!("x:{line}: ")), "{text}: {error}");
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
