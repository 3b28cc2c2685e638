//! `cellbed_traces` in Python.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use cellbed_traces::columns::Chunks;
use cellbed_traces::{Folder, ImportError, Imported, Request, Watched, import};
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
        let watched = Watched::new(open(&source)?, |bytes| {
            heard(tell.as_ref(), bytes).map_err(|error| {
                raised = Some(error);
                io::Error::other("it was interrupted")
            })
        });
        let done = import(watched, &request, &Folder(&folder));
        match (raised, done) {
            (Some(error), _) => Err(error),
            (None, done) => answer(done, &source),
        }
    })
}

/// Lets Python handle its signals, and tells it how far the reading is.
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

fn answer(done: Result<Imported, ImportError>, source: &std::path::Path) -> PyResult<String> {
    let done = done.map_err(|error| match &error {
        ImportError::Write(_) => PyOSError::new_err(error.in_file(source)),
        _ => TraceFormatError::new_err(error.in_file(source)),
    })?;
    serde_json::to_string(&done).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Rows of a table on their way to be series. See `_core.pyi`.
#[pyclass(module = "cellbed._core")]
pub struct SeriesWriter {
    source: PathBuf,
    chunks: Option<Chunks<File>>,
}

#[pymethods]
impl SeriesWriter {
    #[new]
    fn new(source: PathBuf, folder: PathBuf, request: &str) -> PyResult<Self> {
        let Request::Columns(request) = parsed(request)? else {
            return Err(PyValueError::new_err(
                "a table is written by a request of format columns",
            ));
        };
        let chunks = Chunks::new(request, &Folder(&folder));
        let chunks = chunks.map_err(|error| PyOSError::new_err(error.in_file(&source)))?;
        let chunks = Some(chunks);
        Ok(Self { source, chunks })
    }

    fn extend(
        &mut self,
        py: Python<'_>,
        at_ns: PyReadonlyArray1<'_, i64>,
        values: Vec<PyReadonlyArray1<'_, f64>>,
    ) -> PyResult<()> {
        let at_ns = at_ns.as_slice()?;
        let values: Vec<&[f64]> = values
            .iter()
            .map(|it| it.as_slice())
            .collect::<Result<_, _>>()?;
        if values.iter().any(|it| it.len() != at_ns.len()) {
            return Err(PyValueError::new_err("columns have to be equally long"));
        }
        let (chunks, source) = (self.chunks.as_mut(), &self.source);
        let Some(chunks) = chunks else {
            return Err(PyValueError::new_err("it is finished"));
        };
        py.detach(|| {
            for (row, at_ns) in at_ns.iter().enumerate() {
                chunks.push(*at_ns, values.iter().map(|column| column[row]))?;
            }
            Ok(())
        })
        .map_err(|error: ImportError| TraceFormatError::new_err(error.in_file(source)))
    }

    fn finish(&mut self) -> PyResult<String> {
        let Some(chunks) = self.chunks.take() else {
            return Err(PyValueError::new_err("it is finished"));
        };
        answer(chunks.finish(), &self.source)
    }
}
