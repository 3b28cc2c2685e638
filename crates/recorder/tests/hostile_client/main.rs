//! Response of a server to malicious clients, and to datagrams from outside a session.
//!
//! Each test is one attack on the server without sockets. The assertions cover an attacker's possible aims: answers,
//! traffic to others, memory, others' data, an end of others' service.

mod forgery;
mod greed;
mod replay;
mod strangers;
mod theft;
mod world;
