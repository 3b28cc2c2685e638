//! The serialised form of a graph: tables of directions and cells, as in the configurations of the emulator and of
//! virtual runs.

use std::io::{self, Read};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use super::{DirectionConfig, GraphConfig, Move};
use crate::bottleneck::BottleneckConfig;
use crate::cell::{CellConfig, Scheduler, Visit, check_stages};
use crate::direction::{Change, Direction};
use crate::language::{LanguageError, Reader};
use crate::schedule::Schedule;
use crate::stage::StageConfig;
use crate::time::{Duration, Time};
use crate::units::BitRate;

/// A direction from a vertex to the next.
#[derive(Clone, Debug, Deserialize)]
pub struct DirectionTable {
    /// Unique name, such as `mobile-0.uplink`.
    pub name: String,
    /// Name of the vertex it leaves.
    pub from: String,
    /// Name of the vertex it reaches.
    pub to: String,
    /// Stages that a packet passes, in order: tables of the form in [`language`](crate::language).
    pub stages: Vec<Value>,
    /// Changes after every start.
    #[serde(default)]
    pub changes: Vec<ChangeTable>,
    /// Moves to other vertices, in order of time.
    #[serde(default)]
    pub moves: Vec<MoveTable>,
}

/// A change of a stage, known beforehand; `to` is its new configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeTable {
    at_ns: Duration,
    stage: usize,
    /// New configuration of the stage, of the same kind.
    pub to: Value,
}

/// A move of a direction to other vertices.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveTable {
    at_ns: Duration,
    from: String,
    to: String,
}

/// Directions that share the time of a radio cell.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellTable {
    /// Unique name, such as `macro.uplink`.
    pub name: String,
    /// Scheduler that assigns the slots.
    pub scheduler: Scheduler,
    /// Duration of a slot.
    #[serde(rename = "slot_ns", default = "slot")]
    pub slot: Duration,
    /// Its users.
    pub users: Vec<UserTable>,
}

/// A direction that is a user of a cell.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserTable {
    /// Name of the direction.
    pub direction: String,
    /// Time in the cell.
    #[serde(flatten)]
    pub visit: Visit,
}

fn slot() -> Duration {
    Duration::from_millis(1)
}

/// Error of tables without a valid graph.
#[derive(Debug, Error)]
pub enum TableError {
    /// A table is malformed, or does not fit the others.
    #[error("{place}: {problem}")]
    Table {
        /// Place of the table, such as `directions[2] (core.uplink)`.
        place: String,
        /// Problem and correct value.
        problem: String,
    },
    /// A file of a stage is malformed, `FILE:LINE: reason`, or cannot be opened.
    #[error("{0}")]
    File(LanguageError),
}

/// The tables of a graph. Vertices and directions are numbered in this order.
#[derive(Clone, Debug)]
pub struct GraphTables<'a> {
    /// Names of the vertices.
    pub vertices: Vec<&'a str>,
    /// The directions.
    pub directions: Vec<&'a DirectionTable>,
    /// Cells; a direction is in at most one at a time.
    pub cells: &'a [CellTable],
}

fn wrong<T>(place: impl Into<String>, problem: impl Into<String>) -> Result<T, TableError> {
    Err(TableError::Table {
        place: place.into(),
        problem: problem.into(),
    })
}

impl GraphTables<'_> {
    /// Return the number of the vertex called `name`.
    fn vertex(&self, name: &str) -> Result<u16, TableError> {
        let number = self.vertices.iter().position(|it| *it == name);
        number.map_or_else(
            || wrong(name, "there is no vertex of this name"),
            |number| Ok(number as u16),
        )
    }

    /// Return the number of the direction called `name`.
    fn direction(&self, name: &str) -> Result<usize, TableError> {
        let number = self.directions.iter().position(|it| it.name == name);
        number.map_or_else(|| wrong(name, "there is no direction of this name"), Ok)
    }

    fn place(&self, direction: usize) -> String {
        format!(
            "directions[{direction}] ({})",
            self.directions[direction].name
        )
    }

    /// Read the stages of all directions. Directions that name the same trace share it. open: opens a stage's file.
    pub fn build<F: Read>(
        &self,
        open: impl FnMut(&Path) -> io::Result<F>,
    ) -> Result<GraphConfig, TableError> {
        let mut reader = Reader::new(open);
        let directions = (0..self.directions.len()).map(|it| self.build_direction(it, &mut reader));
        let directions = directions.collect::<Result<_, _>>()?;
        let cells = self.cells.iter().map(|cell| {
            let users = cell.users.iter();
            let users = users.map(|user| self.direction(&user.direction));
            let config = CellConfig {
                scheduler: cell.scheduler,
                slot: cell.slot,
                users: cell.users.iter().map(|user| user.visit).collect(),
            };
            Ok((config, users.collect::<Result<_, _>>()?))
        });
        Ok(GraphConfig {
            vertices: self.vertices.len(),
            directions,
            cells: cells.collect::<Result<_, TableError>>()?,
        })
    }

    fn build_direction<Open, F>(
        &self,
        index: usize,
        reader: &mut Reader<Open>,
    ) -> Result<DirectionConfig, TableError>
    where
        Open: FnMut(&Path) -> io::Result<F>,
        F: Read,
    {
        let table = self.directions[index];
        let place = || self.place(index);
        let mut stage = |table: &Value| match reader.stage(table.clone()) {
            Ok(stage) => Ok(stage),
            Err(LanguageError::Table(fault)) => wrong(place(), fault.to_string()),
            Err(file) => Err(TableError::File(file)),
        };
        let stages = table.stages.iter().map(&mut stage);
        let stages: Vec<StageConfig> = stages.collect::<Result<_, _>>()?;
        // A rate of 0 is an outage only after packets have passed.
        let passes_nothing = |stage: &StageConfig| {
            matches!(stage, StageConfig::Bottleneck(BottleneckConfig { schedule, .. })
                if *schedule == Schedule::Constant(BitRate(0)))
        };
        if stages.iter().any(passes_nothing) {
            let problem = "a constant rate of 0 bit/s lets nothing pass; use a rate above 0";
            return wrong(place(), problem);
        }
        let changes = table.changes.iter().map(|change| {
            Ok(Change {
                at: change.at_ns,
                stage: change.stage,
                config: stage(&change.to)?,
            })
        });
        let changes: Vec<Change> = changes.collect::<Result<_, TableError>>()?;
        let direction = Direction::<()>::new(stages.clone(), Time::ZERO);
        if let Err(problem) = direction.with_changes(changes.clone()) {
            return wrong(place(), format!("changes: {problem}"));
        }
        let mut users = self.cells.iter().flat_map(|cell| &cell.users);
        let empties =
            |stage: &StageConfig| matches!(stage, StageConfig::Gate(gate) if gate.has_flushes());
        let changed = changes.iter().map(|change| &change.config);
        if users.any(|user| user.direction == table.name)
            || stages.iter().chain(changed).any(empties)
        {
            check_stages(&stages).or_else(|problem| wrong(place(), problem.to_string()))?;
        }
        let moves = table.moves.iter().map(|it| {
            Ok(Move {
                at: it.at_ns,
                from: self.vertex(&it.from)?,
                to: self.vertex(&it.to)?,
            })
        });
        Ok(DirectionConfig {
            from: self.vertex(&table.from)?,
            to: self.vertex(&table.to)?,
            stages,
            changes,
            moves: moves.collect::<Result<_, TableError>>()?,
        })
    }
}
