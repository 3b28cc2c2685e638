//! `cellbed_traces` in Python.

use std::io;
use std::path::{Path, PathBuf};

use cellbed_traces::{
    Folder, ImportError, Imported, Part, Place, Rate, Request, RoundTrip, Row, Table, Watched,
    import,
};
use numpy::PyReadonlyArray1;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::trace::{TraceFormatError, open};

#[pyfunction]
#[pyo3(signature = (source, folder, request, tell=None))]
pub fn import_series(
    py: Python<'_>,
    source: PathBuf,
    folder: PathBuf,
    request: &str,
    tell: Option<Py<PyAny>>,
) -> PyResult<String> {
    let request = parsed(request)?;
    py.detach(|| {
        let mut raised = None;
        let told = |bytes| {
            heard(tell.as_ref(), bytes).map_err(|error| {
                raised = Some(error);
                io::Error::other("it was interrupted")
            })
        };
        let file = open(&source)?;
        let target = Folder(&folder);
        let done = import(Watched::new(file, told), &request, &target);
        match (raised, done) {
            (Some(error), _) => Err(error),
            (None, done) => answer(done, &source),
        }
    })
}

/// Lets Python handle its signals, and reports the progress of reading.
fn heard(tell: Option<&Py<PyAny>>, bytes: u64) -> PyResult<()> {
    Python::attach(|py| {
        py.check_signals()?;
        match tell {
            Some(tell) => tell.call1(py, (bytes,)).map(drop),
            None => Ok(()),
        }
    })
}

fn parsed(request: &str) -> PyResult<Request> {
    serde_json::from_str(request).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn refused(error: &ImportError, source: &Path) -> PyErr {
    let said = error.in_file(source);
    match error {
        ImportError::Write(_) => PyOSError::new_err(said),
        _ => TraceFormatError::new_err(said),
    }
}

fn answer(done: Result<Imported, ImportError>, source: &Path) -> PyResult<String> {
    let done = done.map_err(|error| refused(&error, source))?;
    serde_json::to_string(&done).map_err(|error| PyValueError::new_err(error.to_string()))
}

#[pyfunction]
pub fn write_rates(
    folder: PathBuf,
    part: &str,
    duration_ns: i64,
    at_ns: PyReadonlyArray1<'_, i64>,
    bit_s: PyReadonlyArray1<'_, f64>,
) -> PyResult<()> {
    let rows = at_ns.as_slice()?.iter().zip(bit_s.as_slice()?);
    let rows = rows.map(|(&at_ns, &bit_s)| Rate { at_ns, bit_s });
    let part = match part {
        "uplink" => Part::Uplink,
        _ => Part::Downlink,
    };
    written(&folder, part, duration_ns, rows)
}

#[pyfunction]
pub fn write_round_trips(
    folder: PathBuf,
    duration_ns: i64,
    at_ns: PyReadonlyArray1<'_, i64>,
    round_trip_ns: PyReadonlyArray1<'_, i64>,
) -> PyResult<()> {
    let rows = at_ns.as_slice()?.iter().zip(round_trip_ns.as_slice()?);
    let rows = rows.map(|(&at_ns, &trip)| RoundTrip {
        at_ns,
        round_trip_ns: (trip >= 0).then_some(trip),
    });
    written(&folder, Part::RoundTrip, duration_ns, rows)
}

fn written<R: Row>(
    folder: &Path,
    part: Part,
    duration_ns: i64,
    rows: impl Iterator<Item = R>,
) -> PyResult<()> {
    let write = || {
        let mut table = Table::new(part, &Folder(folder))?;
        for (row, number) in rows.zip(0..) {
            table.push(row, Place::Row(number))?;
        }
        table.finish(duration_ns)
    };
    write().map(drop).map_err(|error| match error {
        ImportError::Malformed { place, reason } => {
            let row = match place {
                Place::Row(number) => Some(number),
                _ => None,
            };
            PyValueError::new_err((row, reason))
        }
        error => PyOSError::new_err(error.to_string()),
    })
}
