//! Series of the archive as NumPy arrays, and sums over their rows.

use std::path::PathBuf;
use std::sync::Mutex;

use cellbed_traces::{Bursts, Content, Result, SeriesRows, Taken, series_rows};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::imports::refused;
use crate::trace::open;

type Column<'py, T> = Bound<'py, PyArray1<T>>;
type Batches = Box<dyn Iterator<Item = Result<SeriesRows>> + Send>;

/// Rows of a series, a batch after the other. See `_core.pyi`.
#[pyclass(frozen, module = "cellbed._core", name = "SeriesRows")]
pub struct PySeriesRows {
    source: PathBuf,
    batches: Mutex<Batches>,
}

#[pymethods]
impl PySeriesRows {
    #[new]
    #[pyo3(signature = (source, content, threads=1))]
    fn new(py: Python<'_>, source: PathBuf, content: &str, threads: usize) -> PyResult<Self> {
        let content = serde_json::from_value::<Content>(content.into())
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        let rows = py.detach(|| {
            // Python's own error names a file that cannot be opened.
            open(&source)?;
            series_rows(&source, content, threads).map_err(|error| refused(&error, &source))
        })?;
        Ok(Self {
            source,
            batches: Mutex::new(Box::new(rows)),
        })
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<(Column<'py, i64>, Column<'py, f64>)>> {
        let next = py.detach(|| {
            let mut batches = self.batches.lock().unwrap_or_else(|held| held.into_inner());
            batches.next().transpose()
        });
        let batch = next.map_err(|error| refused(&error, &self.source))?;
        Ok(batch.map(|batch| (batch.at_ns.into_pyarray(py), batch.values.into_pyarray(py))))
    }
}

/// Sums over opportunities. See `_core.pyi`.
#[pyclass(module = "cellbed._core", name = "Bursts")]
pub struct PyBursts(Bursts);

#[pymethods]
impl PyBursts {
    #[new]
    fn new(bin_ns: i64, duration_ns: i64, least_ns: i64) -> Self {
        Self(Bursts::new(bin_ns, duration_ns, least_ns))
    }

    #[allow(clippy::type_complexity)]
    fn add<'py>(
        &mut self,
        py: Python<'py>,
        at_ns: PyReadonlyArray1<'py, i64>,
    ) -> PyResult<(
        Column<'py, i64>,
        Column<'py, i64>,
        Column<'py, i64>,
        Column<'py, i64>,
    )> {
        let at_ns = at_ns.as_slice()?;
        let Taken {
            bins,
            counts,
            begins,
            lengths,
        } = py.detach(|| self.0.add(at_ns));
        Ok((
            bins.into_pyarray(py),
            counts.into_pyarray(py),
            begins.into_pyarray(py),
            lengths.into_pyarray(py),
        ))
    }

    fn finish<'py>(&mut self, py: Python<'py>) -> (Column<'py, u64>, Column<'py, u64>) {
        let (sizes, counts) = self.0.finish();
        (sizes.into_pyarray(py), counts.into_pyarray(py))
    }

    #[getter]
    fn ends(&self) -> Option<(i64, i64)> {
        self.0.ends
    }

    #[getter]
    fn longest_ns(&self) -> i64 {
        self.0.longest_ns
    }

    #[getter]
    fn batching<'py>(&self, py: Python<'py>) -> Column<'py, u64> {
        PyArray1::from_slice(py, &self.0.batching)
    }
}
