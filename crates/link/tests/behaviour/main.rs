//! Behaviour of the path model that users rely on, by its public interface. One program: all tests are linked once, and
//! run in parallel.

mod arrivals;
mod bottleneck_reference;
mod cells;
mod change;
mod classes;
mod closed_loop;
mod conditional;
mod day;
mod driving;
mod invariants;
mod mahimahi;
mod meter;
mod outages;
mod parser;
mod published_behaviour;
mod radio;
mod replay;
mod replay_parser;
mod replay_reference;
mod statistics;
