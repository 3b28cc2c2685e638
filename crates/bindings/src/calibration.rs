//! Calibration: of links in virtual time, and of live networks.

use std::net::ToSocketAddrs;
use std::path::PathBuf;

use cellbed_link::Seed;
use cellbed_recorder::calibration::{Calibration, Calibrator};
use cellbed_recorder::record::{Access, Notice, Recorder};
use cellbed_recorder::secure::Secret;
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
    server: &str,
    secret_file: PathBuf,
    interface: Option<String>,
    seed: u64,
    tell: Py<PyAny>,
) -> PyResult<String> {
    py.detach(|| {
        let address = server
            .to_socket_addrs()
            .ok()
            .and_then(|mut addresses| addresses.next())
            .ok_or_else(|| refused(format!("{server}: no such host; write HOST:PORT")))?;
        let access = Access {
            server: address,
            secret: Secret::read(&secret_file).map_err(refused)?,
            first: interface,
            second: None,
        };
        let mut told = Ok(());
        let mut watch = |notice: Notice<'_>| {
            let (words, remaining) = match notice {
                Notice::Calibrating(purpose, remaining) => {
                    (purpose.to_string(), Some(remaining.as_secs_f64()))
                }
                Notice::Silent => ("the server is silent".to_owned(), None),
                Notice::Resumed => ("the server answers again".to_owned(), None),
                Notice::Warning(words) => (words.to_owned(), None),
                Notice::Connected(_) | Notice::Snapshot(_) | Notice::Stopping => return,
            };
            if told.is_ok() {
                told = Python::attach(|py| tell.call1(py, (words, remaining)).map(drop));
            }
        };
        let result = Recorder::connect(access)
            .and_then(|mut recorder| recorder.calibrate(Calibrator::new(Seed(seed)), &mut watch));
        told?;
        match result {
            Ok(calibration) => written(&calibration),
            Err(cellbed_recorder::Error::Interrupted) => Err(PyKeyboardInterrupt::new_err(())),
            Err(error) => Err(refused(error)),
        }
    })
}

fn refused(error: impl ToString) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn written(calibration: &Calibration) -> PyResult<String> {
    serde_json::to_string(calibration).map_err(refused)
}
