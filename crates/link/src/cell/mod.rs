//! A radio cell: a scheduler divides its time among users, each with a separate channel and queue.
//!
//! Each user is a [`Direction`] as without a cell: its bottleneck has its queue, and the capacity of the channel if the
//! user had the whole cell. Time is divided into slots. In a slot the [scheduler](Scheduler) gives the cell to one user
//! with waiting packets. Only this user's queue is served; the capacity of the other channels in the slot is lost.
//!
//! * The owner of a slot is chosen when the first user needs the slot, among the users with waiting packets and
//!   opportunities in the rest of the slot. A new owner is chosen when the owner's queue becomes empty. So an idle cell
//!   delays nobody, a lone user gets exactly the service without a cell, and no slot passes unused while a waiting user
//!   has opportunities in it (a user that arrives while the owner is served waits at most until the slot ends).
//! * If the turn passes at an instant with recorded opportunities, the next user gets only the share of its
//!   opportunities at this instant that the previous owner left: small packets of many users do not multiply the
//!   capacity.
//! * A partly sent packet stays partly sent.
//! * At one instant, a slot ends and the next one begins, then packets leave, then others arrive. Opportunities at this
//!   instant belong to the new slot; bytes that a steady flow has sent by then have left.
//!
//! The outage mechanism of a [gate](crate::gate) closes a queue: it stops the service of exactly one stage while the
//! schedule continues, works for every schedule and queue discipline, and costs nothing per packet. Only radio links
//! distinguish the two: during an outage a device loses its grant; while another user is served, it keeps the grant.
//!
//! A user may be in the cell for a [limited time](Visit). When it leaves, the other users share its time. When it
//! enters, the packets in its queue wait for their turn. A direction in no cell has its channel for itself.
//!
//! Uncontended slots have no events: a cell has [events](Cell::next_event) only while at least two users have packets
//! waiting, and when users enter or leave.

mod scheduler;

use thiserror::Error;

use crate::direction::Direction;
use crate::schedule::Schedule;
use crate::stage::StageConfig;
use crate::time::{Duration, Time, earlier};
use crate::units::{Bytes, Packets, Share};
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

/// The time that a user spends in a cell. A direction that returns is another user. A direction must leave a cell
/// before it enters the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Visit {
    /// Rank under [`Scheduler::Priority`]; 0 is the highest.
    pub priority: u32,
    /// Entry, after the start.
    #[serde(rename = "from_ns")]
    pub from: Duration,
    /// Exit, after the start, later than `from`; `None` if never.
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

/// Minimum slot: shorter slots would cost more events than any packet needs.
pub const LEAST_SLOT: Duration = Duration::from_micros(10);

/// Error of directions that cannot share a cell.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct CellError(String);

fn refuse<T>(reason: impl Into<String>) -> Result<T, CellError> {
    Err(CellError(reason.into()))
}

impl CellConfig {
    /// Refuse an unworkable configuration.
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

/// Check that a direction with these stages can share a cell: its queue must belong to a bottleneck, a radio link or a
/// conditional replay, and come before delays.
pub fn check_stages(stages: &[StageConfig]) -> Result<(), CellError> {
    for stage in stages {
        match stage {
            StageConfig::Bottleneck(config) if config.schedule == Schedule::Unlimited => break,
            StageConfig::Bottleneck(_) | StageConfig::Radio(_) | StageConfig::Conditional(_) => {
                return Ok(());
            }
            StageConfig::WorkloadDependent(_) => {
                return refuse(
                    "a recording shares a cell by the method conditional alone: other methods have a schedule for \
                     each burst",
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
    refuse(
        "a direction in a cell needs a bottleneck with a limited rate, a radio link or a recording",
    )
}

/// The directions of a cell's users, which the caller stores.
#[derive(Debug)]
pub struct Members<'a, P> {
    /// All directions.
    pub directions: &'a mut [Direction<P>],
    /// Number of the direction of each user.
    pub users: &'a [usize],
}

impl<P> Members<'_, P> {
    /// Return the direction of a user; numbers begin at 0.
    pub fn direction(&mut self, user: usize) -> &mut Direction<P> {
        &mut self.directions[self.users[user]]
    }
}

/// The state of a cell: its present user, and since when.
///
/// It drives the directions of its users, which the caller stores. The whole contract: the caller processes events of
/// the cell and of the directions in order of time, the cell's first ([`step`](Self::step) at
/// [`next_event`](Self::next_event)). It calls [`arriving`](Self::arriving) before a user's direction accepts a packet,
/// [`arrived`](Self::arrived) after it, and [`look_again`](Self::look_again) after a direction changes or restarts.
/// Packets of a user that is not [present](Self::is_present) do not concern the cell. A [`Graph`](crate::graph::Graph)
/// does all of this.
#[derive(Clone, Debug)]
pub struct Cell {
    scheduler: Scheduler,
    slot: Duration,
    zero: Time,
    /// A future start.
    start: Option<Time>,
    users: Vec<User>,
    /// The only present user that is not barred.
    owner: Option<usize>,
    /// Since when the owner has had the cell with packets waiting.
    since: Option<Time>,
    /// Number of users that have packets waiting.
    waiting: usize,
    /// The end of the slot, while users contend for it.
    end: Time,
    /// When a user next enters or leaves.
    next_move: Option<Time>,
    next: Option<Time>,
}

#[derive(Clone, Debug, Default)]
struct User {
    visit: Visit,
    present: bool,
    waiting: bool,
    /// Bytes that the user will send beyond its queue.
    to_come: Bytes,
    throughput: Average,
    served: Duration,
}

impl Cell {
    /// Return an idle cell of these directions, whose slots begin at `zero`.
    ///
    /// Errors if the configuration is [wrong](CellConfig::check). Directions that do not [fit](check_stages) are served
    /// as without a cell.
    pub fn new(
        config: &CellConfig,
        zero: Time,
        members: &mut Members<'_, impl Clone>,
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

    /// Return the time of the next [`step`](Self::step); `None` while the cell is uncontended and its users stay.
    pub fn next_event(&self) -> Option<Time> {
        self.next
    }

    /// Return when users next enter or leave.
    pub fn next_move(&self) -> Option<Time> {
        self.next_move
    }

    /// Return the user whose queue is served at present.
    pub fn owner(&self) -> Option<usize> {
        self.owner
    }

    /// Return the duration of a slot.
    pub fn slot(&self) -> Duration {
        self.slot
    }

    /// Return the number of users that would share the cell's time if `user` had packets waiting, `user` included, as
    /// of the last call.
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

    /// Restart the slots at `zero` and forget the past; called after the restart of the directions. Users absent at
    /// the start leave at `now`; users present at the start enter in the following call of
    /// [`look_again`](Self::look_again).
    pub fn restart(&mut self, now: Time, zero: Time, members: &mut Members<'_, impl Clone>) {
        self.start = Some(zero);
        self.let_leave(now, members);
        self.plan(members);
    }

    /// Record that directions have changed or restarted by `now`.
    pub fn look_again(&mut self, now: Time, members: &mut Members<'_, impl Clone>) {
        let start = self.start.filter(|_| self.waiting > 1);
        self.end = self.end.min(start.unwrap_or(Time::MAX));
        self.move_users(now, members);
        self.plan(members);
    }

    /// Prepares for a packet of a user at `now`: an idle cell serves this user.
    pub fn arriving(&mut self, user: usize, now: Time, members: &mut Members<'_, impl Clone>) {
        self.reach(now);
        if let Some(emptied) = self.emptied(now, members) {
            self.yield_cell(emptied, members);
        }
        if self.waiting == 0 {
            self.pass_to(user, now, members);
        }
    }

    /// Record that a user's direction has accepted a packet at `now`. to_come: bytes that the user will send beyond its
    /// queue, if the caller knows.
    pub fn arrived(
        &mut self,
        user: usize,
        now: Time,
        to_come: Option<Bytes>,
        members: &mut Members<'_, impl Clone>,
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

    /// Process the [event](Self::next_event) due at `now`.
    pub fn step(&mut self, now: Time, members: &mut Members<'_, impl Clone>) {
        if now < self.end {
            // Departures from the owner's queue come first.
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

    /// Bring [`served`](Self::served) up to `now`; called after the directions have caught up.
    pub fn catch_up(&mut self, now: Time, members: &mut Members<'_, impl Clone>) {
        self.reach(now);
        if let Some(emptied) = self.emptied(now, members) {
            self.yield_cell(emptied, members);
        } else if self.since.is_some() {
            self.account(now, members);
            self.since = Some(now);
        }
        self.plan(members);
    }

    /// Let users leave and enter at `now`.
    fn move_users(&mut self, now: Time, members: &mut Members<'_, impl Clone>) {
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

    fn let_leave(&mut self, now: Time, members: &mut Members<'_, impl Clone>) {
        for user in 0..self.users.len() {
            if self.users[user].present && !self.belongs(user, now) {
                self.leave(user, now, members);
            }
        }
    }

    /// Remove a user from the cell: its direction is served as without a cell, and others get the rest of its slot.
    fn leave(&mut self, user: usize, now: Time, members: &mut Members<'_, impl Clone>) {
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

    /// Add a user to the cell at `now`, with the packets in its queue.
    fn enter(&mut self, user: usize, now: Time, members: &mut Members<'_, impl Clone>) {
        let present = self.users.iter().filter(|each| each.present);
        let throughput = self
            .scheduler
            .initial_average(present.map(|each| each.throughput), now);
        let entering = &mut self.users[user];
        entering.present = true;
        entering.throughput = throughput;
        // Barred before an outage ends at this instant, so that the user waits for its turn.
        members.direction(user).bar(now);
        members.direction(user).emptied(now);
        self.arriving(user, now, members);
        self.arrived(user, now, None, members);
    }

    /// Return whether the owner can use the rest of the slot.
    fn can_send(&self, now: Time, members: &mut Members<'_, impl Clone>) -> bool {
        let Some(owner) = self.owner.filter(|&owner| self.users[owner].waiting) else {
            return false;
        };
        let direction = members.direction(owner);
        let left = direction.share_left(now);
        direction.potential(now, self.end, left) > 0.0
    }

    /// Return when the owner's queue became empty, if it had packets and is empty at `now`.
    fn emptied(&mut self, now: Time, members: &mut Members<'_, impl Clone>) -> Option<Time> {
        let owner = self.owner.filter(|&owner| self.users[owner].waiting)?;
        members.direction(owner).emptied(now)
    }

    /// Record that the owner's queue is empty.
    fn yield_cell(&mut self, emptied: Time, members: &mut Members<'_, impl Clone>) {
        self.account(emptied, members);
        if let Some(owner) = self.owner {
            self.users[owner].waiting = false;
            self.waiting -= 1;
        }
    }

    /// Give the rest of the slot at `now` to a waiting user with opportunities in it, if there is one; a lone waiting
    /// user gets it in any case.
    fn choose(&mut self, now: Time, members: &mut Members<'_, impl Clone>) {
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
                class: direction.rank(),
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

    /// Give the cell to another user from `now` on.
    fn pass_to(&mut self, user: usize, now: Time, members: &mut Members<'_, impl Clone>) {
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

    /// Return the unused share of the owner's capacity at `now`.
    fn share_left(&self, now: Time, members: &mut Members<'_, impl Clone>) -> Share {
        self.owner.map_or(Share::WHOLE, |owner| {
            members.direction(owner).share_left(now)
        })
    }

    /// Count the owner's time and capacity up to `now`.
    fn account(&mut self, now: Time, members: &mut Members<'_, impl Clone>) {
        let (Some(since), Some(owner)) = (self.since.take(), self.owner) else {
            return;
        };
        let since = since.max(self.zero.min(now));
        let user = &mut self.users[owner];
        user.served += now.since(since);
        if let Some(window) = self.scheduler.window() {
            // Capacity more than 8 windows ago hardly counts, and a radio link sums it slot by slot.
            let from = since.max(now - Duration::from_nanos(window.as_nanos().saturating_mul(8)));
            let potential = members.direction(owner).offered(from, now);
            user.throughput.add(potential, from, now, window);
        }
    }

    /// Perform the future start if it is due.
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

    /// Return the end of the slot that contains `now`.
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

    fn plan(&mut self, members: &mut Members<'_, impl Clone>) {
        let contended = (self.waiting > 1).then(|| {
            let event = self
                .owner
                .and_then(|it| members.direction(it).queue_event());
            event.map_or(self.end, |event| event.min(self.end))
        });
        self.next = earlier(contended, self.next_move).filter(|&next| next < Time::MAX);
    }
}
