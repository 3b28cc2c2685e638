//! The files of a CellReplay recording in Python.

use std::path::PathBuf;

use cellbed_link::{Compensation, LightRows, TraceError};
use pyo3::prelude::*;

use crate::trace::{TraceFormatError, open};

/// Time, base delay and light opportunities of each row, ns.
type Rows = Vec<(u64, u64, Vec<u64>)>;

#[pyfunction]
pub fn parse_light_rows(py: Python<'_>, path: PathBuf) -> PyResult<Rows> {
    py.detach(|| {
        let light = LightRows::parse(open(&path)?).map_err(|error| refused(&path, &error))?;
        let row = |row: &cellbed_link::LightRow| {
            let offsets = row.opportunities.iter().map(|offset| offset.as_nanos());
            (
                row.time.as_nanos(),
                row.base_delay.as_nanos(),
                offsets.collect(),
            )
        };
        Ok(light.rows().iter().map(row).collect())
    })
}

#[pyfunction]
pub fn parse_latency_offsets(py: Python<'_>, path: PathBuf) -> PyResult<Vec<(u64, i64)>> {
    py.detach(|| {
        let offsets = Compensation::parse(open(&path)?).map_err(|error| refused(&path, &error))?;
        let points = offsets.points();
        Ok(points
            .map(|(size, shift)| (size.0, shift.as_nanos()))
            .collect())
    })
}

fn refused(path: &std::path::Path, error: &TraceError) -> PyErr {
    TraceFormatError::new_err(error.in_file(path.display()))
}
