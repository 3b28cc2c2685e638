//! A graph of directions: packets pass from one to the next; some directions share a cell.
//!
//! The emulator (monotonic clock), virtual hosts (an event queue) and the recorder's virtual network drive the same
//! graph. Each keeps its own packets, and passes a packet that leaves a direction to the [next one](Graph::onward) at
//! the instant of departure.

pub mod table;
mod topology;

use std::collections::VecDeque;

use thiserror::Error;

use crate::agenda::Agenda;
use crate::cell::{Cell, CellConfig, CellError, Members};
use crate::direction::{Change, ChangeError, Direction};
use crate::meter::Bin;
use crate::packet::{Outcome, Tag};
use crate::stage::StageConfig;
use crate::tally::Tally;
use crate::time::{Duration, Time};
use crate::units::Bytes;
pub use topology::{Paths, Topology};

/// A direction of a graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DirectionConfig {
    /// The vertex it leaves.
    pub from: u16,
    /// The vertex it reaches.
    pub to: u16,
    /// Stages that a packet passes, in order, at every start.
    pub stages: Vec<StageConfig>,
    /// Changes after every start.
    pub changes: Vec<Change>,
    /// Moves to other vertices, in order of time. A packet arrives at the vertex that the direction reached when the
    /// packet left the bottleneck.
    pub moves: Vec<Move>,
}

impl From<Vec<StageConfig>> for DirectionConfig {
    /// Return a direction of these stages that stays at vertex 0.
    fn from(stages: Vec<StageConfig>) -> Self {
        Self {
            stages,
            ..Self::default()
        }
    }
}

/// A move of a direction to other vertices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Time after every start.
    pub at: Duration,
    /// The vertex it leaves from then on.
    pub from: u16,
    /// The vertex it reaches from then on.
    pub to: u16,
}

/// A graph with its cells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GraphConfig {
    /// Number of vertices.
    pub vertices: usize,
    /// The directions.
    pub directions: Vec<DirectionConfig>,
    /// The cells, each with the direction numbers of its users. A direction may be in one cell after another.
    pub cells: Vec<(CellConfig, Vec<usize>)>,
}

/// Error of an invalid graph.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GraphError {
    /// A change of a direction is refused.
    #[error("direction {direction}: {problem}")]
    Change {
        /// Number of the direction.
        direction: usize,
        /// Reason.
        problem: ChangeError,
    },
    /// A cell is refused.
    #[error("cell: {0}")]
    Cell(#[from] CellError),
}

/// Next place of a packet that has come out of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onward {
    /// It is at its destination.
    Arrived,
    /// Into this direction, at the departure.
    Next(usize),
    /// Nowhere: no path leads to its destination.
    Lost,
}

/// Directions between vertices, and the [cells](crate::cell) that some of them share, with the contract of a
/// [`Direction`].
///
/// ```
/// use cellbed_link::{
///     BitRate, BottleneckConfig, Bytes, CellConfig, Duration, Graph, GraphConfig, Schedule, Scheduler, Time, Visit,
/// };
///
/// // Two users of 12 Mbit/s alone, with five packets of a slot each.
/// let rate = || vec![BottleneckConfig::new(Schedule::Constant(BitRate(12_000_000))).into()];
/// let slot = Duration::from_millis(1);
/// let config = CellConfig { scheduler: Scheduler::RoundRobin {}, slot, users: vec![Visit::always(0); 2] };
/// let config = GraphConfig {
///     vertices: 1,
///     directions: vec![rate().into(), rate().into()],
///     cells: vec![(config, vec![0, 1])],
/// };
/// let mut cell = Graph::new(config, Time::ZERO)?;
/// for packet in 0..5 {
///     cell.accept(Time::ZERO, 0, packet, Bytes(1500));
///     cell.accept(Time::ZERO, 1, packet, Bytes(1500));
/// }
/// let turns: Vec<_> = std::iter::from_fn(|| cell.poll(Time::from_millis(4))).collect();
/// assert_eq!(turns.iter().map(|(user, _)| *user).collect::<Vec<_>>(), [0, 1, 0, 1]);
/// assert_eq!(turns[3].1.departed, Time::from_millis(4));
/// # Ok::<(), cellbed_link::GraphError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Graph<P> {
    topology: Topology,
    cells: Vec<SharedCell>,
    directions: Vec<Direction<P>>,
    /// For each direction, the cells that it visits, with its user number in each.
    visits: Vec<Vec<(usize, usize)>>,
    /// For each direction of a device with [coupled](crate::RadioConfig::coupled) directions, the other direction;
    /// empty without such devices.
    partners: Vec<Option<usize>>,
    /// Events of the cells and of the directions: at one instant the cells come first.
    agenda: Agenda,
    outcomes: VecDeque<(usize, Outcome<P>)>,
    clock: Time,
    /// By direction, if outcomes are counted.
    tallies: Vec<Tally>,
    /// By vertex, the DSCP of its packets, if it sets one.
    marks: Vec<Option<u8>>,
}

/// A cell, and the direction of each of its users.
#[derive(Clone, Debug)]
struct SharedCell {
    cell: Cell,
    users: Vec<usize>,
}

impl<P: Clone> Graph<P> {
    /// Return a graph at rest whose schedules, changes, moves and slots start at `zero`.
    ///
    /// Errors: a change or a cell that does not fit.
    pub fn new(config: GraphConfig, zero: Time) -> Result<Self, GraphError> {
        let topology = Topology::new(config.vertices, &config.directions, zero);
        let directions = config.directions.into_iter().enumerate();
        let directions = directions.map(|(direction, it)| {
            let made = Direction::new(it.stages, zero).with_changes(it.changes);
            made.map_err(|problem| GraphError::Change { direction, problem })
        });
        let mut directions: Vec<_> = directions.collect::<Result<_, _>>()?;
        let mut visits = vec![Vec::new(); directions.len()];
        let mut cells = Vec::new();
        for (config, users) in config.cells {
            for (user, &direction) in users.iter().enumerate() {
                visits[direction].push((cells.len(), user));
            }
            let mut members = Members {
                directions: &mut directions,
                users: &users,
            };
            let cell = Cell::new(&config, zero, &mut members)?;
            cells.push(SharedCell { cell, users });
        }
        let devices: Vec<_> = directions.iter().map(Direction::device).collect();
        let partner = |own: &Option<_>| {
            let (device, way) = (*own)?;
            let is_other = |it: &Option<_>| it.is_some_and(|(of, to)| of == device && to != way);
            devices.iter().position(is_other)
        };
        let mut partners: Vec<_> = devices.iter().map(partner).collect();
        if partners.iter().all(Option::is_none) {
            partners.clear();
        }
        let mut graph = Self {
            topology,
            partners,
            agenda: Agenda::new(cells.len() + directions.len()),
            cells,
            directions,
            visits,
            outcomes: VecDeque::new(),
            clock: Time::ZERO,
            tallies: Vec::new(),
            marks: Vec::new(),
        };
        graph.plan_all();
        Ok(graph)
    }

    /// Return the same graph with a [meter](Direction::with_meter) for each direction.
    pub fn with_meters(mut self) -> Self {
        let directions = self.directions.into_iter();
        self.directions = directions.map(Direction::with_meter).collect();
        self.plan_all();
        self
    }

    /// Return the same graph with a tally for each direction.
    pub fn with_tallies(mut self) -> Self {
        self.tallies = vec![Tally::default(); self.directions.len()];
        self
    }

    /// Return the same graph, whose vertices set the DSCP of packets from and to them. marks: by vertex.
    pub fn with_marks(mut self, marks: Vec<Option<u8>>) -> Self {
        self.marks = marks;
        self
    }

    /// Return the tag of a packet with the DSCP that the source's vertex sets, else the destination's.
    pub fn mark(&self, source: u16, destination: u16, tag: Tag) -> Tag {
        let set = |vertex| self.marks.get(usize::from(vertex)).copied().flatten();
        let dscp = set(source).or_else(|| set(destination));
        Tag {
            dscp: dscp.unwrap_or(tag.dscp),
            ..tag
        }
    }

    /// Take in a packet of `size` bytes that arrives at a direction at `now`.
    pub fn accept(&mut self, now: Time, direction: usize, packet: P, size: Bytes) {
        self.accept_tagged(now, direction, packet, size, Tag::default(), None);
    }

    /// Take in a packet with its tag. to_come: bytes that the user of a cell will send beyond its queue.
    pub fn accept_tagged(
        &mut self,
        now: Time,
        direction: usize,
        packet: P,
        size: Bytes,
        tag: Tag,
        to_come: Option<Bytes>,
    ) {
        let now = self.advance(now);
        if let Some((cell, user)) = self.visit(direction) {
            self.with_cell(cell, |cell, users| {
                cell.arriving(user, now, users);
                users.direction(user).accept_tagged(now, packet, size, tag);
                cell.arrived(user, now, to_come, users);
            });
        } else {
            self.directions[direction].accept_tagged(now, packet, size, tag);
        }
        self.plan(direction);
        if let Some(&Some(partner)) = self.partners.get(direction) {
            self.rouse(now, direction, partner);
        }
    }

    /// Wake the device of `direction`, which has got a packet, in its other direction.
    #[cold]
    fn rouse(&mut self, now: Time, direction: usize, partner: usize) {
        let connected = self.directions[direction].connected();
        self.directions[partner].rouse(now, connected);
        self.plan(partner);
        if let Some((cell, _)) = self.visit(partner) {
            self.with_cell(cell, |cell, users| cell.look_again(now, users));
        }
    }

    /// Return when [`poll`](Self::poll) may next have an outcome; `None` if only after another packet.
    pub fn next_event(&self) -> Option<Time> {
        if !self.outcomes.is_empty() {
            return Some(self.clock);
        }
        self.agenda.first().map(|(at, _)| at)
    }

    /// Return the next packet that has left a direction or been dropped in it by `now`, with the direction; call until
    /// `None`.
    ///
    /// Called at each [event](Self::next_event), outcomes come in order of time over all directions.
    pub fn poll(&mut self, now: Time) -> Option<(usize, Outcome<P>)> {
        self.advance(now);
        let next = self.outcomes.pop_front();
        if let Some((direction, outcome)) = &next
            && let Some(tally) = self.tallies.get_mut(*direction)
        {
            tally.count(outcome);
        }
        next
    }

    /// Return the next place of a packet that has left a direction.
    pub fn onward(&self, direction: usize, outcome: &Outcome<P>, destination: usize) -> Onward {
        let vertex = self.topology.at(outcome.released).end(direction);
        if vertex == destination {
            return Onward::Arrived;
        }
        let paths = self.topology.at(outcome.departed);
        paths
            .next(vertex, destination)
            .map_or(Onward::Lost, Onward::Next)
    }

    /// Return the paths at `time`.
    pub fn paths(&self, time: Time) -> Paths<'_> {
        self.topology.at(time)
    }

    /// Restart directions, moves and slots at `zero`, as of `now`; see [`Direction::restart`].
    pub fn restart(&mut self, now: Time, zero: Time, offset: Duration) {
        let now = self.advance(now);
        self.topology.restart(zero);
        for direction in &mut self.directions {
            direction.restart(zero, offset);
        }
        for number in 0..self.cells.len() {
            self.with_cell(number, |cell, users| cell.restart(now, zero, users));
        }
        for number in 0..self.cells.len() {
            self.with_cell(number, |cell, users| cell.look_again(now, users));
        }
        self.plan_all();
    }

    /// Change a stage of a direction from `now` on; see [`Direction::change`].
    pub fn change(
        &mut self,
        now: Time,
        direction: usize,
        stage: usize,
        config: StageConfig,
    ) -> Result<(), ChangeError> {
        let now = self.advance(now);
        let changed = self.directions[direction].change(now, stage, config);
        self.plan(direction);
        if let Some((cell, _)) = self.visit(direction) {
            self.with_cell(cell, |cell, users| cell.look_again(now, users));
        }
        changed
    }

    /// Bring the clocks of all directions and cells up to `now`, which may reveal a drop.
    pub fn catch_up(&mut self, now: Time) {
        let now = self.advance(now);
        for direction in 0..self.directions.len() {
            while let Some(outcome) = self.directions[direction].poll(now) {
                self.outcomes.push_back((direction, outcome));
            }
            self.plan(direction);
        }
        for number in 0..self.cells.len() {
            self.with_cell(number, |cell, users| cell.catch_up(now, users));
        }
    }

    /// Return the time of the last call; later calls with an earlier time count as calls at this time.
    pub fn clock(&self) -> Time {
        self.clock
    }

    /// Return the minimum time of a packet between any two of these vertices, also after moves and changes.
    ///
    /// ```
    /// use cellbed_link::{DelayConfig, DirectionConfig, Duration, Graph, GraphConfig, Time};
    ///
    /// let way = |from, to, delay_ms| DirectionConfig {
    ///     stages: vec![DelayConfig::Fixed(Duration::from_millis(delay_ms)).into()],
    ///     ..DirectionConfig { from, to, ..DirectionConfig::default() }
    /// };
    /// let directions = vec![way(0, 1, 20), way(1, 2, 5), way(2, 0, 40)];
    /// let config = GraphConfig { vertices: 3, directions, cells: Vec::new() };
    /// let graph: Graph<()> = Graph::new(config, Time::ZERO)?;
    /// assert_eq!(graph.least_delay(&[0, 2]), Duration::from_millis(25));
    /// # Ok::<(), cellbed_link::GraphError>(())
    /// ```
    pub fn least_delay(&self, vertices: &[usize]) -> Duration {
        let paths = self.topology.at(self.clock);
        // A packet may wake up the other direction of its device at once.
        let fixed = self.topology.is_fixed() && self.partners.is_empty();
        let between = |from: usize, to: usize| {
            let (mut at, mut delay) = (from, Duration::ZERO);
            while at != to && fixed {
                let direction = paths.next(at, to)?;
                delay += self.directions[direction].least_delay();
                at = paths.end(direction);
            }
            (from != to).then_some(delay)
        };
        let ends = vertices
            .iter()
            .flat_map(|&from| vertices.iter().map(move |&to| (from, to)));
        let least = ends.filter_map(|(from, to)| between(from, to)).min();
        least.unwrap_or(Duration::ZERO)
    }

    /// Return the directions.
    pub fn directions(&self) -> &[Direction<P>] {
        &self.directions
    }

    /// Return the tally of each direction; see [`with_tallies`](Self::with_tallies).
    pub fn tallies(&self) -> &[Tally] {
        &self.tallies
    }

    /// Take the bins of a direction's [meter](Direction::with_meter) that have ended by `now`; see
    /// [`Direction::finished_bins`].
    pub fn finished_bins(&mut self, direction: usize, now: Time, mut take: impl FnMut(Bin)) {
        let bins = self.directions[direction].finished_bins(now);
        bins.for_each(&mut take);
        // The direction's clock has caught up, which may have revealed a drop.
        self.plan(direction);
    }

    /// Return the time that each user has had a cell with packets waiting, as of the last call.
    pub fn served(&mut self, cell: usize) -> impl Iterator<Item = Duration> + '_ {
        let now = self.clock;
        self.with_cell(cell, |cell, users| cell.catch_up(now, users));
        self.cells[cell].cell.served()
    }

    /// Return a direction's turn in its cell at `now`, if it is in one: the number of [users](Cell::sharers) that
    /// share the cell, and the duration of a slot.
    pub fn turn(&mut self, now: Time, direction: usize) -> Option<(usize, Duration)> {
        let now = self.advance(now);
        let (number, user) = self.visit(direction)?;
        self.with_cell(number, |cell, users| cell.catch_up(now, users));
        let cell = &self.cells[number].cell;
        Some((cell.sharers(user), cell.slot()))
    }

    /// Process all events up to `now`; return the clock.
    #[inline]
    fn advance(&mut self, now: Time) -> Time {
        let now = now.max(self.clock);
        while let Some((at, place)) = self.agenda.first().filter(|&(at, _)| at <= now) {
            let Some(direction) = place.checked_sub(self.cells.len()) else {
                self.step_cell(place, at);
                continue;
            };
            while let Some(outcome) = self.directions[direction].poll(at) {
                self.outcomes.push_back((direction, outcome));
            }
            self.plan(direction);
        }
        self.clock = now;
        now
    }

    #[inline(never)]
    fn step_cell(&mut self, number: usize, at: Time) {
        let moves = self.cells[number].cell.next_move() == Some(at);
        self.with_cell(number, |cell, users| cell.step(at, users));
        if moves {
            for user in 0..self.cells[number].users.len() {
                self.plan(self.cells[number].users[user]);
            }
        }
    }

    /// Return the present cell of a direction, and its user number there.
    #[inline]
    fn visit(&self, direction: usize) -> Option<(usize, usize)> {
        let mut visits = self.visits[direction].iter().copied();
        visits.find(|&(cell, user)| self.cells[cell].cell.is_present(user))
    }

    /// Run `work` on a cell, which may pass the cell to another direction.
    fn with_cell(&mut self, number: usize, work: impl FnOnce(&mut Cell, &mut Members<'_, P>)) {
        let SharedCell { cell, users } = &mut self.cells[number];
        let before = cell.owner().map(|owner| users[owner]);
        let directions = &mut self.directions;
        work(cell, &mut Members { directions, users });
        let after = cell.owner().map(|owner| users[owner]);
        self.agenda.set(number, cell.next_event());
        before
            .into_iter()
            .for_each(|direction| self.plan(direction));
        if after != before {
            after.into_iter().for_each(|direction| self.plan(direction));
        }
    }

    /// Put the next event of a direction on the agenda.
    #[inline]
    fn plan(&mut self, direction: usize) {
        let next = self.directions[direction].next_event();
        self.agenda.set(self.cells.len() + direction, next);
    }

    fn plan_all(&mut self) {
        for (number, shared) in self.cells.iter().enumerate() {
            self.agenda.set(number, shared.cell.next_event());
        }
        (0..self.directions.len()).for_each(|direction| self.plan(direction));
    }
}
