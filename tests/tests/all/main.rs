//! The whole from outside. One program, so that it is linked once; one module a theme.

mod citizen;
mod coherence;
mod configuration;
mod domains;
mod faults;
mod foreign_redis;
mod hostile;
mod http2;
mod input;
mod links;
mod logs;
mod lua;
mod names;
mod postgres;
mod protocols;
mod redirects;
mod reload;
mod run;
mod sight;
mod subrequests;
mod tidy;
mod topologies;
mod urls;
mod whole;
