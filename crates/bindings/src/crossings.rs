//! Packets that crossed the network, joined from the records of the packet log by group of connections.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use cellbed_link::records::RECORD_BYTES;
use numpy::{Element, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrivals::slice;
use crate::legs::join_legs;

type Record = [u8; RECORD_BYTES];

/// Protocols with ports: TCP and UDP (IANA numbers).
const WITH_PORTS: [u8; 2] = [6, 17];
/// Smallest number of a packet made by a proxy, which enters the network at the proxy.
const MADE: u64 = 1 << 63;

/// The connections in a packet log, in groups, and the records of some groups.
#[pyclass(frozen, module = "cellbed._core")]
pub struct PacketGroups(Mutex<Groups>);

struct Groups {
    /// The first vertex of the ends (vertex << 16 | port) of services that have moved.
    homes: HashMap<u32, u16>,
    /// The vertices at which each direction begins and ends since times, or -1.
    directions: Vec<Vec<(i64, i32, i32)>>,
    /// The vertices of the nodes of towers.
    towers: Vec<i32>,
    /// Connections without a record that arrived since this time are left out.
    since: i64,
    /// Number of records of each connection, and whether it is kept.
    counted: HashMap<u64, (u64, bool)>,
    group_of: HashMap<u64, usize>,
    records: Vec<Vec<Record>>,
}

/// A record of the packet log; times in ns.
#[derive(Clone, Copy)]
pub struct Hop {
    pub packet: u64,
    pub arrived: i64,
    pub released: i64,
    pub departed: i64,
    pub observed: i64,
    pub direction: u16,
    pub dropped: bool,
    pub protocol: u8,
    pub size: u32,
    pub ports: (u16, u16),
    pub sequence: u32,
    pub payload: u32,
    pub vertices: (u16, u16),
}

impl Hop {
    fn of(record: &Record) -> Self {
        fn field<const N: usize>(record: &Record, at: usize) -> [u8; N] {
            *record[at..].first_chunk().expect("inside a record")
        }
        let time = |at| i64::from_le_bytes(field(record, at));
        let long = |at| u32::from_le_bytes(field(record, at));
        let short = |at| u16::from_le_bytes(field(record, at));
        Self {
            packet: u64::from_le_bytes(field(record, 0)),
            arrived: time(8),
            released: time(16),
            departed: time(24),
            observed: time(32),
            direction: short(40),
            dropped: record[42] != 0,
            protocol: record[43],
            size: long(44),
            ports: (short(48), short(50)),
            sequence: long(52),
            payload: long(56),
            vertices: (short(60), short(62)),
        }
    }
}

/// A packet that crossed the network.
#[derive(Clone, Copy)]
pub struct Crossing {
    pub head: Hop,
    pub tail: Hop,
    pub queued: i64,
    pub delayed: i64,
    pub delivered: bool,
    pub doubled: bool,
    pub key: u64,
}

impl Groups {
    /// Return the number of a connection, equal for both ways and before and after its service has moved.
    fn key(&self, hop: &Hop) -> u64 {
        let end = |vertex: u16, port: u16| {
            let end = u32::from(vertex) << 16 | u32::from(port);
            let home = self.homes.get(&end).unwrap_or(&vertex);
            u64::from(*home) << 16 | u64::from(port)
        };
        let one = end(hop.vertices.0, hop.ports.0);
        let other = end(hop.vertices.1, hop.ports.1);
        one.min(other) << 32 | one.max(other)
    }

    /// Return the packets of records, by entry.
    fn join(&self, records: &[Record]) -> Vec<Crossing> {
        // The records of a packet are in the order of its hops, because each is written when the packet leaves the hop.
        let hops = records.iter().map(Hop::of);
        let mut hops: Vec<_> = hops
            .enumerate()
            .map(|(at, it)| (it.packet, at, it))
            .collect();
        hops.sort_unstable_by_key(|&(packet, at, _)| (packet, at));
        let mut path = Vec::new();
        let mut found = Vec::with_capacity(hops.len());
        for hops in hops.chunk_by(|one, next| one.0 == next.0) {
            path.clear();
            path.extend(hops.iter().map(|it| it.2));
            let doubled = keep_one_copy(&mut path);
            let (head, tail) = (path[0], path[path.len() - 1]);
            // The log's oldest records may have been removed, including the first hops of a packet.
            let entered = self.ends(&head, head.arrived).0 == i32::from(head.vertices.0);
            let left = self.tower(&head, false).is_some();
            if !entered && !left && head.packet < MADE {
                continue;
            }
            let total = |spent: fn(&Hop) -> i64| path.iter().map(spent).fold(0, i64::wrapping_add);
            found.push(Crossing {
                head,
                tail,
                queued: total(|it| it.released.wrapping_sub(it.arrived)),
                delayed: total(|it| it.departed.wrapping_sub(it.released)),
                delivered: !tail.dropped
                    && self.ends(&tail, tail.departed).1 == i32::from(tail.vertices.1),
                doubled,
                key: self.key(&head),
            });
        }
        found.sort_by_key(|it| it.head.arrived);
        if self.towers.is_empty() {
            return found;
        }
        join_legs(
            found,
            |hop| self.tower(hop, true),
            |hop| self.tower(hop, false),
        )
    }

    /// Return the vertices at which the direction of a hop begins and ends at a time, or -1.
    fn ends(&self, hop: &Hop, at: i64) -> (i32, i32) {
        let places = self.directions.get(usize::from(hop.direction));
        let mut latest = places.into_iter().flatten().rev();
        let place = latest.find(|it| it.0 <= at);
        place.map_or((-1, -1), |it| (it.1, it.2))
    }

    /// Return the tower that the direction of a hop reaches, or leaves.
    fn tower(&self, hop: &Hop, reaches: bool) -> Option<u16> {
        let (vertex, end) = if reaches {
            (self.ends(hop, hop.departed).1, hop.vertices.1)
        } else {
            (self.ends(hop, hop.arrived).0, hop.vertices.0)
        };
        let passed = self.towers.contains(&vertex) && vertex != i32::from(end);
        passed.then_some(vertex as u16)
    }
}

/// Keep one record per direction of a packet that may have been duplicated: of its first copy that was not dropped.
/// Return whether there were others.
fn keep_one_copy(hops: &mut Vec<Hop>) -> bool {
    let mut kept: Vec<usize> = (0..hops.len()).collect();
    kept.sort_by_key(|&at| (hops[at].direction, hops[at].dropped));
    kept.dedup_by_key(|at| hops[*at].direction);
    if kept.len() == hops.len() {
        return false;
    }
    kept.sort_unstable();
    *hops = kept.into_iter().map(|at| hops[at]).collect();
    true
}

#[pymethods]
impl PacketGroups {
    #[new]
    fn new(
        moved: Vec<(u32, u16)>,
        directions: Vec<Vec<(i64, i32, i32)>>,
        towers: Vec<i32>,
        since_ns: i64,
    ) -> Self {
        Self(Mutex::new(Groups {
            homes: moved.into_iter().collect(),
            directions,
            towers,
            since: since_ns,
            counted: HashMap::new(),
            group_of: HashMap::new(),
            records: Vec::new(),
        }))
    }

    fn count(&self, py: Python<'_>, records: PyReadonlyArray1<'_, u8>) -> PyResult<()> {
        let records = slice(&records)?.as_chunks().0;
        self.with(py, |groups| {
            for hop in records.iter().map(Hop::of) {
                if WITH_PORTS.contains(&hop.protocol) {
                    let counted = groups.counted.entry(groups.key(&hop)).or_default();
                    counted.0 += 1;
                    counted.1 |= hop.arrived >= groups.since;
                }
            }
        });
        Ok(())
    }

    fn divide(&self, py: Python<'_>, size: u64) -> usize {
        self.with(py, |groups| {
            let mut kept: Vec<_> = groups.counted.drain().filter(|it| it.1.1).collect();
            kept.sort_unstable_by_key(|it| it.0);
            let (mut total, mut last) = (0, None);
            for (key, (count, _)) in kept {
                total += count;
                if last.replace(total / size) != Some(total / size) {
                    groups.records.push(Vec::new());
                }
                groups.group_of.insert(key, groups.records.len() - 1);
            }
            groups.records.len()
        })
    }

    fn collect(
        &self,
        py: Python<'_>,
        records: PyReadonlyArray1<'_, u8>,
        first: usize,
        end: usize,
    ) -> PyResult<()> {
        let records = slice(&records)?.as_chunks().0;
        self.with(py, |groups| {
            for record in records {
                let hop = Hop::of(record);
                let group = groups.group_of.get(&groups.key(&hop));
                let group = group.filter(|_| WITH_PORTS.contains(&hop.protocol));
                if let Some(&group) = group.filter(|it| (first..end).contains(it)) {
                    groups.records[group].push(*record);
                }
            }
        });
        Ok(())
    }

    fn join<'py>(&self, py: Python<'py>, group: usize) -> PyResult<Bound<'py, PyDict>> {
        let found = self.with(py, |groups| {
            let records = groups.records.get_mut(group).map(std::mem::take);
            groups.join(&records.unwrap_or_default())
        });
        let columns = PyDict::new(py);
        fn set<T: Element>(
            columns: &Bound<'_, PyDict>,
            name: &str,
            found: &[Crossing],
            value: impl Fn(&Crossing) -> T,
        ) -> PyResult<()> {
            let values = PyArray1::from_iter(columns.py(), found.iter().map(value));
            columns.set_item(name, values)
        }
        set(&columns, "entered", &found, |it| it.head.arrived)?;
        set(&columns, "queued", &found, |it| it.queued)?;
        set(&columns, "delayed", &found, |it| it.delayed)?;
        set(&columns, "proxied", &found, |it| {
            let whole = it.tail.departed.wrapping_sub(it.head.arrived);
            whole.wrapping_sub(it.queued).wrapping_sub(it.delayed)
        })?;
        set(&columns, "left", &found, |it| it.tail.observed)?;
        set(&columns, "delivered", &found, |it| it.delivered)?;
        set(&columns, "dropped", &found, |it| it.tail.dropped)?;
        set(&columns, "source", &found, |it| it.head.vertices.0)?;
        set(&columns, "destination", &found, |it| it.head.vertices.1)?;
        set(&columns, "source_port", &found, |it| it.head.ports.0)?;
        set(&columns, "destination_port", &found, |it| it.head.ports.1)?;
        set(&columns, "sequence", &found, |it| it.head.sequence)?;
        set(&columns, "payload", &found, |it| i64::from(it.head.payload))?;
        set(&columns, "protocol", &found, |it| it.head.protocol)?;
        set(&columns, "doubled", &found, |it| it.doubled)?;
        set(&columns, "size", &found, |it| i64::from(it.head.size))?;
        set(&columns, "key", &found, |it| it.key)?;
        Ok(columns)
    }
}

impl PacketGroups {
    /// Run `work` on the groups exclusively, without the interpreter.
    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut Groups) -> T + Send) -> T {
        py.detach(|| work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}
