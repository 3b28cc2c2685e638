//! Users of a cell in Python, over columns of packets.

use cellbed_link::{Bytes, CellUser, Duration, Fate, Links, Scheduler, Time};
use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arrivals::{Arrays, Arrivals, refuse, slice};
use crate::columns::{Columns, Table};
use crate::link::{from_json, parse};

/// Sends packets through a cell at rest, until the last one is out. links: for each user its stages, and its priority. The number of
/// its user comes with each packet, and the bytes that the user will send beyond those in its queue where they are known. Also returns
/// how long each user had the cell, in ns.
#[pyfunction]
pub fn share_cell<'py>(
    py: Python<'py>,
    scheduler: &str,
    slot_ns: u64,
    links: Vec<(String, u32)>,
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
        let user = |(stages, priority): (String, u32)| {
            let stages = parse(&stages)?;
            Ok::<_, PyErr>(CellUser { stages, priority })
        };
        let links: Vec<CellUser> = links.into_iter().map(user).collect::<PyResult<_>>()?;
        let count = links.len();
        if let Some(index) = users.iter().position(|&user| user as usize >= count) {
            let user = users[index];
            return refuse(format!(
                "users[{index}] is {user}: there are {count} users, counted from 0"
            ));
        }
        let slot = Duration::from_nanos(slot_ns);
        let mut cell = Links::new(scheduler, slot, links, Time::ZERO)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        let mut columns = Columns::held(arrivals.times, arrivals.sizes);
        let mut place = |cell: &mut Links<u64>, now: Time| {
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
        let served = cell.served(0).map(Duration::as_nanos).collect();
        Ok::<_, PyErr>((columns, served))
    };
    let (columns, served) = py.detach(run)?;
    Ok((columns.into_table(py), served))
}
