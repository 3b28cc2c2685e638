//! The directions of a cell's users in one place, for those who have no event loop.

use std::collections::VecDeque;

use super::{Cell, CellConfig, CellError, Members, Visit, check_stages};
use crate::direction::Direction;
use crate::outcome::Outcome;
use crate::packet::Tag;
use crate::stage::StageConfig;
use crate::time::{Duration, Time};
use crate::units::Bytes;

/// The links of all users of [cells](crate::cell), in one direction, with the contract of a [`Direction`].
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

impl Shared {
    /// Does something with the cell and the directions of its users.
    fn with<P: Clone>(
        &mut self,
        directions: &mut [Direction<P>],
        work: impl FnOnce(&mut Cell, &mut Users<'_, P>),
    ) {
        let links = &self.links;
        work(&mut self.cell, &mut Users { directions, links });
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
        Ok(Self {
            cells: cells.iter().map(shared).collect::<Result<_, _>>()?,
            directions,
            outcomes: VecDeque::new(),
            clock: Time::ZERO,
        })
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
        let Self {
            cells, directions, ..
        } = self;
        let seat = cells.iter().enumerate().find_map(|(number, shared)| {
            let mut places = shared.links.iter().enumerate();
            let place =
                places.find(|&(place, &link)| link == user && shared.cell.is_present(place))?;
            Some((number, place.0))
        });
        let Some((number, place)) = seat else {
            return directions[user].accept_tagged(now, packet, size, tag);
        };
        cells[number].with(directions, |cell, users| {
            cell.arriving(place, now, users);
            users.direction(place).accept_tagged(now, packet, size, tag);
            cell.arrived(place, now, to_come, users);
        });
    }

    /// The earliest instant at which [`poll`](Self::poll) may have something, or `None` if that takes another packet.
    pub fn next_event(&self) -> Option<Time> {
        if !self.outcomes.is_empty() {
            return Some(self.clock);
        }
        self.next().map(|(at, _)| at)
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
        for shared in &mut self.cells {
            shared.with(&mut self.directions, |cell, users| {
                cell.restart(now, zero, users);
            });
        }
        for shared in &mut self.cells {
            shared.with(&mut self.directions, |cell, users| {
                cell.look_again(now, users);
            });
        }
    }

    /// The link of a user.
    pub fn direction(&self, user: usize) -> &Direction<P> {
        &self.directions[user]
    }

    /// How long each user of a cell has had it with packets waiting, as of the last call.
    pub fn served(&mut self, cell: usize) -> impl Iterator<Item = Duration> + '_ {
        let now = self.clock;
        self.cells[cell].with(&mut self.directions, |cell, users| {
            cell.catch_up(now, users);
        });
        self.cells[cell].cell.served()
    }

    /// The next event, and its place: cells come first, then directions.
    fn next(&self) -> Option<(Time, usize)> {
        let cells = self.cells.iter().map(|shared| shared.cell.next_event());
        let events = cells.chain(self.directions.iter().map(Direction::next_event));
        let placed = events
            .enumerate()
            .filter_map(|(place, at)| Some((at?, place)));
        placed.min()
    }

    fn settle(&mut self, now: Time) -> Time {
        let now = now.max(self.clock);
        while let Some((at, place)) = self.next().filter(|&(at, _)| at <= now) {
            if let Some(shared) = self.cells.get_mut(place) {
                shared.with(&mut self.directions, |cell, users| cell.step(at, users));
                continue;
            }
            let user = place - self.cells.len();
            while let Some(outcome) = self.directions[user].poll(at) {
                self.outcomes.push_back((user, outcome));
            }
        }
        self.clock = now;
        now
    }
}
