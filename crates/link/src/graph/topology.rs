//! The vertices that directions join over time, and the paths between them.

use std::collections::{BTreeMap, VecDeque};

use super::DirectionConfig;
use crate::time::{Duration, Time};

/// The vertices that a direction leaves and reaches.
type Ends = (usize, usize);

/// The paths of a graph; they change when directions move.
#[derive(Clone, Debug)]
pub struct Topology {
    zero: Time,
    /// Paths, each with its begin after time zero; the first begin at zero.
    periods: Vec<(Duration, Joined)>,
}

/// Shortest paths over the graph, counted in directions; among equal paths, the first listed direction.
#[derive(Clone, Debug)]
struct Joined {
    /// Ends of each direction.
    ends: Vec<Ends>,
    vertices: usize,
    /// `next[from * vertices + to]`
    next: Vec<u16>,
}

/// Entry without a path.
const NONE: u16 = u16::MAX;

/// The paths at one time.
#[derive(Clone, Copy, Debug)]
pub struct Paths<'a>(&'a Joined);

impl Topology {
    /// Compute the paths over this many vertices; moves count from `zero` on.
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

    /// Make moves count from `zero` on.
    pub fn restart(&mut self, zero: Time) {
        self.zero = zero;
    }

    /// Return whether no direction moves.
    pub fn is_fixed(&self) -> bool {
        self.periods.len() == 1
    }

    /// Return the paths at `time`.
    #[inline]
    pub fn at(&self, time: Time) -> Paths<'_> {
        let since = time.since(self.zero);
        let begun = self.periods.partition_point(|&(from, _)| from <= since);
        Paths(&self.periods[begun - 1].1)
    }
}

impl Paths<'_> {
    /// Return the direction that leads from vertex `from` towards vertex `to`; `None` without a path, or if both are
    /// equal.
    pub fn next(&self, from: usize, to: usize) -> Option<usize> {
        match self.0.next[from * self.0.vertices + to] {
            NONE => None,
            direction => Some(usize::from(direction)),
        }
    }

    /// Return the vertex that a direction leaves.
    pub fn begin(&self, direction: usize) -> usize {
        self.0.ends[direction].0
    }

    /// Return the vertex that a direction reaches.
    pub fn end(&self, direction: usize) -> usize {
        self.0.ends[direction].1
    }

    /// Return the number of directions between two vertices, if there is a path.
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
            vertices,
            next: shortest(vertices, ends),
        }
    }
}

/// Search backwards from each vertex, breadth first.
fn shortest(vertices: usize, ends: &[(usize, usize)]) -> Vec<u16> {
    let mut into = vec![Vec::new(); vertices];
    for (direction, &(from, to)) in ends.iter().enumerate() {
        into[to].push((direction, from));
    }
    let mut next = vec![NONE; vertices * vertices];
    for target in 0..vertices {
        let mut distance = vec![usize::MAX; vertices];
        distance[target] = 0;
        let mut queue = VecDeque::from([target]);
        while let Some(at) = queue.pop_front() {
            for &(direction, from) in &into[at] {
                let entry = &mut next[from * vertices + target];
                if distance[from] == usize::MAX {
                    distance[from] = distance[at] + 1;
                    *entry = direction as u16;
                    queue.push_back(from);
                } else if distance[from] == distance[at] + 1 {
                    *entry = (*entry).min(direction as u16);
                }
            }
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn following_the_table_arrives(ends in proptest::collection::vec((0usize..8, 0usize..8), 0..30)) {
            let joined = Joined::new(8, &ends);
            for from in 0..8 {
                for to in 0..8 {
                    let (mut at, mut hops) = (from, 0);
                    while let Some(next) = Paths(&joined).next(at, to) {
                        let (leaves, reaches) = ends[next];
                        prop_assert_eq!(leaves, at);
                        at = reaches;
                        hops += 1;
                        prop_assert!(hops < 8, "a loop");
                    }
                    prop_assert!(at == to || hops == 0, "a dead end");
                }
            }
        }
    }
}
