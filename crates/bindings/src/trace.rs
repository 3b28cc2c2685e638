//! Traces, and the files of a CellReplay recording, for Python.

use std::fs::File;
use std::path::{Path, PathBuf};

use cellbed_link::{Compensation, Duration, LightRow, LightRows, TraceError};
use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

create_exception!(
    cellbed._core,
    TraceFormatError,
    PyValueError,
    "A trace that was refused: FILE:LINE: reason."
);

/// Delivery opportunities of a recorded bottleneck. See `parse_trace`.
#[pyclass(frozen, module = "cellbed._core")]
pub struct Trace(cellbed_link::Trace);

#[pyfunction]
pub fn parse_trace(py: Python<'_>, path: PathBuf) -> PyResult<Trace> {
    py.detach(|| {
        let trace = cellbed_link::Trace::parse(open(&path)?);
        Ok(Trace(trace.map_err(|error| refused(&path, &error))?))
    })
}

pub(crate) fn open(path: &Path) -> PyResult<File> {
    File::open(path).map_err(|error| {
        // Python adds the number and the path.
        let reason = error.to_string();
        let reason = reason
            .split(" (os error")
            .next()
            .unwrap_or_default()
            .to_owned();
        PyOSError::new_err((error.raw_os_error(), reason, path.to_owned()))
    })
}

#[pymethods]
impl Trace {
    #[getter]
    fn opportunities(&self) -> u64 {
        self.0.opportunities().0
    }

    #[getter]
    fn duration_ns(&self) -> u64 {
        self.0.duration().as_nanos()
    }

    #[getter]
    fn longest_gap_ns(&self) -> u64 {
        self.0.longest_gap().as_nanos()
    }

    #[getter]
    fn mean_bit_rate(&self) -> f64 {
        self.0.mean_bit_rate().0 as f64
    }

    fn capacity(&self, start_ns: u64, end_ns: u64) -> u64 {
        self.0
            .capacity(Duration::from_nanos(start_ns), Duration::from_nanos(end_ns))
            .0
    }

    fn bins(&self, width_ns: u64) -> PyResult<Vec<u64>> {
        if width_ns == 0 {
            return Err(PyValueError::new_err("bins need a width above 0 ns"));
        }
        Ok(self
            .0
            .bins(Duration::from_nanos(width_ns))
            .map(|bytes| bytes.0)
            .collect())
    }

    fn next_opportunity(&self, at_ns: u64) -> u64 {
        self.0
            .next_opportunity(Duration::from_nanos(at_ns))
            .as_nanos()
    }

    fn __repr__(&self) -> String {
        format!(
            "Trace(opportunities={}, duration_ns={})",
            self.opportunities(),
            self.duration_ns()
        )
    }
}

/// Time, base delay and light opportunities per row, ns.
type Rows = Vec<(u64, u64, Vec<u64>)>;

#[pyfunction]
pub fn parse_light_rows(py: Python<'_>, path: PathBuf) -> PyResult<Rows> {
    py.detach(|| {
        let light = LightRows::parse(open(&path)?).map_err(|error| refused(&path, &error))?;
        let row = |row: &LightRow| {
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

fn refused(path: &Path, error: &TraceError) -> PyErr {
    TraceFormatError::new_err(error.in_file(path.display()))
}
