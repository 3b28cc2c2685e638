//! Arriving packets in NumPy arrays.

use std::fmt::Display;

use cellbed_link::{Bytes, Ecn, Tag, Time};
use numpy::{Element, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Arrays of times, sizes, flows and ECN fields, with one entry per packet.
pub type Arrays<'py> = (
    PyReadonlyArray1<'py, i64>,
    PyReadonlyArray1<'py, u32>,
    Option<PyReadonlyArray1<'py, u64>>,
    Option<PyReadonlyArray1<'py, u8>>,
);

/// The arrays of [`Arrays`] as slices.
#[derive(Clone, Copy)]
pub struct Arrivals<'a> {
    pub times: &'a [i64],
    pub sizes: &'a [u32],
    flows: Option<&'a [u64]>,
    ecn: Option<&'a [u8]>,
}

impl<'a> Arrivals<'a> {
    pub fn of(arrays: &'a Arrays<'_>) -> PyResult<Self> {
        let (times, sizes, flows, ecn) = arrays;
        Ok(Self {
            times: slice(times)?,
            sizes: slice(sizes)?,
            flows: flows.as_ref().map(slice).transpose()?,
            ecn: ecn.as_ref().map(slice).transpose()?,
        })
    }

    /// Reject columns of different lengths, invalid sizes and ECN fields, and arrivals before `now` or the previous
    /// packet.
    pub fn check(&self, now: Time) -> PyResult<()> {
        let length = self.times.len();
        let lengths = [
            ("sizes", Some(self.sizes.len())),
            ("flows", self.flows.map(<[u64]>::len)),
            ("ecn", self.ecn.map(<[u8]>::len)),
        ];
        for (name, other) in lengths {
            if let Some(other) = other.filter(|&other| other != length) {
                return refuse(format!(
                    "there are {length} times, but {name} has {other}: give one for each packet"
                ));
            }
        }
        let mut before = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
        for (index, &time) in self.times.iter().enumerate() {
            if time < before {
                return refuse(misplaced(index, time, before));
            }
            before = time;
        }
        if let Some(index) = self.sizes.iter().position(|&size| size == 0) {
            return refuse(format!(
                "sizes[{index}] is 0: a packet has at least one byte"
            ));
        }
        match self.ecn.and_then(|ecn| ecn.iter().position(|&it| it > 3)) {
            Some(index) => refuse(format!(
                "ecn[{index}] is above 3: the ECN field has two bits"
            )),
            None => Ok(()),
        }
    }

    /// Return the packets with all of their columns.
    pub fn packets(self) -> impl Iterator<Item = (Time, Bytes, Tag)> + 'a {
        let rows = self.times.iter().zip(self.sizes).enumerate();
        rows.map(move |(index, (&time, &size))| {
            let tag = Tag {
                flow: self.flows.map_or(0, |flows| flows[index]),
                ecn: Ecn::of_traffic_class(self.ecn.map_or(0, |ecn| ecn[index])),
                dscp: 0,
            };
            // Negative times were rejected.
            (
                Time::from_nanos(time.unsigned_abs()),
                Bytes(size.into()),
                tag,
            )
        })
    }
}

fn misplaced(index: usize, time: i64, before: i64) -> String {
    if time < 0 {
        format!("times[{index}] is {time} ns: times count from the start of the link, from 0 on")
    } else if index == 0 {
        format!("times[0] is {time} ns, but the link has been brought to {before} ns already")
    } else {
        format!(
            "times[{index}] is {time} ns, before the {before} ns of the packet before it: sort the packets by time"
        )
    }
}

pub fn slice<'a, T: Element>(array: &'a PyReadonlyArray1<'_, T>) -> PyResult<&'a [T]> {
    array.as_slice().map_err(invalid)
}

pub fn refuse<T>(message: String) -> PyResult<T> {
    Err(invalid(message))
}

/// Return the `ValueError` of invalid input.
pub fn invalid(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}
