//! Rates and spans as netem-trace writes them.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use crate::error::shown;
use crate::quantity::{rate_unit, span_unit, sum};

/// bit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bandwidth(pub f64);

/// ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span(pub i64);

/// Plain numbers in a `TraceBwConfig`: Mbit/s and ms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Megabits(pub f64);
/// See [`Megabits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Millis(pub i64);

/// The longest plausible span, ns: a hundred years.
const LONGEST_NS: f64 = 3.16e18;

fn span<E: de::Error>(ns: f64) -> Result<i64, E> {
    if (0.0..LONGEST_NS).contains(&ns) {
        return Ok(ns.round() as i64);
    }
    Err(E::custom(format!("{} s is not a duration", ns / 1e9)))
}

fn bandwidth<E: de::Error>(bit_s: f64) -> Result<f64, E> {
    if bit_s.is_finite() && bit_s >= 0.0 {
        return Ok(bit_s);
    }
    Err(E::custom(format!("{bit_s} bit/s is not a bandwidth")))
}

/// Reads an amount as text with units, an object of two numbers, or, where `number` allows it, a bare number.
struct Amount {
    what: &'static str,
    unit: fn(&str) -> Option<f64>,
    keys: [(&'static str, f64); 2],
    number: Option<f64>,
}

const BANDWIDTH: Amount = Amount {
    what: "a bandwidth such as \"12Mbps\" or {\"gbps\":0,\"bps\":12000000}",
    unit: rate_unit,
    keys: [("gbps", 1e9), ("bps", 1.0)],
    number: None,
};
const SPAN: Amount = Amount {
    what: "a duration such as \"1s\" or {\"secs\":1,\"nanos\":0}",
    unit: span_unit,
    keys: [("secs", 1e9), ("nanos", 1.0)],
    number: None,
};

impl<'de> Visitor<'de> for Amount {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<f64, E> {
        sum(text, self.unit)
            .ok_or_else(|| E::custom(format!("{} is not {}", shown(text), self.what)))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<f64, E> {
        match self.number {
            Some(unit) => Ok(number * unit),
            None => Err(E::invalid_type(de::Unexpected::Float(number), &self)),
        }
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<f64, E> {
        self.visit_f64(number as f64)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<f64, E> {
        self.visit_f64(number as f64)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<f64, A::Error> {
        let mut total = 0.0;
        while let Some(key) = map.next_key::<String>()? {
            let Some((_, unit)) = self.keys.iter().find(|it| it.0 == key) else {
                return Err(de::Error::custom(format!(
                    "{} is not a part of {}",
                    shown(key),
                    self.what
                )));
            };
            total += map.next_value::<u64>()? as f64 * unit;
        }
        Ok(total)
    }
}

impl<'de> Deserialize<'de> for Bandwidth {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(bandwidth(from.deserialize_any(BANDWIDTH)?)?))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(span(from.deserialize_any(SPAN)?)?))
    }
}

impl<'de> Deserialize<'de> for Megabits {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let amount = Amount {
            number: Some(1e6),
            ..BANDWIDTH
        };
        Ok(Self(bandwidth(from.deserialize_any(amount)?)?))
    }
}

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let amount = Amount {
            number: Some(1e6),
            ..SPAN
        };
        Ok(Self(span(from.deserialize_any(amount)?)?))
    }
}
