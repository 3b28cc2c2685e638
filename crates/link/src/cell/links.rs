//! The directions of a cell's users in one place, for those who have no event loop.

use std::collections::VecDeque;

use super::{Cell, CellConfig, CellError, Members, check_stages};
use crate::direction::Direction;
use crate::outcome::Outcome;
use crate::packet::Tag;
use crate::stage::StageConfig;
use crate::time::{Duration, Time};
use crate::units::Bytes;

/// The links of all users of a [cell](crate::cell), in one direction, with the contract of a [`Direction`].
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
    cell: Cell,
    directions: Vec<Direction<P>>,
    outcomes: VecDeque<(usize, Outcome<P>)>,
    clock: Time,
}

/// A user of [`Links`].
#[derive(Clone, Debug, PartialEq)]
pub struct CellUser {
    /// Its link, as it is without a cell.
    pub stages: Vec<StageConfig>,
    /// Its priority, 0 the highest.
    pub priority: u32,
}

impl<P: Clone> Members for Vec<Direction<P>> {
    type Packet = P;

    fn direction(&mut self, user: usize) -> &mut Direction<P> {
        &mut self[user]
    }
}

impl<P: Clone> Links<P> {
    /// Links that start at `zero`, as do the slots of their cell.
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
            priorities: users.iter().map(|user| user.priority).collect(),
        };
        users
            .iter()
            .try_for_each(|user| check_stages(&user.stages))?;
        let direction = |user: CellUser| Direction::new(user.stages, zero);
        let mut directions: Vec<_> = users.into_iter().map(direction).collect();
        Ok(Self {
            cell: Cell::new(&config, zero, &mut directions)?,
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
        self.cell.arriving(user, now, &mut self.directions);
        self.directions[user].accept_tagged(now, packet, size, tag);
        self.cell.arrived(user, now, to_come, &mut self.directions);
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
        for direction in &mut self.directions {
            direction.restart(zero, offset);
        }
        self.cell.restart(zero, &mut self.directions);
    }

    /// The link of a user.
    pub fn direction(&self, user: usize) -> &Direction<P> {
        &self.directions[user]
    }

    /// How long each user has had the cell with packets waiting, as of the last call.
    pub fn served(&mut self) -> impl Iterator<Item = Duration> + '_ {
        self.cell.catch_up(self.clock, &mut self.directions);
        self.cell.served()
    }

    /// The next event, and the direction in which it is; that of the cell first.
    fn next(&self) -> Option<(Time, Option<usize>)> {
        let mut next = self.cell.next_event().map(|at| (at, None));
        for (user, direction) in self.directions.iter().enumerate() {
            if let Some(at) = direction.next_event()
                && next.is_none_or(|(earliest, _)| at < earliest)
            {
                next = Some((at, Some(user)));
            }
        }
        next
    }

    fn settle(&mut self, now: Time) -> Time {
        let now = now.max(self.clock);
        while let Some((at, user)) = self.next().filter(|&(at, _)| at <= now) {
            match user {
                None => self.cell.step(at, &mut self.directions),
                Some(user) => {
                    while let Some(outcome) = self.directions[user].poll(at) {
                        self.outcomes.push_back((user, outcome));
                    }
                }
            }
        }
        self.clock = now;
        now
    }
}
