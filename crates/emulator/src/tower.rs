//! Nodes of towers: the packets of radio links pass their devices, and a page shows their programs the links.
//!
//! A page is a file of fixed size in memory. The emulator writes it by system calls and never reads it, so no change of
//! the file by a program affects the emulator. Its layout is in `docs/how-to/tower.md`.

use std::fs::{File, OpenOptions};
use std::net::IpAddr;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use cellbed_link::tally::Counters;
use cellbed_link::{Duration, Graph, Time};

use crate::config::{Config, Tower, Vertex};
use crate::error::{Error, Result, Trying};
use crate::pool::Segment;

const MAGIC: &[u8; 8] = b"cellbed\0";
const VERSION: u32 = 1;
const HEADER: usize = 64;
/// Offset in the header of the number of snapshots.
const SEQUENCE: u64 = 16;
/// Bytes before the links in a snapshot.
const SNAPSHOT: usize = 64;
/// Bytes of a link, and of its part for each way.
const LINK: usize = 128;
const WAY: usize = 48;
/// Time over which capacities are counted.
const WINDOW: Duration = Duration::from_millis(10);
/// Minimum bytes per window of a link without a limit.
const UNLIMITED: f64 = 1e12;
/// Minimum time between two snapshots, in total and per link.
const INTERVAL: Duration = Duration::from_millis(1);
const PER_LINK: u64 = 20_000;

/// A radio link: the numbers of its directions, and the addresses of its endpoint.
struct Link {
    ways: [usize; 2],
    addresses: [u8; 20],
}

/// The page of a tower's node. Snapshots alternate between two places.
struct Page {
    file: File,
    vertex: usize,
    links: Vec<Link>,
}

/// The nodes of all towers.
pub struct Towers {
    /// By vertex, whether it is the node of a tower; empty without such nodes.
    nodes: Vec<bool>,
    /// By direction, whether it is one of a radio link.
    radio: Vec<bool>,
    pages: Vec<Page>,
    /// Number of the latest snapshot.
    sequence: u64,
    interval: Duration,
    due: Time,
}

impl Towers {
    /// Create the pages of a configuration. Errors: a link that does not exist, or a file that cannot be created.
    pub fn new(config: &Config, now: Time) -> Result<Self> {
        let mut towers = Self {
            nodes: Vec::new(),
            radio: vec![false; config.directions.len()],
            pages: Vec::new(),
            sequence: 0,
            interval: INTERVAL,
            due: now,
        };
        for (number, vertex) in config.vertices.iter().enumerate() {
            if let Some(tower) = &vertex.tower {
                towers.add(config, number, tower)?;
            }
        }
        Ok(towers)
    }

    fn add(&mut self, config: &Config, vertex: usize, tower: &Tower) -> Result<()> {
        self.nodes.resize(config.vertices.len(), false);
        self.nodes[vertex] = true;
        let links = tower.links.iter().map(|it| Link::new(config, it));
        let links = links.collect::<Result<Vec<_>>>()?;
        for link in &links {
            link.ways.iter().for_each(|&way| self.radio[way] = true);
        }
        let most = Duration::from_nanos(PER_LINK * links.len() as u64);
        self.interval = self.interval.max(most);
        let Some(path) = &tower.page else {
            return Ok(());
        };
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o444).open(path);
        let file = file.trying(|| format!("create {}", path.display()))?;
        let page = Page {
            file,
            vertex,
            links,
        };
        let created = page.begin(self.interval);
        created.trying(|| format!("write to {}", path.display()))?;
        self.pages.push(page);
        Ok(())
    }

    /// Return whether there are no such nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Return whether packets from a vertex's device may come from other nodes.
    pub fn forwards(&self, vertex: usize) -> bool {
        self.nodes.get(vertex) == Some(&true)
    }

    /// Return whether a packet passes the device of a vertex, between a direction and the next one.
    pub fn takes(&self, vertex: usize, direction: usize, next: usize) -> bool {
        self.forwards(vertex) && (self.radio[direction] || self.radio[next])
    }

    /// Return when the pages are due, if there are any.
    pub fn due(&self) -> Option<Time> {
        (!self.pages.is_empty()).then_some(self.due)
    }

    /// Write a snapshot of the links into each page. The graph has caught up with `now`.
    pub fn write(&mut self, now: Time, graph: &mut Graph<Segment>) {
        self.due = now + self.interval;
        self.sequence += 1;
        for page in &self.pages {
            let snapshot = page.snapshot(now, graph);
            let place = HEADER as u64 + self.sequence % 2 * snapshot.len() as u64;
            // A full memory leaves the page as it is.
            let written = page.file.write_all_at(&snapshot, place);
            let number = self.sequence.to_le_bytes();
            let _ = written.and_then(|()| page.file.write_all_at(&number, SEQUENCE));
        }
    }
}

impl Link {
    fn new(config: &Config, names: &[String; 2]) -> Result<Self> {
        let number = |name: &String| {
            let found = config
                .directions
                .iter()
                .position(|it| it.table.name == *name);
            found.ok_or_else(|| {
                Error::input(format!(
                    "configuration, tower: there is no direction {name}"
                ))
            })
        };
        let ways = [number(&names[0])?, number(&names[1])?];
        let endpoint = config.vertex(&config.directions[ways[0]].table.from);
        let mut addresses = [0; 20];
        for address in endpoint
            .into_iter()
            .flat_map(|it| own(&config.vertices[it]))
        {
            match address {
                IpAddr::V6(address) => addresses[..16].copy_from_slice(&address.octets()),
                IpAddr::V4(address) => addresses[16..].copy_from_slice(&address.octets()),
            }
        }
        Ok(Self { ways, addresses })
    }
}

/// Return the addresses of a node, without the addresses of a router in front of it.
fn own(vertex: &Vertex) -> impl Iterator<Item = IpAddr> + '_ {
    let own = if vertex.behind.is_empty() {
        &vertex.addresses
    } else {
        &vertex.behind
    };
    own.iter().map(|prefix| prefix.address)
}

impl Page {
    /// Write the header, and give the file its size.
    fn begin(&self, interval: Duration) -> std::io::Result<()> {
        let size = SNAPSHOT + LINK * self.links.len();
        let mut page = vec![0; HEADER + 2 * size];
        page[..8].copy_from_slice(MAGIC);
        put(&mut page, 8, VERSION);
        put(&mut page, 12, self.links.len() as u32);
        put_long(&mut page, 24, WINDOW.as_nanos());
        put_long(&mut page, 32, interval.as_nanos());
        self.file.write_all_at(&page, 0)
    }

    fn snapshot(&self, now: Time, graph: &mut Graph<Segment>) -> Vec<u8> {
        let mut found = vec![0; SNAPSHOT + LINK * self.links.len()];
        put_long(&mut found, 0, now.as_nanos());
        for (link, record) in self
            .links
            .iter()
            .zip(found[SNAPSHOT..].chunks_exact_mut(LINK))
        {
            let here = graph.paths(now).begin(link.ways[1]) == self.vertex;
            record[..20].copy_from_slice(&link.addresses);
            put(record, 20, u32::from(here));
            for (way, part) in link
                .ways
                .into_iter()
                .zip(record[32..].chunks_exact_mut(WAY))
            {
                write_way(part, way, now, graph);
            }
        }
        found
    }
}

/// Write the state of a direction.
fn write_way(part: &mut [u8], way: usize, now: Time, graph: &mut Graph<Segment>) {
    let sharers = graph.turn(now, way).map_or(1, |(users, _)| users);
    let direction = &graph.directions()[way];
    let since = Time::from_nanos(now.as_nanos().saturating_sub(WINDOW.as_nanos()));
    let offered = match direction.is_closed() {
        true => 0.0,
        false => direction.offered(since, now),
    };
    let level = direction.queue();
    let Counters {
        delivered_bytes,
        queue_full,
        congestion,
        lost,
        handover,
        ..
    } = graph.tallies()[way].counters();
    put_long(part, 0, level.bytes.0);
    put_long(part, 8, level.packets.0);
    put_long(
        part,
        16,
        if offered < UNLIMITED {
            offered as u64
        } else {
            u64::MAX
        },
    );
    put_long(part, 24, delivered_bytes);
    put_long(part, 32, queue_full + congestion + lost + handover);
    put(part, 40, sharers as u32);
    put(part, 44, u32::from(direction.is_closed()));
}

fn put(page: &mut [u8], at: usize, value: u32) {
    page[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put_long(page: &mut [u8], at: usize, value: u64) {
    page[at..at + 8].copy_from_slice(&value.to_le_bytes());
}
