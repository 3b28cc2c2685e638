//! Events of an application: the two hosts, their connections, and changes there.

/// A host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The mobile one: its packets take the uplink.
    Client,
    /// Its packets take the downlink.
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

/// A connection of the running application, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub(crate) u64);

/// An event of an application, which acts for both hosts; `at` is the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The application begins, or a requested time has come.
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
    /// The unsent bytes have fallen below the requested number.
    Room {
        /// On which connection.
        connection: ConnectionId,
        /// For whom.
        at: End,
    },
}
