//! The cell simulation for Python, on packet columns.

use cellbed_link::cell::check_stages;
use cellbed_link::{Bytes, CellConfig, Duration, Fate, Graph, GraphConfig, Scheduler, Time, Visit};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

use crate::arrivals::{Arrays, Arrivals, invalid, refuse, slice};
use crate::columns::{Columns, Table};
use crate::link::{LaterStage, from_json, parse_direction};

/// A user of a cell: its stages, their changes, its priority, and when it is in the cell (from, until, in ns).
type User = (String, Vec<LaterStage>, u32, Vec<(u64, Option<u64>)>);

/// Send packets through a cell at rest until the last one has left. `users` has the user of each packet; `to_come`,
/// where known, the bytes that the user will send beyond those in its queue. Also returns the service time of each
/// user, in ns.
#[pyfunction]
pub fn share_cell<'py>(
    py: Python<'py>,
    scheduler: &str,
    slot_ns: u64,
    links: Vec<User>,
    arrays: Arrays<'py>,
    users: PyReadonlyArray1<'py, u32>,
    to_come: Option<PyReadonlyArray1<'py, u64>>,
) -> PyResult<(Table<'py>, Vec<u64>)> {
    let arrivals = Arrivals::of(&arrays)?;
    let users = slice(&users)?;
    let to_come = to_come.as_ref().map(slice).transpose()?;
    let run = || {
        arrivals.check(Time::ZERO)?;
        let scheduler: Scheduler = from_json("the scheduler", scheduler)?;
        let (mut directions, mut visits) = (Vec::new(), Vec::new());
        for (number, (stages, changes, priority, times)) in links.into_iter().enumerate() {
            let direction = parse_direction(&stages, changes)?;
            check_stages(&direction.stages).map_err(invalid)?;
            directions.push(direction);
            let visit = |(from, until): (u64, Option<u64>)| Visit {
                priority,
                from: Duration::from_nanos(from),
                until: until.map(Duration::from_nanos),
            };
            visits.extend(times.into_iter().map(|times| (visit(times), number)));
        }
        let (users_of_cell, link_of_visit): (Vec<_>, Vec<_>) = visits.into_iter().unzip();
        let count = directions.len();
        if let Some(index) = users.iter().position(|&user| user as usize >= count) {
            let user = users[index];
            return refuse(format!(
                "users[{index}] is {user}: there are {count} users, counted from 0"
            ));
        }
        let config = CellConfig {
            scheduler,
            slot: Duration::from_nanos(slot_ns),
            users: users_of_cell,
        };
        let config = GraphConfig {
            vertices: 1,
            directions,
            cells: vec![(config, link_of_visit.clone())],
        };
        let mut cell = Graph::new(config, Time::ZERO).map_err(invalid)?;
        let mut columns = Columns::held(arrivals.times, arrivals.sizes);
        let mut place = |cell: &mut Graph<u64>, now: Time| {
            while let Some((_, outcome)) = cell.poll(now) {
                if outcome.fate != Fate::Doubled {
                    columns.place(&outcome);
                }
            }
        };
        for (index, (time, size, tag)) in arrivals.packets().enumerate() {
            let to_come = to_come.map(|bytes| Bytes(bytes[index]));
            let user = users[index] as usize;
            cell.accept_tagged(time, user, index as u64, size, tag, to_come);
            place(&mut cell, time);
        }
        while let Some(event) = cell.next_event() {
            place(&mut cell, event);
        }
        let mut served = vec![0; count];
        for (user, time) in link_of_visit.iter().zip(cell.served(0)) {
            served[*user] += time.as_nanos();
        }
        Ok::<_, PyErr>((columns, served))
    };
    let (columns, served) = py.detach(run)?;
    Ok((columns.into_table(py), served))
}
