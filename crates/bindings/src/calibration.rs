//! Calibration: of links in virtual time, and of live networks.

use std::path::PathBuf;

use cellbed_link::Seed;
use cellbed_recorder::Error;
use cellbed_recorder::calibration::{Calibration, Calibrator};
use cellbed_recorder::virtual_network::VirtualNetwork;
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;

use crate::link::parse;

#[pyfunction]
pub fn calibrate_virtually(
    py: Python<'_>,
    uplink: &str,
    downlink: &str,
    seed: u64,
) -> PyResult<String> {
    py.detach(|| {
        let mut network = VirtualNetwork::new(parse(uplink)?, parse(downlink)?);
        written(
            &network
                .calibrate(Calibrator::new(Seed(seed)))
                .map_err(refused)?,
        )
    })
}

#[pyfunction]
pub fn calibrate(
    py: Python<'_>,
    server: String,
    secret: PathBuf,
    interface: Option<String>,
    seed: u64,
) -> PyResult<String> {
    py.detach(
        || match cellbed_recorder::command::calibrated(server, secret, interface, seed) {
            Ok(calibration) => written(&calibration),
            Err(Error::Interrupted) => Err(PyKeyboardInterrupt::new_err(())),
            Err(error) => Err(refused(error)),
        },
    )
}

fn refused(error: impl ToString) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn written(calibration: &Calibration) -> PyResult<String> {
    serde_json::to_string(calibration).map_err(refused)
}
