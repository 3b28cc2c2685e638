//! What an application hears of: the two hosts, their connections, and what happens at them.

/// A host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The mobile one: what it sends takes the uplink.
    Client,
    /// What it sends takes the downlink.
    Server,
}

impl End {
    /// The other one.
    pub const fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// A connection of the application that runs, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub(crate) u64);

/// What happens to an application. It plays the parts of both hosts; `at` says whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The application begins, or something comes due that it wanted to be told of.
    Due {
        /// The caller's.
        label: u64,
    },
    /// A datagram has arrived.
    Datagram {
        /// Where.
        at: End,
        /// The sender's.
        label: u64,
    },
    /// A connection is open, as seen by this host.
    Open {
        /// Which.
        connection: ConnectionId,
        /// For whom.
        at: End,
    },
    /// The last byte of a message has arrived, and all before it.
    Message {
        /// On which connection.
        connection: ConnectionId,
        /// Where.
        at: End,
        /// The sender's.
        label: u64,
    },
    /// There is less unsent than the application wanted to be told of.
    Room {
        /// On which connection.
        connection: ConnectionId,
        /// For whom.
        at: End,
    },
}
