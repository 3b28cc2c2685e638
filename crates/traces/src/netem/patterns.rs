//! Models of other models, and of samples: read one after the other.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::amounts::{Megabits, Millis};
use super::expansion::{MOST_STEPS, Step};
use super::models::Model;

/// The samples of a `TraceBwConfig`: a list, or an object with it as its `pattern`.
pub(super) struct Samples<'a, 'b>(pub(super) Model<'a, 'b>);

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
pub(super) struct Repeated<'a, 'b>(pub(super) Model<'a, 'b>);

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
