//! Mahimahi's traces: each line is an opportunity, in whole milliseconds.

use std::io::Read;
use std::path::Path;

use cellbed_link::{TraceError, each_timestamp};

use crate::error::{ImportError, LeftOut, Result};
use crate::series::{Imported, Opportunities, Part};

const NANOS_PER_MILLI: i64 = 1_000_000;

/// Read a trace as a stream. Its last timestamp is its duration. Lines that [`cellbed_link::Trace::parse`] refuses are
/// left out, if fewer than half of all. Of two in the wrong order, the later is left out, unless it fits the line
/// before both.
pub fn mahimahi(source: impl Read, part: Part, folder: &Path) -> Result<Imported> {
    let mut series = Opportunities::create(part, folder)?;
    let mut left_out = LeftOut::default();
    let (mut last, mut pending, mut read) = (0, None, 0);
    each_timestamp::<ImportError>(source, |number, found| {
        read += 1;
        let millis = match found {
            Ok(millis) => millis,
            Err(reason) => {
                left_out.add(format_args!("line {number}"), &reason);
                return Ok(());
            }
        };
        match pending.replace((number, millis)) {
            Some((line, before)) if (last..before).contains(&millis) => {
                let reason = format!("{before} ms comes before {millis} ms");
                left_out.add(format_args!("line {line}"), &reason);
            }
            Some(kept) if millis < kept.1 => {
                let reason = format!("{millis} ms comes after {} ms", kept.1);
                left_out.add(format_args!("line {number}"), &reason);
                pending = Some(kept);
            }
            Some((_, before)) => {
                series.push(i64::from(before) * NANOS_PER_MILLI)?;
                last = before;
            }
            None => {}
        }
        Ok(())
    })?;
    if left_out.count > 0 && 2 * left_out.count >= read {
        return Err(TraceError::whole(left_out.first).into());
    }
    let end_ns = pending.map_or(0, |(_, millis)| i64::from(millis) * NANOS_PER_MILLI);
    if pending.is_some() {
        series.push(end_ns)?;
    }
    Ok(Imported {
        parts: vec![series.finish(end_ns)?],
        notes: left_out.note("line is", "lines are").into_iter().collect(),
        ..Imported::default()
    })
}
