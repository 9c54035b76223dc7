//! Properties of the codes of all strategies: they are unique and look random.

mod blocked;
mod capacity;
mod distribution;
mod leases;
mod order;
mod restarts;
mod statistics;
