//! The vertices that directions join over time, and the paths between them.

use std::collections::BTreeMap;

use super::DirectionConfig;
use super::routes::Routes;
use crate::time::{Duration, Time};

/// The vertices that a direction leaves and reaches.
type Ends = (usize, usize);

/// The paths of a graph; they change when directions move.
#[derive(Clone, Debug)]
pub struct Topology {
    zero: Time,
    /// The paths, and from when on after time zero. The first are there from the beginning on.
    periods: Vec<(Duration, Joined)>,
}

#[derive(Clone, Debug)]
struct Joined {
    /// Of each direction.
    ends: Vec<Ends>,
    routes: Routes,
}

/// The paths at one time.
#[derive(Clone, Copy, Debug)]
pub struct Paths<'a>(&'a Joined);

impl Topology {
    /// Computes the paths over so many vertices; moves count from `zero` on.
    pub fn new(vertices: usize, directions: &[DirectionConfig], zero: Time) -> Self {
        let ends = directions.iter().map(|it| (it.from.into(), it.to.into()));
        let mut ends: Vec<Ends> = ends.collect();
        let mut moves: BTreeMap<Duration, Vec<(usize, Ends)>> = BTreeMap::new();
        for (number, direction) in directions.iter().enumerate() {
            for it in &direction.moves {
                let joined = (it.from.into(), it.to.into());
                moves.entry(it.at).or_default().push((number, joined));
            }
        }
        let mut periods = vec![(Duration::ZERO, Joined::new(vertices, &ends))];
        for (at, moved) in moves {
            for (number, joined) in moved {
                ends[number] = joined;
            }
            periods.push((at, Joined::new(vertices, &ends)));
        }
        Self { zero, periods }
    }

    /// Makes moves count from `zero` on.
    pub fn restart(&mut self, zero: Time) {
        self.zero = zero;
    }

    /// Returns the paths at `time`.
    #[inline]
    pub fn at(&self, time: Time) -> Paths<'_> {
        let since = time.since(self.zero);
        let begun = self.periods.partition_point(|&(from, _)| from <= since);
        Paths(&self.periods[begun - 1].1)
    }
}

impl Paths<'_> {
    /// Returns the direction that leads from vertex `from` towards vertex `to`; `None` if there is no path, or none is
    /// needed.
    pub fn next(&self, from: usize, to: usize) -> Option<usize> {
        self.0.routes.next(from, to)
    }

    /// Returns the vertex that a direction leaves.
    pub fn begin(&self, direction: usize) -> usize {
        self.0.ends[direction].0
    }

    /// Returns the vertex that a direction reaches.
    pub fn end(&self, direction: usize) -> usize {
        self.0.ends[direction].1
    }

    /// Returns the number of directions between two vertices, if there is a path.
    pub fn length(&self, from: usize, to: usize) -> Option<usize> {
        let (mut at, mut length) = (from, 0);
        while at != to {
            at = self.end(self.next(at, to)?);
            length += 1;
        }
        Some(length)
    }
}

impl Joined {
    fn new(vertices: usize, ends: &[Ends]) -> Self {
        Self {
            ends: ends.to_vec(),
            routes: Routes::new(vertices, ends),
        }
    }
}
