//! Directions and the cells that they share in one place, for those who have no event loop.

use std::collections::VecDeque;

use super::{Cell, CellConfig, CellError, Members, Visit, check_stages};
use crate::agenda::Agenda;
use crate::direction::Direction;
use crate::meter::Bin;
use crate::outcome::Outcome;
use crate::packet::Tag;
use crate::stage::StageConfig;
use crate::time::{Duration, Time};
use crate::units::Bytes;

/// Directions of links, and the [cells](crate::cell) that some of them share, together with the contract of a [`Direction`].
///
/// ```
/// use cellbed_link::{BitRate, BottleneckConfig, Bytes, CellConfig, CellUser, Duration, Links, Schedule, Scheduler, Time};
///
/// // Two users of 12 Mbit/s alone, with five packets of a slot each.
/// let rate = || vec![BottleneckConfig::new(Schedule::Constant(BitRate(12_000_000))).into()];
/// let users = [rate(), rate()].map(|stages| CellUser { stages, priority: 0 });
/// let mut cell = Links::new(Scheduler::RoundRobin {}, Duration::from_millis(1), users.to_vec(), Time::ZERO)?;
/// for packet in 0..5 {
///     cell.accept(Time::ZERO, 0, packet, Bytes(1500));
///     cell.accept(Time::ZERO, 1, packet, Bytes(1500));
/// }
/// let turns: Vec<_> = std::iter::from_fn(|| cell.poll(Time::from_millis(4))).collect();
/// assert_eq!(turns.iter().map(|(user, _)| *user).collect::<Vec<_>>(), [0, 1, 0, 1]);
/// assert_eq!(turns[3].1.departed, Time::from_millis(4));
/// # Ok::<(), cellbed_link::CellError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Links<P> {
    cells: Vec<Shared>,
    directions: Vec<Direction<P>>,
    /// Of each direction the users that it is: the number of the cell, and its place there.
    seats: Vec<Vec<(usize, usize)>>,
    /// Events of the cells, then those of the directions: at one instant those of the cells come first.
    agenda: Agenda,
    outcomes: VecDeque<(usize, Outcome<P>)>,
    clock: Time,
}

/// A cell, and the link of each of its users.
#[derive(Clone, Debug)]
struct Shared {
    cell: Cell,
    links: Vec<usize>,
}

/// A user of [`Links`].
#[derive(Clone, Debug, PartialEq)]
pub struct CellUser {
    /// Its link, as it is without a cell.
    pub stages: Vec<StageConfig>,
    /// Its priority, 0 the highest.
    pub priority: u32,
}

struct Users<'a, P> {
    directions: &'a mut [Direction<P>],
    links: &'a [usize],
}

impl<P: Clone> Members for Users<'_, P> {
    type Packet = P;

    fn direction(&mut self, user: usize) -> &mut Direction<P> {
        &mut self.directions[self.links[user]]
    }
}

impl<P: Clone> Links<P> {
    /// Links of one cell that start at `zero`, as do its slots.
    ///
    /// Errors if the slot is too short, there are no users, or a user cannot [share](check_stages) a cell.
    pub fn new(
        scheduler: super::Scheduler,
        slot: Duration,
        users: Vec<CellUser>,
        zero: Time,
    ) -> Result<Self, CellError> {
        let config = CellConfig {
            scheduler,
            slot,
            users: users
                .iter()
                .map(|user| Visit::always(user.priority))
                .collect(),
        };
        users
            .iter()
            .try_for_each(|user| check_stages(&user.stages))?;
        let direction = |user: CellUser| Direction::new(user.stages, zero);
        let directions: Vec<_> = users.into_iter().map(direction).collect();
        let all = (0..directions.len()).collect();
        Self::of_cells(&[(config, all)], directions, zero)
    }

    /// Links of several cells, with the number of the link of each user: a link may be in one cell after another.
    ///
    /// Errors if the configuration of a cell is [wrong](CellConfig::check).
    pub fn of_cells(
        cells: &[(CellConfig, Vec<usize>)],
        mut directions: Vec<Direction<P>>,
        zero: Time,
    ) -> Result<Self, CellError> {
        let shared = |(config, links): &(CellConfig, Vec<usize>)| {
            let mut users = Users {
                directions: &mut directions,
                links,
            };
            let cell = Cell::new(config, zero, &mut users)?;
            let links = links.clone();
            Ok(Shared { cell, links })
        };
        let shared: Vec<Shared> = cells.iter().map(shared).collect::<Result<_, _>>()?;
        let mut seats = vec![Vec::new(); directions.len()];
        for (number, cell) in shared.iter().enumerate() {
            for (place, &link) in cell.links.iter().enumerate() {
                seats[link].push((number, place));
            }
        }
        let mut links = Self {
            agenda: Agenda::new(shared.len() + directions.len()),
            cells: shared,
            directions,
            seats,
            outcomes: VecDeque::new(),
            clock: Time::ZERO,
        };
        links.plan_all();
        Ok(links)
    }

    /// Links that share no cell.
    pub fn separate(directions: Vec<Direction<P>>) -> Self {
        let mut links = Self {
            agenda: Agenda::new(directions.len()),
            cells: Vec::new(),
            seats: vec![Vec::new(); directions.len()],
            directions,
            outcomes: VecDeque::new(),
            clock: Time::ZERO,
        };
        links.plan_all();
        links
    }

    /// The same links with their directions changed, before anything has happened.
    pub fn map(mut self, change: impl FnMut(Direction<P>) -> Direction<P>) -> Self {
        self.directions = self.directions.into_iter().map(change).collect();
        self.plan_all();
        self
    }

    /// The directions, for a change before anything has happened.
    pub fn into_directions(self) -> Vec<Direction<P>> {
        self.directions
    }

    /// Takes in a packet of `size` bytes of a user that arrives at `now`.
    pub fn accept(&mut self, now: Time, user: usize, packet: P, size: Bytes) {
        self.accept_tagged(now, user, packet, size, Tag::default(), None);
    }

    /// The same with what is known of the packet. to_come: bytes that the user will send beyond those in its queue.
    pub fn accept_tagged(
        &mut self,
        now: Time,
        user: usize,
        packet: P,
        size: Bytes,
        tag: Tag,
        to_come: Option<Bytes>,
    ) {
        let now = self.settle(now);
        let mut seats = self.seats[user].iter().copied();
        let seat = seats.find(|&(number, place)| self.cells[number].cell.is_present(place));
        let Some((number, place)) = seat else {
            self.directions[user].accept_tagged(now, packet, size, tag);
            return self.plan(user);
        };
        self.with_cell(number, |cell, users| {
            cell.arriving(place, now, users);
            users.direction(place).accept_tagged(now, packet, size, tag);
            cell.arrived(place, now, to_come, users);
        });
        self.plan(user);
    }

    /// The earliest instant at which [`poll`](Self::poll) may have something, or `None` if that takes another packet.
    pub fn next_event(&self) -> Option<Time> {
        if !self.outcomes.is_empty() {
            return Some(self.clock);
        }
        self.agenda.first().map(|(at, _)| at)
    }

    /// The next packet that had left or been dropped by `now`, with its user; call until `None`.
    pub fn poll(&mut self, now: Time) -> Option<(usize, Outcome<P>)> {
        self.settle(now);
        self.outcomes.pop_front()
    }

    /// Starts the links and the slots anew at `zero`, as [`Direction::restart`] does.
    pub fn restart(&mut self, zero: Time, offset: Duration) {
        let now = self.clock;
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

    /// The link of a user.
    pub fn direction(&self, user: usize) -> &Direction<P> {
        &self.directions[user]
    }

    /// The bins of the [meter](Direction::with_meter) of a link that had ended by `now`; see
    /// [`Direction::finished_bins`].
    pub fn finished_bins(&mut self, link: usize, now: Time, mut take: impl FnMut(Bin)) {
        self.directions[link].finished_bins(now).for_each(&mut take);
        // Looking made the direction's clock catch up, which may have brought a drop to light.
        self.plan(link);
    }

    /// How long each user of a cell has had it with packets waiting, as of the last call.
    pub fn served(&mut self, cell: usize) -> impl Iterator<Item = Duration> + '_ {
        let now = self.clock;
        self.with_cell(cell, |cell, users| cell.catch_up(now, users));
        self.cells[cell].cell.served()
    }

    fn settle(&mut self, now: Time) -> Time {
        let now = now.max(self.clock);
        while let Some((at, place)) = self.agenda.first().filter(|&(at, _)| at <= now) {
            let Some(link) = place.checked_sub(self.cells.len()) else {
                self.step_cell(place, at);
                continue;
            };
            while let Some(outcome) = self.directions[link].poll(at) {
                self.outcomes.push_back((link, outcome));
            }
            self.plan(link);
        }
        self.clock = now;
        now
    }

    fn step_cell(&mut self, number: usize, at: Time) {
        let moves = self.cells[number].cell.next_move() == Some(at);
        self.with_cell(number, |cell, users| cell.step(at, users));
        if moves {
            for place in 0..self.cells[number].links.len() {
                self.plan(self.cells[number].links[place]);
            }
        }
    }

    /// Does something with a cell, which may pass it from one link to another.
    fn with_cell(&mut self, number: usize, work: impl FnOnce(&mut Cell, &mut Users<'_, P>)) {
        let Shared { cell, links } = &mut self.cells[number];
        let before = cell.owner().map(|owner| links[owner]);
        let directions = &mut self.directions;
        work(cell, &mut Users { directions, links });
        let after = cell.owner().map(|owner| links[owner]);
        self.agenda.set(number, cell.next_event());
        before.into_iter().for_each(|link| self.plan(link));
        if after != before {
            after.into_iter().for_each(|link| self.plan(link));
        }
    }

    /// Puts the next event of a link on the agenda.
    fn plan(&mut self, link: usize) {
        let next = self.directions[link].next_event();
        self.agenda.set(self.cells.len() + link, next);
    }

    fn plan_all(&mut self) {
        for (number, shared) in self.cells.iter().enumerate() {
            self.agenda.set(number, shared.cell.next_event());
        }
        (0..self.directions.len()).for_each(|link| self.plan(link));
    }
}
