//! Properties of the codes of all strategies: they are unique and look random.

mod blocked;
mod distribution;
mod leases;
mod order;
mod statistics;
