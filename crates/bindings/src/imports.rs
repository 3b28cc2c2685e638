//! The crate `cellbed_traces` for Python.

use std::io;
use std::path::PathBuf;

use cellbed_traces::{ImportError, Request, Watched, import};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use crate::arrivals::invalid;
use crate::link::from_json;
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
    let request: Request = from_json("the request", request)?;
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
        if let Some(error) = raised {
            return Err(error);
        }
        let done = done.map_err(|error| match (error.in_file(&source), error) {
            (message, ImportError::Write(_)) => PyOSError::new_err(message),
            (message, _) => TraceFormatError::new_err(message),
        });
        serde_json::to_string(&done?).map_err(invalid)
    })
}

/// Let Python handle its signals, and report the number of bytes read since the last call.
fn report_progress(progress: Option<&Py<PyAny>>, bytes: u64) -> PyResult<()> {
    Python::attach(|py| {
        py.check_signals()?;
        match progress {
            Some(progress) => progress.call1(py, (bytes,)).map(drop),
            None => Ok(()),
        }
    })
}
