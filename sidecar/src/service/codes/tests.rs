//! What holds for codes of all strategies: that none is handed out twice, and that they look as if
//! they had been drawn blindly.

mod distribution;
mod leases;
mod order;
mod statistics;
