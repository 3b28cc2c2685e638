//! A radio cell: users share its time by a scheduler, each with a channel and a queue that it alone has.
//!
//! Each user is a [`Direction`] as it would be alone: its bottleneck has what the channel could carry if the user had
//! the whole cell, and its queue. Time is divided into slots. In a slot the [scheduler](Scheduler) gives the cell to
//! one user with packets waiting; only that user's queue is served, and what the channels of the others offer meanwhile
//! is lost.
//!
//! * The owner of a slot is chosen when the first user needs it, among the users that have packets waiting and
//!   opportunities in the rest of the slot, and again when its queue becomes empty. So an idle cell delays nobody, a
//!   user that has the cell for itself gets exactly what it gets without a cell, and no slot passes unused while a
//!   waiting user has opportunities in it (a user that arrives while the owner is served waits at most until the slot
//!   ends).
//! * When the turn passes at an instant at which a recording has opportunities, the next user has the share of its
//!   opportunities at this instant that the last one left: small packets of many users do not multiply the capacity.
//! * A partly sent packet stays partly sent.
//! * At one instant, a slot ends and the next one begins, then packets leave, then others arrive. Opportunities at this
//!   instant belong to the new slot; what a steady flow has sent by then has left.
//!
//! A queue is closed with the mechanism of the outages of a [gate](crate::gate): it stops the service of exactly one
//! stage while its schedule continues, for every kind of schedule and every queue discipline, and costs nothing per
//! packet. Only radio links distinguish both: during an outage a device loses its grant, beside other users it keeps
//! it.
//!
//! A user may be in the cell for a [time](Visit) only. At the instant at which it leaves, the others share what it had;
//! at the instant at which it enters, what is in its queue waits for its turn. A direction that is in no cell has its
//! channel for itself.
//!
//! Nothing happens in slots that are not contended: a cell has [events](Cell::next_event) only while at least two users
//! have packets waiting, and when users enter or leave.

mod scheduler;

use thiserror::Error;

use crate::direction::Direction;
use crate::schedule::Schedule;
use crate::stage::StageConfig;
use crate::time::{Duration, Time, earlier};
use crate::units::Share;
use crate::units::{Bytes, Packets};
pub use scheduler::{Average, Begin, Candidate, Scheduler};

/// A cell and its users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellConfig {
    /// Scheduler that assigns the slots.
    pub scheduler: Scheduler,
    /// Duration of a slot.
    pub slot: Duration,
    /// Its users.
    pub users: Vec<Visit>,
}

/// The time that a user spends in a cell. A direction that comes back is another user; it may be in one cell at a time,
/// and must have left one before it enters the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Visit {
    /// For [`Scheduler::Priority`], 0 the highest.
    pub priority: u32,
    /// After the start.
    #[serde(rename = "from_ns")]
    pub from: Duration,
    /// After the start, longer than `from`; `None` without an end.
    #[serde(rename = "until_ns")]
    pub until: Option<Duration>,
}

impl Visit {
    /// A user that is in the cell at all times.
    pub fn always(priority: u32) -> Self {
        Self {
            priority,
            ..Self::default()
        }
    }

    fn holds(&self, since: Duration) -> bool {
        self.from <= since && self.until.is_none_or(|until| since < until)
    }
}

/// The least slot: shorter ones would cost more events than any packet needs.
pub const LEAST_SLOT: Duration = Duration::from_micros(10);

/// Why directions cannot share a cell.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct CellError(String);

fn refuse<T>(reason: impl Into<String>) -> Result<T, CellError> {
    Err(CellError(reason.into()))
}

impl CellConfig {
    /// Refuses what cannot work.
    pub fn check(&self) -> Result<(), CellError> {
        if self.slot < LEAST_SLOT {
            let slot = self.slot;
            return refuse(format!(
                "a slot of {slot} is too short: it takes at least {LEAST_SLOT}"
            ));
        }
        if self.scheduler.window().is_some_and(Duration::is_zero) {
            return refuse("the averaging window must be longer than 0");
        }
        if self.users.is_empty() {
            return refuse("a cell needs at least one user");
        }
        for &Visit { from, until, .. } in &self.users {
            if let Some(until) = until.filter(|&until| until <= from) {
                return refuse(format!(
                    "a user must leave the cell after it enters it: from {from} until {until}"
                ));
            }
        }
        Ok(())
    }
}

/// Check that a direction with these stages can share a cell: its queue must belong to a bottleneck or to a radio
/// link, and come before delays.
pub fn check_stages(stages: &[StageConfig]) -> Result<(), CellError> {
    for stage in stages {
        match stage {
            StageConfig::Bottleneck(config) if config.schedule == Schedule::Unlimited => break,
            StageConfig::Bottleneck(_) | StageConfig::Radio(_) => return Ok(()),
            StageConfig::WorkloadDependent(_) | StageConfig::Conditional(_) => {
                return refuse(
                    "a recording of two workloads cannot share a cell: its delays contain the scheduling of the \
                     recorded cell; use a trace, a rate or a radio link",
                );
            }
            StageConfig::Delay(_) | StageConfig::FlowLimit(_) => {
                return refuse(
                    "in a cell the bottleneck must come before delays and limits of flows",
                );
            }
            _ => {}
        }
    }
    refuse("a direction in a cell needs a bottleneck with a limited rate, or a radio link")
}

/// The directions of the users of a cell, wherever the caller has them.
pub trait Members {
    /// Identifier of a packet.
    type Packet: Clone;

    /// The direction of a user, by its number from 0.
    fn direction(&mut self, user: usize) -> &mut Direction<Self::Packet>;
}

/// The state of a cell: who has it, and since when.
///
/// It drives the directions of its users, which the caller keeps. The whole contract: events of the cell and of the
/// directions are processed in order of time, the cell's first ([`step`](Self::step) at
/// [`next_event`](Self::next_event)).
/// [`arriving`](Self::arriving) comes before a user's direction accepts a packet, [`arrived`](Self::arrived) after it.
/// After a change or restart of a direction comes [`look_again`](Self::look_again). What arrives for a user that is not
/// [present](Self::is_present) does not concern the cell. A [`Graph`](crate::graph::Graph) does all of this.
#[derive(Clone, Debug)]
pub struct Cell {
    scheduler: Scheduler,
    slot: Duration,
    zero: Time,
    /// A start to come.
    start: Option<Time>,
    users: Vec<User>,
    /// The only present user that is not barred.
    owner: Option<usize>,
    /// Since when it has had the cell with packets waiting.
    since: Option<Time>,
    /// Number of users that have packets waiting.
    waiting: usize,
    /// The end of the slot, while it is contended.
    end: Time,
    /// When a user enters or leaves.
    next_move: Option<Time>,
    next: Option<Time>,
}

#[derive(Clone, Debug, Default)]
struct User {
    visit: Visit,
    present: bool,
    waiting: bool,
    /// Bytes that it will send beyond those in its queue.
    to_come: Bytes,
    throughput: Average,
    served: Duration,
}

impl Cell {
    /// A cell whose slots begin at `zero`, with the directions of its users, at rest.
    ///
    /// Errors if the configuration is [wrong](CellConfig::check). Directions that do not [fit](check_stages) are served
    /// as without a cell.
    pub fn new(
        config: &CellConfig,
        zero: Time,
        members: &mut impl Members,
    ) -> Result<Self, CellError> {
        config.check()?;
        let user = |&visit| User {
            visit,
            ..User::default()
        };
        let mut cell = Self {
            scheduler: config.scheduler,
            slot: config.slot,
            zero,
            start: None,
            users: config.users.iter().map(user).collect(),
            owner: None,
            since: None,
            waiting: 0,
            end: zero,
            next_move: None,
            next: None,
        };
        for user in 0..cell.users.len() {
            members.direction(user).join_cell();
        }
        cell.move_users(zero, members);
        cell.plan(members);
        Ok(cell)
    }

    /// When [`step`](Self::step) must be called next; `None` while the cell is not contended and its users stay.
    pub fn next_event(&self) -> Option<Time> {
        self.next
    }

    /// When users enter or leave next.
    pub fn next_move(&self) -> Option<Time> {
        self.next_move
    }

    /// The user whose queue is served at present.
    pub fn owner(&self) -> Option<usize> {
        self.owner
    }

    /// The duration of a slot.
    pub fn slot(&self) -> Duration {
        self.slot
    }

    /// The number of users that would share the cell's time if this one had packets waiting, itself included, as of the
    /// last call.
    pub fn sharers(&self, user: usize) -> usize {
        self.waiting + usize::from(!self.users[user].waiting)
    }

    /// Return whether a user is in the cell at present.
    pub fn is_present(&self, user: usize) -> bool {
        self.users[user].present
    }

    /// Return the time that each user has had the cell with packets waiting since the last start, as of the last call.
    pub fn served(&self) -> impl Iterator<Item = Duration> + '_ {
        self.users.iter().map(|user| user.served)
    }

    /// Slots begin anew at `zero`, and nothing is known of the past; after the same call for the directions. Users that
    /// are not there at the start leave at `now`; those that are there enter in [`look_again`](Self::look_again), which
    /// comes next.
    pub fn restart(&mut self, now: Time, zero: Time, members: &mut impl Members) {
        self.start = Some(zero);
        self.let_leave(now, members);
        self.plan(members);
    }

    /// The directions of users have been changed or restarted by `now`.
    pub fn look_again(&mut self, now: Time, members: &mut impl Members) {
        let start = self.start.filter(|_| self.waiting > 1);
        self.end = self.end.min(start.unwrap_or(Time::MAX));
        self.move_users(now, members);
        self.plan(members);
    }

    /// A packet of a user is about to arrive at `now`: an idle cell serves this user.
    pub fn arriving(&mut self, user: usize, now: Time, members: &mut impl Members) {
        self.reach(now);
        if let Some(emptied) = self.emptied(now, members) {
            self.yield_cell(emptied, members);
        }
        if self.waiting == 0 {
            self.pass_to(user, now, members);
        }
    }

    /// A packet of a user has arrived at `now` in its direction. to_come: bytes that the user will send
    /// beyond those in its queue, where the caller knows.
    pub fn arrived(
        &mut self,
        user: usize,
        now: Time,
        to_come: Option<Bytes>,
        members: &mut impl Members,
    ) {
        if let Some(bytes) = to_come {
            self.users[user].to_come = bytes;
        }
        let level = members.direction(user).queue();
        if !self.users[user].waiting && level.packets > Packets(0) {
            self.users[user].waiting = true;
            self.waiting += 1;
            if self.owner == Some(user) {
                self.since = Some(now);
            }
            if self.waiting == 2 {
                self.end = self.slot_end(now);
            }
            if self.waiting > 1 && !self.can_send(now, members) {
                self.choose(now, members);
            }
        }
        self.plan(members);
    }

    /// Processes the [event](Self::next_event) due at `now`.
    pub fn step(&mut self, now: Time, members: &mut impl Members) {
        if now < self.end {
            // What leaves the owner's queue comes first.
            if let Some(emptied) = self.emptied(now, members) {
                self.yield_cell(emptied, members);
                self.choose(now, members);
            }
        } else {
            let waiting = self.owner.is_some_and(|owner| self.users[owner].waiting);
            let emptied = self
                .owner
                .and_then(|it| members.direction(it).end_slot(now));
            match emptied {
                Some(emptied) if waiting => self.yield_cell(emptied, members),
                _ => self.account(now, members),
            }
            self.reach(now);
            self.choose(now, members);
        }
        if self.next_move.is_some_and(|next| next <= now) {
            self.move_users(now, members);
        }
        self.plan(members);
    }

    /// Brings [`served`](Self::served) up to `now`; after the same for the directions.
    pub fn catch_up(&mut self, now: Time, members: &mut impl Members) {
        self.reach(now);
        if let Some(emptied) = self.emptied(now, members) {
            self.yield_cell(emptied, members);
        } else if self.since.is_some() {
            self.account(now, members);
            self.since = Some(now);
        }
        self.plan(members);
    }

    /// Lets users leave and enter at `now`.
    fn move_users(&mut self, now: Time, members: &mut impl Members) {
        self.let_leave(now, members);
        for user in 0..self.users.len() {
            if !self.users[user].present && self.belongs(user, now) {
                self.enter(user, now, members);
            }
        }
        let zero = self.start.unwrap_or(self.zero);
        let visits = self.users.iter().map(|user| user.visit);
        let edges = visits.flat_map(|it| [(!it.from.is_zero()).then_some(it.from), it.until]);
        let instants = edges.flatten().map(|edge| zero + edge);
        self.next_move = instants.filter(|&at| at > now).min();
    }

    fn belongs(&self, user: usize, now: Time) -> bool {
        let zero = self.start.unwrap_or(self.zero);
        self.users[user].visit.holds(now.since(zero))
    }

    fn let_leave(&mut self, now: Time, members: &mut impl Members) {
        for user in 0..self.users.len() {
            if self.users[user].present && !self.belongs(user, now) {
                self.leave(user, now, members);
            }
        }
    }

    /// A user is not in the cell any more: its direction is served as without a cell, and others get the rest of its
    /// slot.
    fn leave(&mut self, user: usize, now: Time, members: &mut impl Members) {
        if self.owner == Some(user) {
            match self.emptied(now, members) {
                Some(emptied) => self.yield_cell(emptied, members),
                None => self.account(now, members),
            }
            self.owner = None;
        } else {
            members.direction(user).admit(now, Share::WHOLE);
        }
        self.users[user].present = false;
        if std::mem::take(&mut self.users[user].waiting) {
            self.waiting -= 1;
        }
        if self.owner.is_none() {
            self.choose(now, members);
        }
    }

    /// A user is in the cell from `now` on, with the packets in its queue.
    fn enter(&mut self, user: usize, now: Time, members: &mut impl Members) {
        let present = self.users.iter().filter(|each| each.present);
        let throughput = self
            .scheduler
            .entering(present.map(|each| each.throughput), now);
        let entering = &mut self.users[user];
        entering.present = true;
        entering.throughput = throughput;
        // Before an outage that ends at this instant does, so that it waits for its turn.
        members.direction(user).bar(now);
        members.direction(user).emptied(now);
        self.arriving(user, now, members);
        self.arrived(user, now, None, members);
    }

    /// Return whether the owner can use the rest of the slot.
    fn can_send(&self, now: Time, members: &mut impl Members) -> bool {
        let Some(owner) = self.owner.filter(|&owner| self.users[owner].waiting) else {
            return false;
        };
        let direction = members.direction(owner);
        let left = direction.share_left(now);
        direction.potential(now, self.end, left) > 0.0
    }

    /// When the queue of the owner, which had packets waiting, became empty by `now`.
    fn emptied(&mut self, now: Time, members: &mut impl Members) -> Option<Time> {
        let owner = self.owner.filter(|&owner| self.users[owner].waiting)?;
        members.direction(owner).emptied(now)
    }

    /// The owner's queue became empty.
    fn yield_cell(&mut self, emptied: Time, members: &mut impl Members) {
        self.account(emptied, members);
        if let Some(owner) = self.owner {
            self.users[owner].waiting = false;
            self.waiting -= 1;
        }
    }

    /// Gives the rest of the slot that holds `now` to one of those that wait and have opportunities in it, if one does;
    /// to the only one that waits in any case.
    fn choose(&mut self, now: Time, members: &mut impl Members) {
        if self.waiting == 0 {
            return;
        }
        self.end = self.slot_end(now);
        let left = self.share_left(now, members);
        let count = self.users.len();
        let last = self.owner.unwrap_or(count - 1);
        let mut best: Option<(f64, usize)> = None;
        for step in 1..=count {
            let number = (last + step) % count;
            let user = &self.users[number];
            if !user.waiting {
                continue;
            }
            let direction = members.direction(number);
            let potential = direction.potential(now, self.end, left);
            if potential <= 0.0 && self.waiting > 1 {
                continue;
            }
            let candidate = Candidate {
                priority: user.visit.priority,
                potential,
                remaining: (direction.queue().bytes + user.to_come).0 as f64,
                throughput: user.throughput,
            };
            let rank = self.scheduler.rank(candidate, now);
            if best.is_none_or(|(highest, _)| rank > highest) {
                best = Some((rank, number));
            }
        }
        if let Some((_, number)) = best {
            self.account(now, members);
            self.pass_to(number, now, members);
            self.since = Some(now);
        }
    }

    /// Another user has the cell from `now` on.
    fn pass_to(&mut self, user: usize, now: Time, members: &mut impl Members) {
        if self.owner == Some(user) {
            return;
        }
        let left = self.share_left(now, members);
        if let Some(owner) = self.owner {
            members.direction(owner).bar(now);
        }
        members.direction(user).admit(now, left);
        self.owner = Some(user);
    }

    /// The unused share of the owner's capacity at `now`.
    fn share_left(&self, now: Time, members: &mut impl Members) -> Share {
        self.owner.map_or(Share::WHOLE, |owner| {
            members.direction(owner).share_left(now)
        })
    }

    /// Counts what the owner has had up to `now`.
    fn account(&mut self, now: Time, members: &mut impl Members) {
        let (Some(since), Some(owner)) = (self.since.take(), self.owner) else {
            return;
        };
        let since = since.max(self.zero.min(now));
        let user = &mut self.users[owner];
        user.served += now.since(since);
        if let Some(window) = self.scheduler.window() {
            // Earlier than some windows nothing counts, and on a radio link the sum is a walk.
            let from = since.max(now - Duration::from_nanos(window.as_nanos().saturating_mul(8)));
            let potential = members.direction(owner).offered(from, now);
            user.throughput.add(potential, from, now, window);
        }
    }

    /// A start that was to come has come.
    fn reach(&mut self, now: Time) {
        let Some(zero) = self.start.filter(|&start| start <= now) else {
            return;
        };
        self.start = None;
        self.zero = zero;
        for user in &mut self.users {
            user.served = Duration::ZERO;
            user.throughput = Average::default();
        }
    }

    /// The end of the slot that holds `now`.
    fn slot_end(&self, now: Time) -> Time {
        let slot = self.slot.as_nanos();
        let end = if now < self.zero {
            self.zero.min(now + self.slot)
        } else {
            let into = now.since(self.zero).as_nanos() % slot;
            now + Duration::from_nanos(slot - into)
        };
        self.start
            .filter(|&start| start > now)
            .map_or(end, |start| end.min(start))
    }

    fn plan(&mut self, members: &mut impl Members) {
        let contended = (self.waiting > 1).then(|| {
            let event = self
                .owner
                .and_then(|it| members.direction(it).queue_event());
            event.map_or(self.end, |event| event.min(self.end))
        });
        self.next = earlier(contended, self.next_move).filter(|&next| next < Time::MAX);
    }
}
