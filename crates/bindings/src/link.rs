//! A direction of the path model for Python, on packet columns.

use std::fmt::Display;
use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cellbed_link::language::{LanguageError, Reader};
use cellbed_link::{
    Change, Direction as Model, DirectionConfig, Duration, Fate, Outcome, StageConfig, Time,
};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::arrivals::{Arrays, Arrivals, invalid, refuse, slice};
use crate::columns::{Columns, Table};

/// Return the schema of stages by place (`cellbed_link::schema`), in JSON.
#[pyfunction]
pub fn stage_schema() -> &'static str {
    cellbed_link::schema::STAGES
}

/// One direction of a link in virtual time, for the Python class `cellbed.Link`.
#[pyclass(frozen, module = "cellbed._core")]
pub struct Direction {
    /// At rest: the initial state of every run.
    resting: Model<u64>,
    running: Mutex<Running>,
}

struct Running {
    model: Model<u64>,
    /// Number of packets sent so far, i.e. the number of the next one.
    sent: u64,
    /// The current time; later calls must not precede it.
    now: Time,
}

/// Number of packets between two polls of departures: small, so that departures stay in the processor's cache.
const TURN: u64 = 64;

impl Running {
    fn new(model: Model<u64>) -> Self {
        Self {
            model,
            sent: 0,
            now: Time::ZERO,
        }
    }

    /// Send packets and call `record` with all that leave or are dropped by the last arrival.
    ///
    /// awake: times, in order, at which the device of a radio link has data in its other direction.
    fn send(
        &mut self,
        arrivals: Arrivals<'_>,
        awake: &[i64],
        mut record: impl FnMut(Outcome<u64>),
    ) {
        let mut awake = awake
            .iter()
            .map(|&at| Time::from_nanos(at.max(0) as u64))
            .peekable();
        for (time, size, tag) in arrivals.packets() {
            while let Some(at) = awake.next_if(|&at| at <= time) {
                self.model.rouse(at, Time::ZERO);
            }
            self.model.accept_tagged(time, self.sent, size, tag);
            self.sent += 1;
            self.now = time;
            if self.sent.is_multiple_of(TURN) {
                self.poll(time, &mut record);
            }
        }
        self.poll(self.now, &mut record);
    }

    fn poll(&mut self, until: Time, record: &mut impl FnMut(Outcome<u64>)) {
        self.now = self.now.max(until);
        while let Some(outcome) = self.model.poll(self.now) {
            if outcome.fate != Fate::Doubled {
                record(outcome);
            }
        }
    }

    fn drain(&mut self, mut record: impl FnMut(Outcome<u64>)) {
        while let Some(event) = self.model.next_event() {
            self.poll(event, &mut record);
        }
    }

    fn refuse_past(&self, at: Time) -> PyResult<()> {
        if at < self.now {
            let (at, now) = (at.as_nanos(), self.now.as_nanos());
            return refuse(format!(
                "{at} ns is past: the link has been brought to {now} ns already"
            ));
        }
        Ok(())
    }
}

#[pymethods]
impl Direction {
    #[new]
    fn new(py: Python<'_>, stages: &str, changes: Vec<LaterStage>) -> PyResult<Self> {
        py.detach(|| {
            let DirectionConfig {
                stages, changes, ..
            } = parse_direction(stages, changes)?;
            let resting = Model::new(stages, Time::ZERO).with_changes(changes);
            let resting = resting.map_err(invalid)?;
            let running = Mutex::new(Running::new(resting.clone()));
            Ok(Self { resting, running })
        })
    }

    #[pyo3(signature = (arrays, awake=None))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        arrays: Arrays<'py>,
        awake: Option<PyReadonlyArray1<'py, i64>>,
    ) -> PyResult<Table<'py>> {
        let arrivals = Arrivals::of(&arrays)?;
        let awake = awake.as_ref().map_or(Ok(&[][..]), slice)?;
        let run = || {
            arrivals.check(Time::ZERO)?;
            let mut running = Running::new(self.resting.clone());
            let mut columns = Columns::held(arrivals.times, arrivals.sizes);
            running.send(arrivals, awake, |outcome| columns.place(&outcome));
            running.drain(|outcome| columns.place(&outcome));
            Ok::<_, PyErr>(columns)
        };
        Ok(py.detach(run)?.into_table(py))
    }

    fn send<'py>(&self, py: Python<'py>, arrays: Arrays<'py>) -> PyResult<Table<'py>> {
        let arrivals = Arrivals::of(&arrays)?;
        self.collect(py, |running, columns| {
            arrivals.check(running.now)?;
            running.send(arrivals, &[], |outcome| columns.push(&outcome));
            Ok(())
        })
    }

    fn advance<'py>(&self, py: Python<'py>, until_ns: u64) -> PyResult<Table<'py>> {
        let until = Time::from_nanos(until_ns);
        self.collect(py, |running, columns| {
            running.refuse_past(until)?;
            running.poll(until, &mut |outcome| columns.push(&outcome));
            Ok(())
        })
    }

    fn drain<'py>(&self, py: Python<'py>) -> PyResult<Table<'py>> {
        self.collect(py, |running, columns| {
            running.drain(|outcome| columns.push(&outcome));
            Ok(())
        })
    }

    fn change(&self, py: Python<'_>, at_ns: u64, stage: usize, to: &str) -> PyResult<()> {
        let at = Time::from_nanos(at_ns);
        py.detach(|| {
            let to = parse_one(to)?;
            let mut running = self.running();
            running.refuse_past(at)?;
            running.model.change(at, stage, to).map_err(invalid)
        })
    }

    #[getter]
    fn now_ns(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.running().now.as_nanos())
    }

    #[getter]
    fn held(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.running().model.held().packets.0)
    }

    #[getter]
    fn queue(&self, py: Python<'_>) -> (u64, u64) {
        let level = py.detach(|| self.running().model.queue());
        (level.packets.0, level.bytes.0)
    }
}

impl Direction {
    /// Return the running link, for this thread alone. Call it without the interpreter, which the current holder may
    /// need to release the link.
    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Return the packets that leave during `work`.
    fn collect<'py>(
        &self,
        py: Python<'py>,
        work: impl FnOnce(&mut Running, &mut Columns) -> PyResult<()> + Send,
    ) -> PyResult<Table<'py>> {
        let columns = py.detach(|| {
            let mut columns = Columns::default();
            work(&mut self.running(), &mut columns)?;
            Ok::<_, PyErr>(columns)
        })?;
        Ok(columns.into_table(py))
    }
}

/// Time in ns, number of a stage, and its new configuration.
pub type LaterStage = (u64, usize, String);

/// Parse the stages of a direction and their changes.
pub fn parse_direction(stages: &str, changes: Vec<LaterStage>) -> PyResult<DirectionConfig> {
    let change = |(at_ns, stage, to): LaterStage| {
        Ok(Change {
            at: Duration::from_nanos(at_ns),
            stage,
            config: parse_one(&to)?,
        })
    };
    Ok(DirectionConfig {
        stages: parse(stages)?,
        changes: changes.into_iter().map(change).collect::<PyResult<_>>()?,
        ..DirectionConfig::default()
    })
}

/// Parse stages in a JSON list of tables, as in the emulator's configuration.
pub fn parse(stages: &str) -> PyResult<Vec<StageConfig>> {
    let tables: Vec<Value> = from_json("stages", stages)?;
    let mut reader = Reader::new(|path: &Path| File::open(path));
    let mut stage = |(index, table)| {
        let stage = reader.stage(table);
        stage.map_err(|error| located(format!("stages[{index}]"), error))
    };
    tables.into_iter().enumerate().map(&mut stage).collect()
}

fn parse_one(stage: &str) -> PyResult<StageConfig> {
    let stage = Reader::new(|path: &Path| File::open(path)).stage(from_json("the stage", stage)?);
    stage.map_err(|error| located("the stage", error))
}

pub fn from_json<T: DeserializeOwned>(place: &str, text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|error| located(place, error.into()))
}

fn located(place: impl Display, error: LanguageError) -> PyErr {
    match error {
        LanguageError::Table(fault) => invalid(format!("{place}: {fault}")),
        file => invalid(file),
    }
}
