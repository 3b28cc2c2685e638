//! Mahimahi's traces: one whole number of milliseconds a line, an opportunity each.

use std::io::Read;

use cellbed_link::each_timestamp;

use crate::error::{ImportError, Place, Result};
use crate::series::{Opportunity, Table};
use crate::target::{Imported, Part, Target};

const NANOS_PER_MILLI: i64 = 1_000_000;

/// Reads a trace like [`cellbed_link::Trace::parse`], but as a stream. Its last timestamp is its duration.
pub fn mahimahi(source: impl Read, part: Part, target: &impl Target) -> Result<Imported> {
    let mut table = Table::<Opportunity, _>::new(part, target)?;
    let last = each_timestamp::<ImportError>(source, |millis| {
        table.push(
            Opportunity(i64::from(millis) * NANOS_PER_MILLI),
            Place::Whole,
        )
    })?;
    Ok(Imported {
        parts: vec![table.finish(i64::from(last) * NANOS_PER_MILLI)?],
        ..Imported::default()
    })
}
