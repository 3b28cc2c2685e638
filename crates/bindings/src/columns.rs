//! What became of packets, in columns that NumPy takes over as they are.

use cellbed_link::{Fate, Outcome, Time};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyTuple};

/// The columns in the order of [`Columns`], each the bytes of its numbers in the machine's order.
pub type Table<'py> = Bound<'py, PyTuple>;

/// A column each of packet, arrival, release, departure, size, fate, mark and corrupt bit; times in ns.
#[derive(Default)]
pub struct Columns {
    packet: Vec<u64>,
    arrived: Vec<i64>,
    released: Vec<i64>,
    departed: Vec<i64>,
    size: Vec<u32>,
    fate: Vec<u8>,
    marked: Vec<u8>,
    corrupt_bit: Vec<i64>,
    /// Where they are placed by number: second outcomes of packets that came twice.
    more: Option<Box<Columns>>,
}

const DELIVERED: u8 = 0;
/// Neither delivered nor dropped for as long as time goes on.
const HELD: u8 = 255;
const NOTHING: i64 = -1;

impl Columns {
    pub fn with_capacity(rows: usize) -> Self {
        Self {
            packet: Vec::with_capacity(rows),
            arrived: Vec::with_capacity(rows),
            released: Vec::with_capacity(rows),
            departed: Vec::with_capacity(rows),
            size: Vec::with_capacity(rows),
            fate: Vec::with_capacity(rows),
            marked: Vec::with_capacity(rows),
            corrupt_bit: Vec::with_capacity(rows),
            more: None,
        }
    }

    /// A row for each packet that arrives, numbered from 0, of which no more is known yet.
    pub fn held(times: &[i64], sizes: &[u32]) -> Self {
        let rows = times.len();
        Self {
            packet: (0..rows as u64).collect(),
            arrived: times.to_vec(),
            released: vec![NOTHING; rows],
            departed: vec![NOTHING; rows],
            size: sizes.to_vec(),
            fate: vec![HELD; rows],
            marked: vec![0; rows],
            corrupt_bit: vec![NOTHING; rows],
            more: None,
        }
    }

    /// Appends an outcome.
    pub fn push(&mut self, outcome: &Outcome<u64>) {
        self.packet.push(outcome.packet);
        self.arrived.push(nanos(outcome.arrived));
        self.released.push(nanos(outcome.released));
        self.departed.push(nanos(outcome.departed));
        self.size
            .push(u32::try_from(outcome.size.0).unwrap_or(u32::MAX));
        self.fate.push(code(outcome.fate));
        self.marked.push(outcome.marked.into());
        self.corrupt_bit.push(bit(outcome));
    }

    /// Writes an outcome into the row of its packet; behind all rows if there is one already.
    pub fn place(&mut self, outcome: &Outcome<u64>) {
        let row = outcome.packet as usize;
        if self.fate[row] != HELD {
            return self.more.get_or_insert_default().push(outcome);
        }
        self.released[row] = nanos(outcome.released);
        self.departed[row] = nanos(outcome.departed);
        self.fate[row] = code(outcome.fate);
        self.marked[row] = outcome.marked.into();
        self.corrupt_bit[row] = bit(outcome);
    }

    pub fn into_table(mut self, py: Python<'_>) -> PyResult<Table<'_>> {
        if let Some(more) = self.more.take() {
            self.packet.extend(more.packet);
            self.arrived.extend(more.arrived);
            self.released.extend(more.released);
            self.departed.extend(more.departed);
            self.size.extend(more.size);
            self.fate.extend(more.fate);
            self.marked.extend(more.marked);
            self.corrupt_bit.extend(more.corrupt_bit);
        }
        let columns = [
            bytes(py, &self.packet, u64::to_ne_bytes)?,
            bytes(py, &self.arrived, i64::to_ne_bytes)?,
            bytes(py, &self.released, i64::to_ne_bytes)?,
            bytes(py, &self.departed, i64::to_ne_bytes)?,
            bytes(py, &self.size, u32::to_ne_bytes)?,
            bytes(py, &self.fate, u8::to_ne_bytes)?,
            bytes(py, &self.marked, u8::to_ne_bytes)?,
            bytes(py, &self.corrupt_bit, i64::to_ne_bytes)?,
        ];
        PyTuple::new(py, columns)
    }
}

fn code(fate: Fate) -> u8 {
    match fate {
        Fate::Delivered | Fate::Doubled => DELIVERED,
        Fate::Dropped(reason) => reason as u8,
    }
}

fn bit(outcome: &Outcome<u64>) -> i64 {
    outcome.corrupt_bit.map_or(NOTHING, i64::from)
}

/// The last instant that fits stands for all later ones.
fn nanos(time: Time) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

fn bytes<'py, T: Copy, const N: usize>(
    py: Python<'py>,
    column: &[T],
    as_bytes: impl Fn(T) -> [u8; N],
) -> PyResult<Bound<'py, PyByteArray>> {
    PyByteArray::new_with(py, column.len() * N, |target| {
        for (place, &value) in target.chunks_exact_mut(N).zip(column) {
            place.copy_from_slice(&as_bytes(value));
        }
        Ok(())
    })
}
