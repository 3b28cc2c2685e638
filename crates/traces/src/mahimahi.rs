//! Mahimahi's traces: one whole number of milliseconds a line, an opportunity each.

use std::io::Read;
use std::path::Path;

use cellbed_link::each_timestamp;

use crate::error::{ImportError, Result};
use crate::series::{Imported, Opportunities, Part};

const NANOS_PER_MILLI: i64 = 1_000_000;

/// Reads a trace like [`cellbed_link::Trace::parse`], but as a stream. Its last timestamp is its duration.
pub fn mahimahi(source: impl Read, part: Part, folder: &Path) -> Result<Imported> {
    let mut series = Opportunities::create(part, folder)?;
    let last = each_timestamp::<ImportError>(source, |millis| {
        series.push(i64::from(millis) * NANOS_PER_MILLI)
    })?;
    Ok(Imported {
        parts: vec![series.finish(i64::from(last) * NANOS_PER_MILLI)?],
        ..Imported::default()
    })
}
