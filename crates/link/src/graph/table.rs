//! The serialised form of a graph: tables of directions and cells, as the configurations of the emulator and of virtual runs have them.

use std::collections::HashMap;
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
    /// Its unique name, such as `mobile-0.uplink`.
    pub name: String,
    /// Name of the vertex it leaves.
    pub from: String,
    /// Name of the vertex it reaches.
    pub to: String,
    /// Stages that a packet passes, in order: tables as [`language`](crate::language) reads them.
    pub stages: Vec<Value>,
    /// Changes after every start.
    #[serde(default)]
    pub changes: Vec<ChangeTable>,
    /// When it joins other vertices, in order of time.
    #[serde(default)]
    pub moves: Vec<MoveTable>,
}

/// A change of a stage, known beforehand.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeTable {
    /// When, ns after time zero.
    pub at_ns: u64,
    /// Number of the stage, from 0.
    pub stage: usize,
    /// New configuration of the stage, of the same kind.
    pub to: Value,
}

/// A direction that joins other vertices.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveTable {
    /// When, ns after time zero.
    pub at_ns: u64,
    /// Name of the vertex it leaves from then on.
    pub from: String,
    /// Name of the vertex it reaches from then on.
    pub to: String,
}

/// Directions that share the time of a radio cell.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellTable {
    /// Its unique name, such as `macro.uplink`.
    pub name: String,
    /// Scheduler that assigns the slots.
    pub scheduler: Scheduler,
    /// Duration of a slot, ns.
    #[serde(default = "slot")]
    pub slot_ns: u64,
    /// Its users.
    pub users: Vec<UserTable>,
}

/// A direction that is a user of a cell.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserTable {
    /// Its name.
    pub direction: String,
    /// 0 is the highest.
    #[serde(default)]
    pub priority: u32,
    /// When it enters the cell, ns after time zero.
    #[serde(default)]
    pub from_ns: u64,
    /// When it leaves, if it does; it enters another cell, or this one again, later only.
    #[serde(default)]
    pub until_ns: Option<u64>,
}

fn slot() -> u64 {
    1_000_000
}

/// Why tables describe no graph.
#[derive(Debug, Error)]
pub enum TableError {
    /// A table is malformed, or does not fit the others.
    #[error("{place}: {problem}")]
    Table {
        /// Its place, such as `directions[2] (core.uplink)`.
        place: String,
        /// Problem and correct value.
        problem: String,
    },
    /// A file that a stage names: `FILE:LINE: reason`, or why it cannot be opened.
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
    /// Cells that directions share, each direction at most one at a time.
    pub cells: &'a [CellTable],
}

fn wrong<T>(place: impl Into<String>, problem: impl Into<String>) -> Result<T, TableError> {
    Err(TableError::Table {
        place: place.into(),
        problem: problem.into(),
    })
}

impl GraphTables<'_> {
    /// Returns the number of the vertex called `name`.
    pub fn vertex(&self, name: &str) -> Option<usize> {
        self.vertices.iter().position(|it| *it == name)
    }

    /// Returns the number of the direction called `name`.
    pub fn direction(&self, name: &str) -> Option<usize> {
        self.directions.iter().position(|it| it.name == name)
    }

    fn place(&self, direction: usize) -> String {
        format!(
            "directions[{direction}] ({})",
            self.directions[direction].name
        )
    }

    /// Refuses names, moves and cells that do not fit each other. Stages are read by [`build`](Self::build).
    pub fn check(&self) -> Result<(), TableError> {
        let most = usize::from(u16::MAX);
        if self.vertices.len() > most || self.directions.len() > most {
            let problem = format!("at most {most} of each are possible");
            return wrong("vertices and directions", problem);
        }
        for (index, name) in self.vertices.iter().enumerate() {
            if self.vertex(name) != Some(index) {
                let place = format!("vertices[{index}] ({name})");
                return wrong(place, "another vertex has this name");
            }
        }
        (0..self.directions.len()).try_for_each(|index| self.check_direction(index))?;
        self.check_cells()
    }

    fn check_direction(&self, index: usize) -> Result<(), TableError> {
        let direction = self.directions[index];
        let place = self.place(index);
        if self.direction(&direction.name) != Some(index) {
            return wrong(place, "another direction has this name");
        }
        let moved = direction.moves.iter().map(|it| (&it.from, &it.to));
        for (from, to) in std::iter::once((&direction.from, &direction.to)).chain(moved) {
            if let Some(end) = [from, to].into_iter().find(|it| self.vertex(it).is_none()) {
                return wrong(place, format!("there is no vertex {end:?}"));
            }
            if from == to {
                return wrong(place, format!("it leads from {from:?} to itself"));
            }
        }
        if !direction
            .moves
            .is_sorted_by(|one, next| one.at_ns < next.at_ns)
        {
            return wrong(place, "its moves must be in order of time");
        }
        Ok(())
    }

    fn check_cells(&self) -> Result<(), TableError> {
        let mut visits: HashMap<&str, Vec<(&str, &UserTable)>> = HashMap::new();
        for (index, cell) in self.cells.iter().enumerate() {
            let place = || format!("cells[{index}] ({})", cell.name);
            if self.cells[..index].iter().any(|it| it.name == cell.name) {
                return wrong(place(), "another cell has this name");
            }
            if let Err(problem) = cell.config().check() {
                return wrong(place(), problem.to_string());
            }
            for user in &cell.users {
                let name = user.direction.as_str();
                if self.direction(name).is_none() {
                    return wrong(place(), format!("there is no direction {name:?}"));
                }
                let others = visits.entry(name).or_default();
                if let Some((other, _)) = others.iter().find(|(_, it)| it.meets(user)) {
                    let problem = format!(
                        "{name:?} is already a user of the cell {other:?} at this time, or has not left it before"
                    );
                    return wrong(place(), problem);
                }
                others.push((&cell.name, user));
            }
        }
        Ok(())
    }

    /// Reads the stages of checked tables. Directions that name one trace share it. open: the files that stages name.
    pub fn build<F: Read>(
        &self,
        open: impl FnMut(&Path) -> io::Result<F>,
    ) -> Result<GraphConfig, TableError> {
        let mut reader = Reader::new(open);
        let directions = (0..self.directions.len()).map(|it| self.build_direction(it, &mut reader));
        let directions = directions.collect::<Result<_, _>>()?;
        let cells = self.cells.iter().map(|cell| {
            let users = cell.users.iter();
            let users = users.filter_map(|user| self.direction(&user.direction));
            (cell.config(), users.collect())
        });
        Ok(GraphConfig {
            vertices: self.vertices.len(),
            directions,
            cells: cells.collect(),
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
        // Once packets have passed, a rate of 0 is an outage.
        if stages.iter().any(passes_nothing) {
            let problem = "a constant rate of 0 bit/s lets nothing pass; use a rate above 0";
            return wrong(place(), problem);
        }
        let changes = table.changes.iter().map(|change| {
            Ok(Change {
                at: Duration::from_nanos(change.at_ns),
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
        let vertex = |name: &str| self.vertex(name).unwrap_or_default() as u16;
        let moves = table.moves.iter().map(|it| Move {
            at: Duration::from_nanos(it.at_ns),
            from: vertex(&it.from),
            to: vertex(&it.to),
        });
        Ok(DirectionConfig {
            from: vertex(&table.from),
            to: vertex(&table.to),
            stages,
            changes,
            moves: moves.collect(),
        })
    }
}

fn passes_nothing(stage: &StageConfig) -> bool {
    let StageConfig::Bottleneck(BottleneckConfig { schedule, .. }) = stage else {
        return false;
    };
    *schedule == Schedule::Constant(BitRate(0))
}

impl UserTable {
    /// Returns whether the same direction would be in two cells at the same time.
    fn meets(&self, other: &Self) -> bool {
        let end = |it: &Self| it.until_ns.unwrap_or(u64::MAX);
        self.from_ns <= end(other) && other.from_ns <= end(self)
    }
}

impl CellTable {
    /// Returns the cell without the directions of its users.
    pub fn config(&self) -> CellConfig {
        let visit = |user: &UserTable| Visit {
            priority: user.priority,
            from: Duration::from_nanos(user.from_ns),
            until: user.until_ns.map(Duration::from_nanos),
        };
        CellConfig {
            scheduler: self.scheduler,
            slot: Duration::from_nanos(self.slot_ns),
            users: self.users.iter().map(visit).collect(),
        }
    }
}
