//! A network outside of the model: an object in Python that carries packets, for example by another simulator.

use std::sync::{Arc, Mutex, PoisonError};

use cellbed_calibration::workload::{AdaptiveSaturator, QueueKeeper};
use cellbed_link::{BitRate, Bytes, Duration, Time};
use cellbed_virtual::{Network, Outside};
use pyo3::prelude::*;

/// A Python object with the methods of `cellbed.path.Outside`.
///
/// After an exception, packets no longer depart; [`check`](Self::check) raises the exception when the call that runs
/// the network returns.
#[derive(Clone, Debug)]
pub struct OutsideObject {
    object: Arc<Py<PyAny>>,
    failed: Arc<Mutex<Option<PyErr>>>,
}

impl OutsideObject {
    pub fn new(object: Py<PyAny>) -> Self {
        Self {
            object: Arc::new(object),
            failed: Arc::default(),
        }
    }

    /// Add the object, if there is one, to a network.
    pub fn join(outside: Option<&Self>, network: Network) -> Network {
        match outside {
            Some(outside) => network.with_outside(Arc::new(Mutex::new(outside.clone()))),
            None => network,
        }
    }

    /// Return the first exception of the object since the last call.
    pub fn check(outside: Option<&Self>) -> PyResult<()> {
        let failed = outside.and_then(|outside| {
            let mut failed = outside.failed.lock();
            failed.as_mut().map_or_else(|_| None, |it| it.take())
        });
        failed.map_or(Ok(()), Err)
    }

    fn call<T>(&self, work: impl FnOnce(Python<'_>, &Py<PyAny>) -> PyResult<T>) -> Option<T> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.is_some() {
            return None;
        }
        match Python::attach(|py| work(py, &self.object)) {
            Ok(found) => Some(found),
            Err(error) => {
                *failed = Some(error);
                None
            }
        }
    }
}

impl Outside for OutsideObject {
    fn send(&mut self, direction: usize, at: Time, number: u64, size: Bytes) {
        let packet = (direction, at.as_nanos(), number, size.0);
        self.call(|py, object| object.call_method1(py, "send", packet));
    }

    fn advance(&mut self, until: Time) -> (Time, Vec<u64>) {
        let found = self.call(|py, object| {
            let found = object.call_method1(py, "advance", (until.as_nanos(),))?;
            found.extract::<(u64, Vec<u64>)>(py)
        });
        match found {
            Some((now, numbers)) => (Time::from_nanos(now).min(until), numbers),
            None => (until, Vec::new()),
        }
    }
}

/// An adaptive saturation of one direction, for a network outside of the model.
#[pyclass(module = "cellbed._core")]
pub struct Saturator(AdaptiveSaturator);

#[pymethods]
impl Saturator {
    #[new]
    fn new(bytes: u16, delays_ns: (u64, u64), most_bps: u64, span_ns: u64) -> Self {
        let [least, most, span] = [delays_ns.0, delays_ns.1, span_ns].map(Duration::from_nanos);
        let keeper = QueueKeeper::new(least, most, bytes, BitRate(most_bps), Time::ZERO);
        Self(AdaptiveSaturator::new(
            keeper,
            bytes,
            Time::ZERO,
            Time::ZERO + span,
        ))
    }

    /// Return the send times of the packets before `until_ns`, ns.
    fn send(&mut self, until_ns: u64) -> Vec<u64> {
        let mut sent = Vec::new();
        while let Some(now) = self.0.next_event().filter(|it| it.as_nanos() < until_ns) {
            while self.0.emit(now).is_some() {
                sent.push(now.as_nanos());
            }
        }
        sent
    }

    /// Report arrivals at `now_ns`: index, send time and arrival of each packet.
    fn arrived(&mut self, now_ns: u64, packets: Vec<(u32, i64, i64)>) {
        for (index, sent_ns, arrived_ns) in packets {
            let now = Time::from_nanos(now_ns);
            self.0.arrived(now, index, sent_ns, arrived_ns);
        }
    }
}
