//! Choice of the direction of a graph that a packet takes next.

use std::collections::VecDeque;

/// No direction leads there.
const NONE: u16 = u16::MAX;

/// Shortest paths over the graph, counted in directions; of equally short ones the direction listed first.
#[derive(Clone, Debug)]
pub struct Routes {
    vertices: usize,
    /// `next[from * vertices + to]`
    next: Vec<u16>,
}

impl Routes {
    /// Computes all paths over so many vertices. ends: of each direction the vertices that it leaves and reaches.
    pub fn new(vertices: usize, ends: &[(usize, usize)]) -> Self {
        Self {
            vertices,
            next: shortest(vertices, ends),
        }
    }

    /// The direction that leads from vertex `from` towards vertex `to`; `None` if there is no path, or none is needed.
    pub fn next(&self, from: usize, to: usize) -> Option<usize> {
        match self.next[from * self.vertices + to] {
            NONE => None,
            direction => Some(usize::from(direction)),
        }
    }
}

/// A breadth-first search backwards from each vertex.
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
            let routes = Routes::new(8, &ends);
            for from in 0..8 {
                for to in 0..8 {
                    let (mut at, mut hops) = (from, 0);
                    while let Some(next) = routes.next(at, to) {
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
