//! A direction of the path model in Python, over columns of packets.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cellbed_link::{
    Bytes, Change, Direction as Model, Duration, Ecn, Fate, Outcome, StageConfig, Tag, Time,
};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::columns::{Columns, Table};

/// One direction of a link in virtual time. See `cellbed.Link`, which is its face.
#[pyclass(frozen, module = "cellbed._core")]
pub struct Direction {
    /// At rest, as every run begins.
    resting: Model<u64>,
    running: Mutex<Running>,
}

struct Running {
    model: Model<u64>,
    /// Packets that were sent, which is the number of the next one.
    sent: u64,
    /// The latest time that was told, which no later call may come before.
    now: Time,
}

impl Running {
    fn new(model: Model<u64>) -> Self {
        Self {
            model,
            sent: 0,
            now: Time::ZERO,
        }
    }

    /// Sends packets and calls `tell` with all that leaves or is dropped up to the last arrival.
    fn send(&mut self, arrivals: &Arrivals, mut tell: impl FnMut(Outcome<u64>)) {
        for index in 0..arrivals.times.len() {
            let (time, size, tag) = arrivals.packet(index);
            self.model.accept_tagged(time, self.sent, size, tag);
            self.sent += 1;
            self.now = time;
            if index % TURN == TURN - 1 {
                self.poll(time, &mut tell);
            }
        }
        self.poll(self.now, &mut tell);
    }

    fn poll(&mut self, until: Time, tell: &mut impl FnMut(Outcome<u64>)) {
        self.now = self.now.max(until);
        while let Some(outcome) = self.model.poll(self.now) {
            if outcome.fate != Fate::Doubled {
                tell(outcome);
            }
        }
    }

    fn drain(&mut self, mut tell: impl FnMut(Outcome<u64>)) {
        while let Some(event) = self.model.next_event() {
            self.poll(event, &mut tell);
        }
    }
}

/// Packets between two looks at what has left: few, so that what waits there stays in the processor's cache.
const TURN: usize = 64;

/// Columns of packets as they came from Python.
struct Arrivals {
    times: Vec<i64>,
    sizes: Vec<u32>,
    flows: Option<Vec<u64>>,
    ecn: Option<Vec<u8>>,
}

impl Arrivals {
    fn packet(&self, index: usize) -> (Time, Bytes, Tag) {
        let column = |column: &Option<Vec<u64>>| column.as_ref().map_or(0, |it| it[index]);
        let ecn = self.ecn.as_ref().map_or(0, |it| it[index]);
        let tag = Tag {
            flow: column(&self.flows),
            ecn: Ecn::of_traffic_class(ecn),
        };
        let time = Time::from_nanos(self.times[index].unsigned_abs());
        (time, Bytes(u64::from(self.sizes[index])), tag)
    }

    /// Refuses what comes before `now` or out of order.
    fn check(&self, now: Time) -> PyResult<()> {
        let length = self.times.len();
        let lengths = [
            ("sizes", Some(self.sizes.len())),
            ("flows", self.flows.as_ref().map(Vec::len)),
            ("ecn", self.ecn.as_ref().map(Vec::len)),
        ];
        for (name, other) in lengths {
            if other.is_some_and(|other| other != length) {
                let other = other.unwrap_or(0);
                return refuse(format!(
                    "there are {length} times, but {name} has {other}: give one for each packet"
                ));
            }
        }
        let mut before = now.as_nanos() as i64;
        for (index, &time) in self.times.iter().enumerate() {
            if time < before {
                return refuse(match (index, time < 0) {
                    (_, true) => format!(
                        "times[{index}] is {time} ns: times count from the start of the link, from 0 on"
                    ),
                    (0, false) => format!(
                        "times[0] is {time} ns, but the link has been brought to {before} ns already"
                    ),
                    _ => format!(
                        "times[{index}] is {time} ns, before the {before} ns of the packet before it: sort the \
                         packets by time"
                    ),
                });
            }
            before = time;
        }
        if let Some(index) = self.sizes.iter().position(|&size| size == 0) {
            return refuse(format!(
                "sizes[{index}] is 0: a packet has at least one byte"
            ));
        }
        let wrong = |ecn: &Vec<u8>| ecn.iter().position(|&field| field > 3);
        if let Some(index) = self.ecn.as_ref().and_then(wrong) {
            return refuse(format!(
                "ecn[{index}] is above 3: the ECN field has two bits"
            ));
        }
        Ok(())
    }
}

fn refuse<T>(message: String) -> PyResult<T> {
    Err(PyValueError::new_err(message))
}

#[pymethods]
impl Direction {
    #[new]
    fn new(py: Python<'_>, stages: &str, changes: Vec<(u64, usize, String)>) -> PyResult<Self> {
        py.detach(|| {
            let mut later = Vec::new();
            for (at_ns, stage, to) in changes {
                later.push(Change {
                    at: Duration::from_nanos(at_ns),
                    stage,
                    config: parse_one(&to)?,
                });
            }
            let resting = Model::new(parse(stages)?, Time::ZERO)
                .with_changes(later)
                .map_err(|error| PyValueError::new_err(error.to_string()))?;
            let running = Mutex::new(Running::new(resting.clone()));
            Ok(Self { resting, running })
        })
    }

    #[pyo3(signature = (times, sizes, flows=None, ecn=None))]
    fn send<'py>(
        &self,
        py: Python<'py>,
        times: PyBuffer<i64>,
        sizes: PyBuffer<u32>,
        flows: Option<PyBuffer<u64>>,
        ecn: Option<PyBuffer<u8>>,
    ) -> PyResult<Table<'py>> {
        let arrivals = arrivals(py, &times, &sizes, flows, ecn)?;
        let columns = py.detach(|| {
            let mut running = self.running();
            arrivals.check(running.now)?;
            let mut columns = Columns::with_capacity(arrivals.times.len());
            running.send(&arrivals, |outcome| columns.push(&outcome));
            Ok::<_, PyErr>(columns)
        })?;
        columns.into_table(py)
    }

    fn advance<'py>(&self, py: Python<'py>, until_ns: u64) -> PyResult<Table<'py>> {
        let columns = py.detach(|| {
            let mut running = self.running();
            let until = Time::from_nanos(until_ns);
            if until < running.now {
                let now = running.now.as_nanos();
                return refuse(format!(
                    "{until_ns} ns is past: the link has been brought to {now} ns already"
                ));
            }
            let mut columns = Columns::with_capacity(0);
            running.poll(until, &mut |outcome| columns.push(&outcome));
            Ok(columns)
        })?;
        columns.into_table(py)
    }

    fn drain<'py>(&self, py: Python<'py>) -> PyResult<Table<'py>> {
        let columns = py.detach(|| {
            let mut columns = Columns::with_capacity(0);
            self.running().drain(|outcome| columns.push(&outcome));
            columns
        });
        columns.into_table(py)
    }

    #[pyo3(signature = (times, sizes, flows=None, ecn=None))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        times: PyBuffer<i64>,
        sizes: PyBuffer<u32>,
        flows: Option<PyBuffer<u64>>,
        ecn: Option<PyBuffer<u8>>,
    ) -> PyResult<Table<'py>> {
        let arrivals = arrivals(py, &times, &sizes, flows, ecn)?;
        let columns = py.detach(|| {
            arrivals.check(Time::ZERO)?;
            let mut running = Running::new(self.resting.clone());
            let mut columns = Columns::held(&arrivals.times, &arrivals.sizes);
            running.send(&arrivals, |outcome| columns.place(&outcome));
            running.drain(|outcome| columns.place(&outcome));
            Ok::<_, PyErr>(columns)
        })?;
        columns.into_table(py)
    }

    fn change(&self, py: Python<'_>, at_ns: u64, stage: usize, to: &str) -> PyResult<()> {
        py.detach(|| {
            let to = parse_one(to)?;
            let mut running = self.running();
            let at = Time::from_nanos(at_ns);
            if at < running.now {
                let now = running.now.as_nanos();
                return refuse(format!(
                    "{at_ns} ns is past: the link has been brought to {now} ns already"
                ));
            }
            running
                .model
                .change(at, stage, to)
                .map_err(|error| PyValueError::new_err(error.to_string()))
        })
    }

    #[getter]
    fn sent(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.running().sent)
    }

    #[getter]
    fn now_ns(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.running().now.as_nanos())
    }

    #[getter]
    fn held(&self, py: Python<'_>) -> (u64, u64) {
        let level = py.detach(|| self.running().model.held());
        (level.packets.0, level.bytes.0)
    }

    #[getter]
    fn queue(&self, py: Python<'_>) -> (u64, u64) {
        let level = py.detach(|| self.running().model.queue());
        (level.packets.0, level.bytes.0)
    }
}

impl Direction {
    fn running(&self) -> MutexGuard<'_, Running> {
        // Nothing in it can be left half done by a panic that matters more than the panic itself.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn parse(stages: &str) -> PyResult<Vec<StageConfig>> {
    cellbed_emulator::parse_stages(stages).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn parse_one(stage: &str) -> PyResult<StageConfig> {
    let mut stages = parse(&format!("[{stage}]"))?;
    match (stages.pop(), stages.is_empty()) {
        (Some(stage), true) => Ok(stage),
        _ => refuse("a change is to one stage".to_owned()),
    }
}

fn arrivals(
    py: Python<'_>,
    times: &PyBuffer<i64>,
    sizes: &PyBuffer<u32>,
    flows: Option<PyBuffer<u64>>,
    ecn: Option<PyBuffer<u8>>,
) -> PyResult<Arrivals> {
    Ok(Arrivals {
        times: times.to_vec(py)?,
        sizes: sizes.to_vec(py)?,
        flows: flows.map(|it| it.to_vec(py)).transpose()?,
        ecn: ecn.map(|it| it.to_vec(py)).transpose()?,
    })
}
