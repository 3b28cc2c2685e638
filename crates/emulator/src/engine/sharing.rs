//! The cells that lanes share.

use cellbed_link::{Cell, Direction, Duration, Members, Time};

use super::{Engine, Lane};
use crate::config::Config;
use crate::pool::Segment;

/// A cell and the lanes of its users.
pub(super) struct SharedCell {
    cell: Cell,
    users: Vec<usize>,
}

/// The lanes of the users of a cell.
pub(super) struct Users<'a> {
    lanes: &'a mut [Lane],
    users: &'a [usize],
}

impl Members for Users<'_> {
    type Packet = Segment;

    fn direction(&mut self, user: usize) -> &mut Direction<Segment> {
        &mut self.lanes[self.users[user]].direction
    }
}

/// The cells of a checked configuration. Their lanes know them afterwards.
pub(super) fn cells(config: &Config, zero: Time, lanes: &mut [Lane]) -> Vec<SharedCell> {
    const CHECKED: &str = "the configuration was checked";
    let cell = |(number, table): (usize, &crate::config::Cell)| {
        let lane = |user: &crate::config::CellUser| config.direction(&user.direction);
        let users: Vec<usize> = table.users.iter().filter_map(lane).collect();
        for (user, &lane) in users.iter().enumerate() {
            lanes[lane].visits.push((number, user));
        }
        let mut members = Users {
            lanes,
            users: &users,
        };
        let cell = Cell::new(&table.model(), zero, &mut members).expect(CHECKED);
        SharedCell { cell, users }
    };
    config.cells.iter().enumerate().map(cell).collect()
}

impl Engine {
    /// Does something with a cell, which may pass it from one lane to another.
    pub(super) fn with_cell(
        &mut self,
        number: usize,
        work: impl FnOnce(&mut Cell, &mut Users<'_>),
    ) {
        let SharedCell { cell, users } = &mut self.cells[number];
        let before = cell.owner().map(|owner| users[owner]);
        let mut members = Users {
            lanes: &mut self.lanes,
            users,
        };
        work(cell, &mut members);
        let after = cell.owner().map(|owner| users[owner]);
        self.agenda.set(number, cell.next_event());
        before.into_iter().for_each(|lane| self.plan(lane));
        if after != before {
            after.into_iter().for_each(|lane| self.plan(lane));
        }
    }

    /// The cell of a lane at present, and its number in it.
    #[inline]
    pub(super) fn cell_of(&self, lane: usize) -> Option<(usize, usize)> {
        let mut visits = self.lanes[lane].visits.iter().copied();
        visits.find(|&(cell, user)| self.cells[cell].cell.is_present(user))
    }

    /// Processes the event of a cell.
    #[inline(never)]
    pub(super) fn step_cell(&mut self, cell: usize, time: Time) {
        let moves = self.cells[cell].cell.next_move() == Some(time);
        self.with_cell(cell, |cell, users| cell.step(time, users));
        if moves {
            for user in 0..self.cells[cell].users.len() {
                self.plan(self.cells[cell].users[user]);
            }
        }
    }

    /// A packet reaches the direction of a user.
    #[inline(never)]
    pub(super) fn accept_shared(
        &mut self,
        cell: usize,
        user: usize,
        at: Time,
        accept: impl FnOnce(&mut Direction<Segment>),
    ) {
        self.with_cell(cell, |cell, users| {
            cell.arriving(user, at, users);
            accept(users.direction(user));
            cell.arrived(user, at, None, users);
        });
    }

    /// Brings what is known of the cells up to `now`.
    pub(super) fn catch_up_cells(&mut self, now: Time) {
        for cell in 0..self.cells.len() {
            self.with_cell(cell, |cell, users| cell.catch_up(now, users));
        }
    }

    /// How long each user of each cell has been served.
    pub(super) fn served(&self) -> Vec<Vec<Duration>> {
        let served = |it: &SharedCell| it.cell.served().collect();
        self.cells.iter().map(served).collect()
    }
}
