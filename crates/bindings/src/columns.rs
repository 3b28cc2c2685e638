//! Outcomes of packets, in columns that NumPy adopts without a copy.

use cellbed_link::{Fate, Outcome, Time};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

type Column<'py, T> = Bound<'py, PyArray1<T>>;

/// The columns in the order of [`Columns`].
pub type Table<'py> = (
    Column<'py, u64>,
    Column<'py, i64>,
    Column<'py, i64>,
    Column<'py, i64>,
    Column<'py, u32>,
    Column<'py, u8>,
    Column<'py, bool>,
    Column<'py, i64>,
);

/// Columns of packet, arrival, release, departure, size, fate, mark and corrupt bit; times in ns.
#[derive(Default)]
pub struct Columns {
    packet: Vec<u64>,
    arrived: Vec<i64>,
    released: Vec<i64>,
    departed: Vec<i64>,
    size: Vec<u32>,
    fate: Vec<u8>,
    marked: Vec<bool>,
    corrupt_bit: Vec<i64>,
}

/// The fate of a packet that has not left.
const HELD: u8 = 255;
const NOTHING: i64 = -1;

impl Columns {
    /// Return a row without an outcome for each arriving packet, numbered from 0.
    pub fn held(times: &[i64], sizes: &[u32]) -> Self {
        let rows = times.len();
        Self {
            packet: (0..rows as u64).collect(),
            arrived: times.to_vec(),
            released: vec![NOTHING; rows],
            departed: vec![NOTHING; rows],
            size: sizes.to_vec(),
            fate: vec![HELD; rows],
            marked: vec![false; rows],
            corrupt_bit: vec![NOTHING; rows],
        }
    }

    /// Append an outcome.
    pub fn push(&mut self, outcome: &Outcome<u64>) {
        self.packet.push(outcome.packet);
        self.arrived.push(nanos(outcome.arrived));
        self.released.push(nanos(outcome.released));
        self.departed.push(nanos(outcome.departed));
        self.size
            .push(u32::try_from(outcome.size.0).unwrap_or(u32::MAX));
        self.fate.push(code(outcome.fate));
        self.marked.push(outcome.marked);
        self.corrupt_bit.push(bit(outcome));
    }

    /// Write an outcome into the row of its packet, or after all rows if the row has one: the packet was duplicated.
    pub fn place(&mut self, outcome: &Outcome<u64>) {
        let row = outcome.packet as usize;
        if self.fate[row] != HELD {
            return self.push(outcome);
        }
        self.released[row] = nanos(outcome.released);
        self.departed[row] = nanos(outcome.departed);
        self.fate[row] = code(outcome.fate);
        self.marked[row] = outcome.marked;
        if outcome.corrupt_bit.is_some() {
            self.corrupt_bit[row] = bit(outcome);
        }
    }

    pub fn into_table(self, py: Python<'_>) -> Table<'_> {
        (
            self.packet.into_pyarray(py),
            self.arrived.into_pyarray(py),
            self.released.into_pyarray(py),
            self.departed.into_pyarray(py),
            self.size.into_pyarray(py),
            self.fate.into_pyarray(py),
            self.marked.into_pyarray(py),
            self.corrupt_bit.into_pyarray(py),
        )
    }
}

fn code(fate: Fate) -> u8 {
    match fate {
        Fate::Delivered | Fate::Doubled => 0,
        Fate::Dropped(reason) => reason as u8,
    }
}

fn bit(outcome: &Outcome<u64>) -> i64 {
    outcome.corrupt_bit.map_or(NOTHING, i64::from)
}

/// Return a time in ns; times that do not fit become the last representable one.
pub fn nanos(time: Time) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
