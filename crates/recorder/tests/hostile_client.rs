//! Response of a server to malicious clients, and to datagrams from outside a session.
//!
//! Each test is one attack on the server without sockets, except in `real`. The assertions cover an attacker's possible
//! aims: answers, traffic to others, memory, others' data, an end of others' service.

#[path = "hostile/forgery.rs"]
mod forgery;
#[path = "hostile/greed.rs"]
mod greed;
#[path = "hostile/real.rs"]
mod real;
#[path = "hostile/replay.rs"]
mod replay;
#[path = "hostile/strangers.rs"]
mod strangers;
#[path = "hostile/theft.rs"]
mod theft;
#[path = "hostile/world.rs"]
mod world;
