//! Events of an application: at hosts and on their connections.

/// Room that a sender waits for: a third of its send buffer (Linux: `sk_stream_write_space`), which grows with the
/// congestion window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Minimum size of the buffer, bytes.
    pub least: u64,
    /// Maximum size of the buffer, bytes.
    pub most: u64,
}

/// An end of a connection, or a host of a network of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// The end that opens connections; of two hosts the mobile one: its packets take the uplink.
    Client,
    /// The other end; of two hosts, its packets take the downlink.
    Server,
}

impl End {
    /// Return the other end.
    pub const fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// The hosts of a connection, and their ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Vertex and port of the end that opens the connection.
    pub client: (u16, u16),
    /// Vertex and port of the other end.
    pub server: (u16, u16),
}

impl Ends {
    /// The ends of a client and a server, each a vertex and a port.
    pub const fn new(client: (u16, u16), server: (u16, u16)) -> Self {
        Self { client, server }
    }

    pub(crate) fn of(self, end: End) -> (u16, u16) {
        [self.client, self.server][end as usize]
    }
}

/// The protocol of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramKind {
    /// An echo request or its answer.
    Icmp,
    /// User data.
    Udp,
}

/// A connection of the running application, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub(crate) u64);

impl ConnectionId {
    /// Return the number of the connection.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Return the connection of this number.
    pub fn of(number: u64) -> Self {
        Self(number)
    }
}

/// An event of an application, which acts for all hosts. `at` is the end of the connection, or the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The application begins, or a requested time has come.
    Due {
        /// The caller's label.
        label: u64,
    },
    /// A datagram has arrived.
    Datagram {
        /// End of the connection.
        at: End,
        /// The sender's label.
        label: u64,
    },
    /// A connection is open, as seen by this host.
    Open {
        /// Identifier of the connection.
        connection: ConnectionId,
        /// End of the connection.
        at: End,
    },
    /// The last byte of a message has arrived, and all before it.
    Message {
        /// Identifier of the connection.
        connection: ConnectionId,
        /// End of the connection.
        at: End,
        /// The sender's label.
        label: u64,
    },
    /// The requested room is free.
    Room {
        /// Identifier of the connection.
        connection: ConnectionId,
        /// End of the connection.
        at: End,
    },
}
