//! The models of a configuration, also those made of others and of samples, handed on as steps as they are read.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::amounts::{Bandwidth, Megabits, Millis, Span};
use super::expansion::{Expansion, MOST_STEPS, Step};
use crate::error::shown;

/// Maximum steps of a nested pattern in memory.
const MOST_HELD: usize = 1 << 20;
/// A model that is being read.
pub(super) struct Model<'a, 'b> {
    pub(super) out: &'b mut Expansion<'a>,
    /// Steps to repeat.
    pub(super) held: Option<&'b mut Vec<(Step, i64)>>,
    /// True if it is the whole file.
    pub(super) whole: bool,
}

impl<'a, 'b> Model<'a, 'b> {
    pub(super) fn outermost(out: &'b mut Expansion<'a>) -> Self {
        Self {
            out,
            held: None,
            whole: true,
        }
    }

    pub(super) fn step<E: de::Error>(&mut self, step: Step, duration_ns: i64) -> Result<(), E> {
        if duration_ns == 0 {
            return Ok(()); // as in netem-trace, it is passed over
        }
        match &mut self.held {
            None => self.out.step(step, duration_ns),
            Some(held) if held.len() == MOST_HELD => Err(E::custom(format!(
                "a pattern inside another has more than {MOST_HELD} steps"
            ))),
            Some(held) => {
                held.push((step, duration_ns));
                Ok(())
            }
        }
    }

    /// For a model within it.
    pub(super) fn inner(&mut self) -> Model<'a, '_> {
        Model {
            out: &mut *self.out,
            held: self.held.as_deref_mut(),
            whole: self.whole,
        }
    }

    fn sawtooth<E: de::Error>(&mut self, it: &Sawtooth) -> Result<(), E> {
        if it.std_dev.is_some_and(|noise| noise.0 > 0.0) {
            return Err(chance("SawtoothBwConfig with std_dev"));
        }
        let second = Span(1_000_000_000);
        let bottom = it.bottom.unwrap_or(Bandwidth(0.0)).0;
        let top = it.top.unwrap_or(Bandwidth(12e6)).0;
        let interval = it.interval.unwrap_or(second).0;
        let step = it.step.unwrap_or(Span(1_000_000)).0;
        let rise = interval as f64 * it.duty_ratio.unwrap_or(0.5);
        if interval < 1 || step < 1 || !(0.0..=interval as f64).contains(&rise) {
            return Err(E::custom(
                "a sawtooth needs an interval and a step above zero, and a duty_ratio from 0 to 1",
            ));
        }
        let mut left = it.duration.unwrap_or(second).0;
        let mut within = 0_i64;
        while left > 0 {
            let now = within as f64;
            let share = if now < rise {
                now / rise
            } else {
                1.0 - (now - rise) / (interval as f64 - rise).max(1.0)
            };
            let duration = step.min(left);
            self.step(
                Step::Bandwidth((bottom + (top - bottom) * share).max(0.0)),
                duration,
            )?;
            left -= duration;
            within += duration;
            if within >= interval {
                within -= interval;
            }
        }
        Ok(())
    }
}

fn chance<E: de::Error>(what: &str) -> E {
    E::custom(format!(
        "{what} uses netem-trace's random generator: its rates are not in the file"
    ))
}

impl<'de> DeserializeSeed<'de> for Model<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Model<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a model of netem-trace, an object such as {\"StaticBwConfig\": …}")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let Some(name) = map.next_key::<String>()? else {
            return Err(de::Error::custom("an empty object is not a model"));
        };
        match name.as_str() {
            "StaticBwConfig" => {
                let it: StaticBw = map.next_value()?;
                let rate = it.bw.unwrap_or(Bandwidth(12e6)).0;
                self.step(
                    Step::Bandwidth(rate),
                    it.duration.map_or(1_000_000_000, |it| it.0),
                )?;
            }
            "StaticDelayConfig" => {
                let it: StaticDelay = map.next_value()?;
                let delay = it.delay.map_or(10_000_000, |it| it.0);
                self.step(
                    Step::Delay(delay),
                    it.duration.map_or(1_000_000_000, |it| it.0),
                )?;
            }
            "SawtoothBwConfig" => {
                let it: Sawtooth = map.next_value()?;
                self.sawtooth(&it)?;
            }
            "TraceBwConfig" => map.next_value_seed(Samples(self.inner()))?,
            "RepeatedBwPatternConfig" | "RepeatedDelayPatternConfig" => {
                map.next_value_seed(Repeated(self.inner()))?;
            }
            packets
                if ["Loss", "Duplicate", "PerPacket"]
                    .iter()
                    .any(|of| packets.contains(of)) =>
            {
                return Err(de::Error::custom(format!(
                    "{} is of single packets (loss, duplication, delay by packet): the archive has no such series",
                    shown(packets)
                )));
            }
            random if random.starts_with("Normalized") => return Err(chance(random)),
            other => {
                return Err(de::Error::custom(format!(
                    "{} is not a model of bandwidth or delay: those are StaticBwConfig, TraceBwConfig, SawtoothBwConfig, \
                     RepeatedBwPatternConfig, StaticDelayConfig and RepeatedDelayPatternConfig",
                    shown(other)
                )));
            }
        }
        match map.next_key::<String>()? {
            None => Ok(()),
            Some(second) => Err(de::Error::custom(format!(
                "a model has one name, and this one has {} too",
                shown(second)
            ))),
        }
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct StaticBw {
    bw: Option<Bandwidth>,
    duration: Option<Span>,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct StaticDelay {
    delay: Option<Span>,
    duration: Option<Span>,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
#[allow(dead_code)] // bounds of a noise that there is none of
struct Sawtooth {
    bottom: Option<Bandwidth>,
    top: Option<Bandwidth>,
    interval: Option<Span>,
    duty_ratio: Option<f64>,
    duration: Option<Span>,
    step: Option<Span>,
    seed: Option<u64>,
    std_dev: Option<Bandwidth>,
    upper_noise_bound: Option<Bandwidth>,
    lower_noise_bound: Option<Bandwidth>,
}

/// The samples of a `TraceBwConfig`: a list, or an object with it as its `pattern`.
struct Samples<'a, 'b>(Model<'a, 'b>);

impl<'de> DeserializeSeed<'de> for Samples<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Samples<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list such as [[\"100ms\", [\"12Mbps\", \"24Mbps\"]], …]")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Sample(self.0.inner()))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key != "pattern" {
                return Err(de::Error::unknown_field(&key, &["pattern"]));
            }
            map.next_value_seed(Samples(self.0.inner()))?;
        }
        Ok(())
    }
}

/// A sample: a duration, and the rates that last so long each.
struct Sample<'a, 'b>(Model<'a, 'b>);

impl<'de> DeserializeSeed<'de> for Sample<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Sample<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration and its rates, such as [\"100ms\", [\"12Mbps\"]]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Some(each) = list.next_element::<Millis>()? else {
            return Err(de::Error::invalid_length(0, &self));
        };
        if list.next_element_seed(Rates(self.0, each.0))?.is_none() {
            return Err(de::Error::custom(
                "a sample has a duration and then a list of rates",
            ));
        }
        Ok(())
    }
}

/// The rates of a sample, and how long each lasts, ns.
struct Rates<'a, 'b>(Model<'a, 'b>, i64);

impl<'de> DeserializeSeed<'de> for Rates<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Rates<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of rates")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(rate) = list.next_element::<Megabits>()? {
            self.0.step(Step::Bandwidth(rate.0), self.1)?;
        }
        Ok(())
    }
}

/// A pattern with a count: passed on as it is read if it is the whole file, else expanded.
struct Repeated<'a, 'b>(Model<'a, 'b>);

impl<'de> DeserializeSeed<'de> for Repeated<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Repeated<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a pattern and a count")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut model = self.0;
        let mut held = Vec::new();
        let mut count = 0_u64;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "count" => count = map.next_value()?,
                "pattern" => {
                    let inner = Model {
                        out: &mut *model.out,
                        held: (!model.whole).then_some(&mut held),
                        whole: false,
                    };
                    map.next_value_seed(Pattern(inner))?;
                }
                other => return Err(de::Error::unknown_field(other, &["pattern", "count"])),
            }
        }
        if model.whole {
            if count != 1 {
                let turns = if count == 0 {
                    "for ever".into()
                } else {
                    format!("{count} times")
                };
                model.out.notes.push(format!(
                    "the pattern repeats {turns}: one turn was kept, as a replay repeats it"
                ));
            }
            return Ok(());
        }
        if count == 0 {
            return Err(de::Error::custom(
                "a pattern inside another repeats for ever (count 0): what comes after it never would",
            ));
        }
        if held.is_empty() {
            return Ok(());
        }
        if (held.len() as u64).saturating_mul(count) > MOST_STEPS {
            return Err(de::Error::custom(format!(
                "it stands for more than {MOST_STEPS} steps"
            )));
        }
        for _ in 0..count {
            for &(step, duration) in &held {
                model.step(step, duration)?;
            }
        }
        Ok(())
    }
}

/// The models of a pattern.
struct Pattern<'a, 'b>(Model<'a, 'b>);

impl<'de> DeserializeSeed<'de> for Pattern<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Pattern<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of models")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(self.0.inner())?.is_some() {}
        Ok(())
    }
}
