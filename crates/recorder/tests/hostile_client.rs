//! Response of a server to malicious clients and to datagrams that come from no client.
//!
//! Each test is one attack over the server without sockets, except in `real`. What is asserted is what an
//! attacker could want: answers, traffic to somebody else, memory, others' data, an end of others' service.

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
