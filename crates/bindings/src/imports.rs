//! The crate `cellbed_traces` for Python.

use std::io;
use std::path::{Path, PathBuf};

use cellbed_traces::{ImportError, Imported, Request, Watched, import};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::trace::{TraceFormatError, open};

#[pyfunction]
#[pyo3(signature = (source, folder, request, progress=None))]
pub fn import_series(
    py: Python<'_>,
    source: PathBuf,
    folder: PathBuf,
    request: &str,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let request = parsed(request)?;
    py.detach(|| {
        let mut raised = None;
        let report = |bytes| {
            report_progress(progress.as_ref(), bytes).map_err(|error| {
                raised = Some(error);
                io::Error::other("it was interrupted")
            })
        };
        let file = open(&source)?;
        let done = import(Watched::new(file, report), &request, &folder);
        match (raised, done) {
            (Some(error), _) => Err(error),
            (None, done) => answer(done, &source),
        }
    })
}

/// Lets Python handle its signals, and reports the number of bytes read since the last call.
fn report_progress(progress: Option<&Py<PyAny>>, bytes: u64) -> PyResult<()> {
    Python::attach(|py| {
        py.check_signals()?;
        match progress {
            Some(progress) => progress.call1(py, (bytes,)).map(drop),
            None => Ok(()),
        }
    })
}

fn parsed(request: &str) -> PyResult<Request> {
    serde_json::from_str(request).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn refused(error: &ImportError, source: &Path) -> PyErr {
    let message = error.in_file(source);
    match error {
        ImportError::Write(_) => PyOSError::new_err(message),
        _ => TraceFormatError::new_err(message),
    }
}

fn answer(done: Result<Imported, ImportError>, source: &Path) -> PyResult<String> {
    let done = done.map_err(|error| refused(&error, source))?;
    serde_json::to_string(&done).map_err(|error| PyValueError::new_err(error.to_string()))
}
