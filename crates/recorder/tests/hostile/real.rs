//! Over real sockets of the loopback.
